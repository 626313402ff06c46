//! Media types: what the card says that an agent reads and writes, and who sends or wants something else.

use crate::model::{AgentCard, Error, ErrorKind, Message, Part, Result, SendMessageRequest};

/// Which modes of the card are more than a hint.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EnforcedModes {
    pub(crate) input: bool,
    pub(crate) output: bool,
}

/// What an agent reads and writes; where nothing is said, anything.
#[derive(Debug, Clone, Default)]
pub(super) struct MediaModes {
    input: Vec<String>,
    output: Vec<String>,
}

impl MediaModes {
    /// 02 §5: those of the card and those of all its skills, as far as they are enforced.
    pub(super) fn new<'a>(
        cards: impl Iterator<Item = &'a AgentCard>,
        enforced: EnforcedModes,
    ) -> Self {
        let mut modes = Self::default();
        for card in cards {
            let (input, output) = (&card.default_input_modes, &card.default_output_modes);
            let inputs = card.skills.iter().flat_map(|skill| &skill.input_modes);
            let outputs = card.skills.iter().flat_map(|skill| &skill.output_modes);
            modes.input.extend(
                input
                    .iter()
                    .chain(inputs)
                    .filter(|_| enforced.input)
                    .cloned(),
            );
            modes.output.extend(
                output
                    .iter()
                    .chain(outputs)
                    .filter(|_| enforced.output)
                    .cloned(),
            );
        }
        modes
    }

    /// Refuses what the agent does not read, and who reads nothing that it writes.
    ///
    /// # Errors
    /// The media type of a part, or every output mode, is none of the card's.
    pub(super) fn check(&self, request: &SendMessageRequest) -> Result<()> {
        self.check_input(&request.message)?;
        let accepted = request
            .configuration
            .as_ref()
            .map_or(&[][..], |inner| &inner.accepted_output_modes);
        let served = |wanted: &String| {
            self.output
                .iter()
                .any(|mode| media_types_match(wanted, mode))
        };
        if accepted.is_empty() || self.output.is_empty() || accepted.iter().any(served) {
            return Ok(());
        }
        Err(unsupported_mode(
            "configuration.acceptedOutputModes has none of the output modes",
            &self.output,
        ))
    }

    /// A part that does not say what it is is not checked.
    fn check_input(&self, message: &Message) -> Result<()> {
        let stated = |part: &Part| {
            part.media_type()
                .is_some_and(|stated| !stated.is_empty() && !self.accepts_input(stated))
        };
        match message.parts.iter().position(stated) {
            Some(at) if !self.input.is_empty() => {
                let what = format!("message.parts[{at}].mediaType is none of the input modes");
                Err(unsupported_mode(&what, &self.input))
            }
            _ => Ok(()),
        }
    }

    fn accepts_input(&self, stated: &str) -> bool {
        self.input
            .iter()
            .any(|mode| media_types_match(mode, stated))
    }
}

fn unsupported_mode(what: &str, modes: &[String]) -> Error {
    let kind = ErrorKind::ContentTypeNotSupported;
    let supported = modes.join(",");
    Error::new(kind)
        .with_message(format!("{}: {what}", kind.message()))
        .with_detail("supported", supported)
}

/// Whether two media types can be the same: parameters do not count, `*` is anything, and a name without a slash, as
/// old cards have it, is a whole family.
fn media_types_match(one: &str, other: &str) -> bool {
    let ((one, one_kind), (other, other_kind)) = (split_media_type(one), split_media_type(other));
    let alike =
        |one: &str, other: &str| one == "*" || other == "*" || one.eq_ignore_ascii_case(other);
    alike(one, other) && alike(one_kind, other_kind)
}

fn split_media_type(mode: &str) -> (&str, &str) {
    let essence = mode.split(';').next().unwrap_or_default().trim();
    essence.split_once('/').unwrap_or((essence, "*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_meet_whatever_their_case_and_parameters() {
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
