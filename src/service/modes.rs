//! Media type checks: input and output modes of the card against the parts and `acceptedOutputModes` of a request.

use crate::model::{AgentCard, Error, ErrorKind, Message, Part, Result, SendMessageRequest};

/// Modes of the card that are enforced. By default they are only a hint.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EnforcedModes {
    pub(crate) input: bool,
    pub(crate) output: bool,
}

/// Enforced media types of an agent. An empty list accepts everything.
#[derive(Debug, Clone, Default)]
pub(super) struct MediaModes {
    input: Vec<String>,
    output: Vec<String>,
}

impl MediaModes {
    /// Collects the modes of the cards and of all their skills (02 §5).
    pub(super) fn new<'a>(
        cards: impl Iterator<Item = &'a AgentCard>,
        enforced: EnforcedModes,
    ) -> Self {
        let mut modes = Self::default();
        for card in cards {
            if enforced.input {
                let of_skills = card.skills.iter().flat_map(|skill| &skill.input_modes);
                let input = card.default_input_modes.iter().chain(of_skills);
                add_modes(&mut modes.input, input);
            }
            if enforced.output {
                let of_skills = card.skills.iter().flat_map(|skill| &skill.output_modes);
                let output = card.default_output_modes.iter().chain(of_skills);
                add_modes(&mut modes.output, output);
            }
        }
        modes
    }

    /// Checks the parts of a message against the input modes, and its accepted output modes against the output modes.
    ///
    /// # Errors
    /// Content type not supported: a part has an unsupported media type, or no accepted output mode is supported.
    pub(super) fn check(&self, request: &SendMessageRequest) -> Result<()> {
        self.check_input(&request.message)?;
        let accepted = request
            .configuration
            .as_ref()
            .map_or(&[][..], |inner| &inner.accepted_output_modes);
        let is_supported = |wanted: &String| {
            self.output
                .iter()
                .any(|mode| media_types_match(wanted, mode))
        };
        if accepted.is_empty() || self.output.is_empty() || accepted.iter().any(is_supported) {
            return Ok(());
        }
        Err(unsupported_mode(
            "configuration.acceptedOutputModes has no supported output mode",
            &self.output,
        ))
    }

    /// Checks the media types of the parts. A part without one is accepted.
    fn check_input(&self, message: &Message) -> Result<()> {
        let is_unsupported = |part: &Part| {
            part.media_type()
                .is_some_and(|media_type| !media_type.is_empty() && !self.accepts_input(media_type))
        };
        match message.parts.iter().position(is_unsupported) {
            Some(index) if !self.input.is_empty() => {
                let what =
                    format!("message.parts[{index}].mediaType is not a supported input mode");
                Err(unsupported_mode(&what, &self.input))
            }
            _ => Ok(()),
        }
    }

    fn accepts_input(&self, media_type: &str) -> bool {
        self.input
            .iter()
            .any(|mode| media_types_match(mode, media_type))
    }
}

/// Adds the modes that are not in the list. A card and its skills repeat most of them.
fn add_modes<'a>(modes: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for mode in more {
        if !modes.contains(mode) {
            modes.push(mode.clone());
        }
    }
}

fn unsupported_mode(what: &str, modes: &[String]) -> Error {
    let kind = ErrorKind::ContentTypeNotSupported;
    let supported = modes.join(",");
    Error::new(kind)
        .with_message(format!("{}: {what}", kind.message()))
        .with_detail("supported", supported)
}

/// Whether two media types match. Parameters and case are ignored, `*` matches everything, and a type without a slash (old
/// cards) matches all its subtypes.
fn media_types_match(one: &str, other: &str) -> bool {
    let (one_type, one_subtype) = split_media_type(one);
    let (other_type, other_subtype) = split_media_type(other);
    let matches =
        |one: &str, other: &str| one == "*" || other == "*" || one.eq_ignore_ascii_case(other);
    matches(one_type, other_type) && matches(one_subtype, other_subtype)
}

fn split_media_type(mode: &str) -> (&str, &str) {
    let essence = mode.split(';').next().unwrap_or_default().trim();
    essence.split_once('/').unwrap_or((essence, "*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_match_regardless_of_case_and_parameters() {
        for (one, other, expected) in [
            ("text/plain", "text/plain", true),
            ("text/plain", "Text/Plain; charset=utf-8", true),
            ("text/plain", "text/markdown", false),
            ("image/*", "image/png", true),
            ("image/*", "video/mp4", false),
            ("*/*", "application/json", true),
            ("*", "application/json", true),
            ("text", "text/plain", true),
            ("text", "image/png", false),
            ("", "image/png", false),
        ] {
            assert_eq!(
                (media_types_match(one, other), media_types_match(other, one)),
                (expected, expected),
                "{one} {other}"
            );
        }
    }
}
