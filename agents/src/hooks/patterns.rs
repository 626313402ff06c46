//! Regular expressions of a hook, applied in one pass.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// Maximum memory of one compiled expression, in bytes.
const MAX_PROGRAM_BYTES: usize = 1 << 20;

/// Regular expressions of a hook. The leftmost match counts, of equal ones that of the first expression.
#[derive(Debug, Clone)]
pub(super) struct Patterns(Vec<Regex>);

/// Error of an invalid regular expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Position in the list of expressions, from 0.
    pub index: usize,
    reason: String,
}

/// Match in a text, as byte offsets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Match {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Patterns {
    /// Compiles the expressions.
    ///
    /// # Errors
    /// The list is empty, or an expression is invalid, too large, or matches the empty text.
    pub(super) fn new(patterns: &[String]) -> Result<Self, PatternError> {
        if patterns.is_empty() {
            let reason = "must name at least one expression";
            return Err(PatternError::new(0, reason.to_owned()));
        }
        let compile = |(index, text): (usize, &String)| {
            let built = RegexBuilder::new(text)
                .size_limit(MAX_PROGRAM_BYTES)
                .build();
            let regex = built.map_err(|error| PatternError::new(index, error.to_string()))?;
            if regex.is_match("") {
                return Err(PatternError::matches_empty(index, text));
            }
            Ok(regex)
        };
        let compiled: Result<_, _> = patterns.iter().enumerate().map(compile).collect();
        compiled.map(Self)
    }

    /// Whether an expression matches.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.0.iter().any(|regex| regex.is_match(text))
    }

    /// Returns the matches from an offset on, without overlaps. Text before the offset is context of `\b` and `^`.
    pub(super) fn find_all(&self, text: &str, from: usize) -> Vec<Match> {
        let mut matches = Vec::new();
        let mut next: Vec<_> = self
            .0
            .iter()
            .map(|regex| find_from(regex, text, from))
            .collect();
        while let Some(first) = next
            .iter()
            .flatten()
            .min_by_key(|found| found.start)
            .copied()
        {
            matches.push(first);
            for (regex, found) in self.0.iter().zip(&mut next) {
                if found.is_some_and(|found| found.start < first.end) {
                    *found = find_from(regex, text, first.end);
                }
            }
        }
        matches
    }
}

/// Returns the first match from an offset on that is not empty.
fn find_from(regex: &Regex, text: &str, mut from: usize) -> Option<Match> {
    loop {
        let found = regex.find_at(text, from)?;
        if !found.is_empty() {
            return Some(Match {
                start: found.start(),
                end: found.end(),
            });
        }
        from = found.end() + text[found.end()..].chars().next()?.len_utf8();
    }
}

impl PatternError {
    pub(super) fn new(index: usize, reason: String) -> Self {
        Self { index, reason }
    }

    pub(super) fn matches_empty(index: usize, text: &str) -> Self {
        Self::new(index, format!("`{text}` matches the empty text"))
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for PatternError {}
