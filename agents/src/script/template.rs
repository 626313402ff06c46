//! Text templates with placeholders such as `{args}`. Inserted text is never parsed as a template.

use serde::Deserialize;

use super::template_context::TemplateContext;

/// Template, parsed together with the script.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Template(Vec<TemplatePiece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Placeholder(Placeholder),
}

/// Placeholder of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Placeholder {
    /// Text of the message.
    Text,
    /// Text after the words of the rule.
    Args,
    /// The n-th word after those of the rule, or a default.
    Word(usize, String),
    /// One line for each file of the message.
    Files,
    /// One line for each data part of the message.
    Data,
    /// Result of a client's tool, or else the text.
    Result,
    /// Help text of the script.
    Help,
    /// Number of the current chunk, or of the seconds that have passed.
    Count,
    /// Total number of chunks or seconds.
    Total,
}

const PLACEHOLDER_NAMES: &str = "text, args, word <n>, files, data, result, help, count, total";

impl Template {
    /// Returns the text with all placeholders replaced.
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
                placeholder.ok_or_else(|| format!("unbalanced brace in `{text}`"))?;
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
                "{{{name}}} is not known; known are: {PLACEHOLDER_NAMES}; write {{{{ for a brace"
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
                let (at, default) = word.split_once('|').unwrap_or((word, ""));
                let at = at.parse().ok().filter(|&at| at > 0).ok_or_else(unknown)?;
                Self::Word(at, default.to_owned())
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
    fn placeholders_are_replaced() {
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
    fn inserted_text_is_not_parsed_as_a_template() {
        assert_eq!(
            fill("{args}{args}", "order {help} {{"),
            "{help} {{{help} {{"
        );
    }

    #[test]
    fn unknown_placeholders_are_refused_by_name() {
        for (template, reason) in [
            ("{nonsense}", "{nonsense} is not known"),
            ("{word 0}", "{word 0} is not known"),
            ("{word}", "{word} is not known"),
            ("a { b", "unbalanced brace in `a { b`"),
            ("a } b", "unbalanced brace"),
        ] {
            let error = Template::try_from(template.to_owned()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
