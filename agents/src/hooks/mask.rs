//! Hook that replaces matches of regular expressions, also across the chunks of an artifact.

use std::collections::HashMap;
use std::sync::Arc;

use attache::model::{
    Artifact, ArtifactId, Content, Part, Request, StreamResponse, TaskArtifactUpdateEvent,
};
use attache::{HookContext, HookError, Interceptor, TurnFilter, async_trait};

use super::PatternError;
use super::content::{rewrite_event, rewrite_message, rewrite_object};
use super::open_match::OpenMatchFinder;
use super::patterns::Patterns;

/// Replaces matches of regular expressions in messages and events.
///
/// Text of a chunked artifact is held back while it may be the start of a match that continues in the next chunk: at
/// most `max_match_bytes`. A longer start of a match at the end of a chunk is a failure of the hook.
#[derive(Debug, Clone)]
pub struct MaskHook(Arc<MaskRules>);

#[derive(Debug)]
struct MaskRules {
    patterns: Patterns,
    open_matches: OpenMatchFinder,
    replacement: String,
    max_match_bytes: usize,
}

impl MaskHook {
    /// Creates a hook.
    ///
    /// # Errors
    /// An expression is invalid.
    pub fn new(
        patterns: &[String],
        replacement: impl Into<String>,
        max_match_bytes: usize,
    ) -> Result<Self, PatternError> {
        Ok(Self(Arc::new(MaskRules {
            patterns: Patterns::new(patterns)?,
            open_matches: OpenMatchFinder::new(patterns)?,
            replacement: replacement.into(),
            max_match_bytes: max_match_bytes.max(1),
        })))
    }
}

#[async_trait]
impl Interceptor for MaskHook {
    async fn before_call(
        &self,
        _: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        let rewrite = &mut |text: &str| self.0.mask(text);
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = request {
            rewrite_message(&mut send.message, rewrite);
            rewrite_object(&mut send.metadata, rewrite);
        } else if let Request::CancelTask(cancel) = request {
            rewrite_object(&mut cancel.metadata, rewrite);
        }
        Ok(())
    }

    fn turn_filter(&self, _: &HookContext<'_>) -> Option<Box<dyn TurnFilter>> {
        Some(Box::new(MaskFilter::new(self.0.clone())))
    }
}

impl MaskRules {
    /// Masks a whole text; `None` if nothing matches.
    fn mask(&self, text: &str) -> Option<String> {
        let matches = self.patterns.find_all(text, 0);
        (!matches.is_empty()).then(|| self.replace(text, 0, text.len()))
    }

    /// Returns the text between two offsets with its matches replaced.
    fn replace(&self, text: &str, from: usize, to: usize) -> String {
        let mut out = String::new();
        let mut at = from;
        for found in self.patterns.find_all(text, from) {
            if found.start >= to {
                break;
            }
            out.push_str(&text[at..found.start]);
            out.push_str(&self.replacement);
            at = found.end;
        }
        out.push_str(&text[at.min(to)..to]);
        out
    }
}

/// Text of an artifact that is held back.
#[derive(Debug, Clone, Default)]
struct HeldText {
    /// The last character before the held text, as context of the expressions.
    context: String,
    text: String,
}

/// State of a mask for one turn.
struct MaskFilter {
    rules: Arc<MaskRules>,
    held: HashMap<ArtifactId, HeldText>,
}

impl TurnFilter for MaskFilter {
    fn filter(&mut self, event: &mut StreamResponse) -> Result<(), HookError> {
        let rules = self.rules.clone();
        rewrite_event(event, &mut |text| rules.mask(text));
        match event {
            StreamResponse::ArtifactUpdate(update) => self.mask_chunk(update),
            StreamResponse::Task(_)
            | StreamResponse::Message(_)
            | StreamResponse::StatusUpdate(_) => Ok(()),
        }
    }

    fn release(&mut self, event: &mut StreamResponse) {
        let StreamResponse::ArtifactUpdate(update) = event else {
            return;
        };
        let held = self.held.remove(&update.artifact.artifact_id);
        let text = held.map(|held| held.take_all(&self.rules));
        if let Some(text) = text.filter(|text| update.append && !text.is_empty()) {
            update.artifact.parts.insert(0, Part::text(text));
        }
    }

    fn finish(&mut self) -> Vec<StreamResponse> {
        let held = std::mem::take(&mut self.held).into_iter();
        let held = held.filter(|(_, held)| !held.text.is_empty());
        held.map(|(artifact_id, held)| {
            let text = held.take_all(&self.rules);
            StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                artifact: Artifact {
                    artifact_id,
                    parts: vec![Part::text(text)],
                    ..Artifact::default()
                },
                append: true,
                ..TaskArtifactUpdateEvent::default()
            })
        })
        .collect()
    }
}

impl MaskFilter {
    fn new(rules: Arc<MaskRules>) -> Self {
        Self {
            rules,
            held: HashMap::new(),
        }
    }

    /// Masks the text parts of an artifact event. Consecutive plain text of one artifact is one text. After a failure the
    /// held text is unchanged.
    fn mask_chunk(&mut self, update: &mut TaskArtifactUpdateEvent) -> Result<(), HookError> {
        let id = &update.artifact.artifact_id;
        let held = self.held.get(id).filter(|_| update.append).cloned();
        let mut chunk = MaskedChunk {
            rules: &self.rules,
            held: held.unwrap_or_default(),
            parts: Vec::new(),
        };
        let parts = std::mem::take(&mut update.artifact.parts);
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.into_iter().enumerate() {
            // A first event keeps its parts apart; later text is concatenated.
            let is_open = if index == last {
                !update.last_chunk
            } else {
                update.append
            };
            chunk.push(part, is_open)?;
        }
        if update.last_chunk {
            chunk.flush();
            self.held.remove(id);
        } else {
            self.held.insert(id.clone(), chunk.held);
        }
        update.artifact.parts = chunk.parts;
        Ok(())
    }
}

/// Artifact event while its parts are masked.
struct MaskedChunk<'a> {
    rules: &'a MaskRules,
    held: HeldText,
    parts: Vec<Part>,
}

impl MaskedChunk<'_> {
    /// Masks a part and adds it. `is_open`: text that follows is concatenated with it.
    fn push(&mut self, mut part: Part, is_open: bool) -> Result<(), HookError> {
        let is_plain = part.is_plain();
        match &mut part.content {
            Content::Text(text) if is_plain => {
                self.held.text.push_str(text);
                *text = if is_open {
                    self.held.take_safe(self.rules)?
                } else {
                    std::mem::take(&mut self.held).take_all(self.rules)
                };
            }
            // Readers do not concatenate it with other text.
            Content::Text(text) => {
                self.flush();
                if let Some(masked) = self.rules.mask(text) {
                    *text = masked;
                }
            }
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => self.flush(),
        }
        self.parts.push(part);
        Ok(())
    }

    /// Adds the held text as a part of its own.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.held).take_all(self.rules);
        if !text.is_empty() {
            self.parts.push(Part::text(text));
        }
    }
}

impl HeldText {
    /// Returns the masked text, and ends the text.
    fn take_all(self, rules: &MaskRules) -> String {
        let text = format!("{}{}", self.context, self.text);
        rules.replace(&text, self.context.len(), text.len())
    }

    /// Returns the masked text that no further chunk can change, and holds the rest back.
    ///
    /// # Errors
    /// The rest is longer than `max_match_bytes`.
    fn take_safe(&mut self, rules: &MaskRules) -> Result<String, HookError> {
        let from = self.context.len();
        let text = format!("{}{}", self.context, self.text);
        let end = rules.open_matches.open_start(&text, from);
        if text.len() - end > rules.max_match_bytes {
            return Err("a match across chunks is longer than max_match_bytes".into());
        }
        let masked = rules.replace(&text, from, end);
        if end > from {
            self.context = text[..end]
                .chars()
                .next_back()
                .map(String::from)
                .unwrap_or_default();
        }
        self.text = text[end..].to_owned();
        Ok(masked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str, append: bool, last_chunk: bool) -> StreamResponse {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            artifact: Artifact::text("a", text).with_id("id"),
            append,
            last_chunk,
            ..TaskArtifactUpdateEvent::default()
        })
    }

    fn text(event: &StreamResponse) -> String {
        match event {
            StreamResponse::ArtifactUpdate(update) => update.artifact.as_text(),
            _ => String::new(),
        }
    }

    fn filter() -> MaskFilter {
        let patterns = ["sk-[a-z]+".to_owned(), r"\b\d{4}\b".to_owned()];
        let hook = MaskHook::new(&patterns, "***", 8).unwrap();
        MaskFilter::new(hook.0)
    }

    fn parts(event: &StreamResponse) -> Vec<&str> {
        match event {
            StreamResponse::ArtifactUpdate(update) => {
                let parts = update.artifact.parts.iter();
                parts.filter_map(Part::as_text).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_match_across_chunks_is_masked_at_every_split() {
        let whole = "key sk-abcde, pin 1234 and 123456 end";
        let expected = "key ***, pin *** and 123456 end";
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let mut filter = filter();
                let mut seen = String::new();
                let parts = [&whole[..first], &whole[first..second], &whole[second..]];
                for (index, part) in parts.into_iter().enumerate() {
                    let mut event = chunk(part, index > 0, false);
                    filter.filter(&mut event).unwrap();
                    seen.push_str(&text(&event));
                    assert!(expected.starts_with(&seen), "{parts:?}: {seen}");
                }
                seen.extend(filter.finish().iter().map(text));
                assert_eq!(seen, expected, "{parts:?}");
            }
        }
    }

    #[test]
    fn the_last_chunk_contains_all_held_text() {
        let mut filter = filter();
        let mut first = chunk("sk-a", false, false);
        filter.filter(&mut first).unwrap();
        assert_eq!(text(&first), "");
        let mut last = chunk("bc", true, true);
        filter.filter(&mut last).unwrap();
        assert_eq!(text(&last), "***");
        assert_eq!(filter.finish(), []);
    }

    #[test]
    fn a_match_longer_than_the_limit_is_a_failure() {
        let mut filter = filter();
        let mut event = chunk("sk-abcdefghijklmnopqrstuvwxyz", false, false);
        assert!(filter.filter(&mut event).is_err());
    }

    /// The end of a key is part of its expression. Before it arrives, nothing matches.
    #[test]
    fn the_start_of_a_match_that_needs_its_end_is_not_sent() {
        let key = format!(
            "-----BEGIN KEY-----\n{}\n-----END KEY-----",
            "k".repeat(1700)
        );
        let whole = format!("here: {key}\nthat was it");
        let expression = r"-----BEGIN[\s\S]+?-----END[^\n]*-----".to_owned();
        for limit in [1024, 4096] {
            let hook = MaskHook::new(std::slice::from_ref(&expression), "***", limit).unwrap();
            let mut filter = MaskFilter::new(hook.0);
            let mut seen = String::new();
            let mut result = Ok(());
            for (index, part) in whole.as_bytes().chunks(600).enumerate() {
                let part = std::str::from_utf8(part).unwrap();
                let mut event = chunk(part, index > 0, false);
                result = filter.filter(&mut event);
                if result.is_err() {
                    break;
                }
                seen.push_str(&text(&event));
            }
            let expected = if limit == 1024 {
                "here: "
            } else {
                "here: ***\nthat was it"
            };
            assert_eq!(seen, expected);
            assert_eq!(result.is_err(), limit == 1024);
        }
    }

    #[test]
    fn after_a_failure_the_held_text_is_released_before_the_event() {
        let mut filter = filter();
        filter.filter(&mut chunk("pin sk-a", false, false)).unwrap();
        let long = chunk("bcdefghijklmnopqrstuvwxyz", true, false);
        assert!(filter.filter(&mut long.clone()).is_err());
        let mut event = long;
        filter.release(&mut event);
        assert_eq!(parts(&event), ["***", "bcdefghijklmnopqrstuvwxyz"]);
        assert_eq!(filter.finish(), []);
    }

    #[test]
    fn a_part_that_is_not_plain_keeps_its_text() {
        let mut filter = filter();
        filter.filter(&mut chunk("pin 12", false, false)).unwrap();
        let mut event = chunk("34", true, false);
        if let StreamResponse::ArtifactUpdate(update) = &mut event {
            let named = |text: &str| Part::text(text).with_filename("a.txt");
            update.artifact.parts = vec![Part::text("34"), named("key sk-a"), named("sk-")];
        }
        filter.filter(&mut event).unwrap();
        assert_eq!(parts(&event), ["", "***", "key ***", "sk-"]);
        assert_eq!(filter.finish(), []);
    }

    #[test]
    fn a_last_chunk_without_parts_contains_the_held_text() {
        let mut filter = filter();
        filter.filter(&mut chunk("sk-a", false, false)).unwrap();
        let mut last = chunk("", true, true);
        if let StreamResponse::ArtifactUpdate(update) = &mut last {
            update.artifact.parts.clear();
        }
        filter.filter(&mut last).unwrap();
        assert_eq!(parts(&last), ["***"]);
    }
}
