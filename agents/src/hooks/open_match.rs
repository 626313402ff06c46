//! Matches that text which follows may complete or change.

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;

use super::PatternError;

/// Simulation of the NFA of several expressions, with the priorities of [`Patterns`](super::patterns::Patterns).
#[derive(Debug)]
pub(super) struct OpenMatchFinder(NFA);

/// Result of a simulation up to the first match.
enum Scan {
    /// A match ends here, whatever follows.
    Final {
        end: usize,
    },
    /// A match begins here that text which follows may complete or change.
    Open {
        start: usize,
    },
    NoMatch,
}

/// State of the NFA, and the start of the match that it belongs to.
#[derive(Clone, Copy)]
struct Thread {
    state: StateID,
    start: usize,
}

/// Threads in the order of their priority, at most one per state.
struct Threads {
    list: Vec<Thread>,
    /// Generation in which a state was last added.
    added: Vec<usize>,
    generation: usize,
}

impl OpenMatchFinder {
    /// Compiles expressions that are valid regular expressions.
    ///
    /// # Errors
    /// An expression can match the empty text.
    pub(super) fn new(patterns: &[String]) -> Result<Self, PatternError> {
        for (index, text) in patterns.iter().enumerate() {
            let nfa = compile(std::slice::from_ref(text), index)?;
            if nfa.has_empty() {
                return Err(PatternError::matches_empty(index, text));
            }
        }
        compile(patterns, 0).map(Self)
    }

    /// Returns the start of the first match that text which follows may complete or change; the length of the text if
    /// there is none. Text before `from` is context of `\b` and `^`.
    pub(super) fn open_start(&self, text: &str, from: usize) -> usize {
        let mut at = from;
        loop {
            match self.scan(text, at) {
                Scan::Final { end } => at = end,
                Scan::Open { start } => return start,
                Scan::NoMatch => return text.len(),
            }
        }
    }

    /// Simulates the NFA from an offset on. Takes time in proportion to the text and the size of the expressions.
    fn scan(&self, text: &str, from: usize) -> Scan {
        let mut threads = Threads::new(&self.0);
        let mut next = Threads::new(&self.0);
        let mut end = None;
        for (at, &byte) in text.as_bytes().iter().enumerate().skip(from) {
            if end.is_none() && text.is_char_boundary(at) {
                threads.start(&self.0, text, at);
            }
            if let (Some(end), true) = (end, threads.list.is_empty()) {
                return Scan::Final { end };
            }
            if next.advance(&self.0, &threads, text, at, byte) {
                end = Some(at);
            }
            std::mem::swap(&mut threads, &mut next);
        }
        if end.is_none() {
            threads.start(&self.0, text, text.len());
        }
        threads.result(&self.0, text.len(), end)
    }
}

fn compile(patterns: &[String], index: usize) -> Result<NFA, PatternError> {
    let config = Config::new().which_captures(WhichCaptures::None);
    let compiled = Compiler::new().configure(config).build_many(patterns);
    compiled.map_err(|error| PatternError::new(index, error.to_string()))
}

impl Threads {
    fn new(nfa: &NFA) -> Self {
        Self {
            list: Vec::new(),
            added: vec![0; nfa.states().len()],
            generation: 1,
        }
    }

    /// Adds the start of a match, with the lowest priority.
    fn start(&mut self, nfa: &NFA, text: &str, at: usize) {
        let thread = Thread {
            state: nfa.start_anchored(),
            start: at,
        };
        self.add(nfa, text, at, thread);
    }

    /// Replaces the threads by those that follow on `threads` after a byte. Returns whether a match ends before it,
    /// which removes all threads of lower priority.
    fn advance(&mut self, nfa: &NFA, threads: &Self, text: &str, at: usize, byte: u8) -> bool {
        self.list.clear();
        self.generation += 1;
        for &Thread { state, start } in &threads.list {
            let following = match nfa.state(state) {
                State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
                State::Sparse(sparse) => sparse.matches_byte(byte),
                State::Dense(dense) => dense.matches_byte(byte),
                State::Match { .. } => return true,
                State::Look { .. }
                | State::Union { .. }
                | State::BinaryUnion { .. }
                | State::Capture { .. }
                | State::Fail => None,
            };
            if let Some(state) = following {
                self.add(nfa, text, at + 1, Thread { state, start });
            }
        }
        false
    }

    /// Adds the states that a thread reaches without a byte. An assertion at the end of the text is open.
    fn add(&mut self, nfa: &NFA, text: &str, at: usize, thread: Thread) {
        let start = thread.start;
        let mut pending = vec![thread.state];
        while let Some(state) = pending.pop() {
            if std::mem::replace(&mut self.added[state], self.generation) == self.generation {
                continue;
            }
            match nfa.state(state) {
                State::Look { look, next } if at < text.len() => {
                    if nfa.look_matcher().matches(*look, text.as_bytes(), at) {
                        pending.push(*next);
                    }
                }
                State::Union { alternates } => pending.extend(alternates.iter().rev()),
                State::BinaryUnion { alt1, alt2 } => pending.extend([alt2, alt1]),
                State::Capture { next, .. } => pending.push(*next),
                State::Fail => {}
                State::Look { .. }
                | State::ByteRange { .. }
                | State::Sparse(_)
                | State::Dense(_)
                | State::Match { .. } => self.list.push(Thread { state, start }),
            }
        }
    }

    /// Returns the result at the end of the text. Threads of lower priority than a match do not count.
    fn result(&self, nfa: &NFA, length: usize, end: Option<usize>) -> Scan {
        let is_match = |thread: &Thread| matches!(nfa.state(thread.state), State::Match { .. });
        let open = self.list.iter().take_while(|thread| !is_match(thread));
        if let Some(start) = open.map(|thread| thread.start).min() {
            return Scan::Open { start };
        }
        // A match of a remaining thread replaces an earlier, shorter one.
        let last = self.list.first().map(|_| length);
        match last.or(end) {
            Some(end) => Scan::Final { end },
            None => Scan::NoMatch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_is_open_until_its_end_is_certain() {
        for (pattern, text, open) in [
            ("abc", "xab", Some(1)),
            ("abc", "xabc", None),
            ("abc", "xabd", None),
            ("ab+", "xab", Some(1)),
            ("ab+", "xabc", None),
            (r"\b\d{4}\b", "pin 1234", Some(4)),
            (r"\b\d{4}\b", "pin 1234 ", None),
            // The shortest end is final; the longest one may follow.
            ("a[^z]+?b", "a--b--", None),
            ("a[^z]+b", "a--b--", Some(0)),
            ("a.*z|ab", "abc", Some(0)),
            ("ab|a.*z", "abc", None),
            // After a match, another one begins.
            ("a[^z]+?b", "a--b--a-", Some(6)),
            ("é+ö", "xéé", Some(1)),
        ] {
            let finder = OpenMatchFinder::new(&[pattern.to_owned()]).unwrap();
            let expected = open.unwrap_or(text.len());
            assert_eq!(finder.open_start(text, 0), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_expression_that_can_match_the_empty_text_is_refused() {
        let patterns = ["a".to_owned(), r"\b|x".to_owned()];
        let error = OpenMatchFinder::new(&patterns).unwrap_err();
        assert_eq!(error.index, 1);
    }
}
