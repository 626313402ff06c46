//! Texts with gaps: `{args}` is filled with what the caller said, once, and never read again.

use serde::Deserialize;

use super::template_context::TemplateContext;

/// A text with gaps, checked when the script is read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Template(Vec<TemplatePiece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Placeholder(Placeholder),
}

/// What a gap is filled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Placeholder {
    /// The text of the message.
    Text,
    /// The text without the words that chose the rule.
    Args,
    /// The n-th word after them, or else this.
    Word(usize, String),
    /// A line for each file that came in.
    Files,
    /// A line for each piece of data that came in.
    Data,
    /// What a tool of the client answered, or else the text.
    Result,
    /// What the script can do.
    Help,
    /// Which chunk this is, or how many seconds have passed.
    Count,
    /// How many chunks or seconds there are in all.
    Total,
}

const PLACEHOLDER_NAMES: &str = "text, args, word <n>, files, data, result, help, count, total";

impl Template {
    /// The text, with its gaps filled.
    pub(super) fn fill(&self, context: &TemplateContext<'_>) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(literal) => text.push_str(literal),
                TemplatePiece::Placeholder(placeholder) => {
                    text.push_str(&context.resolve(placeholder))
                }
            }
        }
        text
    }
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            pieces.push(TemplatePiece::Text(before.to_owned()));
            if let Some(after) = brace
                .strip_prefix("{{")
                .or_else(|| brace.strip_prefix("}}"))
            {
                pieces.push(TemplatePiece::Text(brace[..1].to_owned()));
                rest = after;
                continue;
            }
            let placeholder = brace
                .strip_prefix('{')
                .and_then(|placeholder| placeholder.split_once('}'));
            let (name, after) =
                placeholder.ok_or_else(|| format!("a brace without its other half in `{text}`"))?;
            pieces.push(TemplatePiece::Placeholder(Placeholder::parse(name)?));
            rest = after;
        }
        pieces.push(TemplatePiece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != TemplatePiece::Text(String::new()));
        Ok(Self(pieces))
    }
}

impl Placeholder {
    fn parse(name: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "{{{name}}} is not known; known are: {PLACEHOLDER_NAMES}; for a brace write {{{{"
            )
        };
        Ok(match name {
            "text" => Self::Text,
            "args" => Self::Args,
            "files" => Self::Files,
            "data" => Self::Data,
            "result" => Self::Result,
            "help" => Self::Help,
            "count" => Self::Count,
            "total" => Self::Total,
            _ => {
                let word = name.strip_prefix("word ").ok_or_else(unknown)?;
                let (at, otherwise) = word.split_once('|').unwrap_or((word, ""));
                let at = at.parse().ok().filter(|&at| at > 0).ok_or_else(unknown)?;
                Self::Word(at, otherwise.to_owned())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use attache::model::Message;

    use super::*;

    fn fill(template: &str, text: &str) -> String {
        let message = Message::user(text);
        Template::try_from(template.to_owned())
            .unwrap()
            .fill(&TemplateContext::new(&message, 1, "help!"))
    }

    #[test]
    fn gaps_are_filled_with_what_was_said() {
        assert_eq!(
            fill("<{text}> <{args}>", "order  two  teas"),
            "<order  two  teas> <two  teas>"
        );
        assert_eq!(
            fill("{word 1}/{word 2}/{word 3|none}/{word 4}", "order two teas"),
            "two/teas/none/"
        );
        assert_eq!(fill("{{{help}}} {result}", "order"), "{help!} order");
        assert_eq!(fill("", "order"), "");
    }

    #[test]
    fn what_a_caller_says_is_no_template() {
        assert_eq!(
            fill("{args}{args}", "order {help} {{"),
            "{help} {{{help} {{"
        );
    }

    #[test]
    fn a_gap_that_nobody_knows_is_refused_by_name() {
        for (template, complaint) in [
            ("{nonsense}", "{nonsense} is not known"),
            ("{word 0}", "{word 0} is not known"),
            ("{word}", "{word} is not known"),
            ("a { b", "other half in `a { b`"),
            ("a } b", "other half"),
        ] {
            let error = Template::try_from(template.to_owned()).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
