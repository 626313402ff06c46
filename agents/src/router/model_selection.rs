//! Routing by a language model (S46).
//!
//! Skill descriptions and the request are fenced as untrusted data. Only names of allowed agents count as an answer.

use attache::Turn;
use attache::model::Message;
use serde_json::{Value, json};
use tracing::Instrument;

use super::{RouteTarget, Selection};
use crate::chat_model::{
    ChatModel, Completion, CompletionEvent, ModelError, record_completion, record_error,
};
use crate::llm::{UNTRUSTED_DATA_RULE, fence, sanitize};

/// Maximum size of the request in the prompt.
const MAX_REQUEST_TEXT: usize = 8 << 10;
/// Maximum size of the skill descriptions of one agent in the prompt.
const MAX_SKILLS: usize = 2 << 10;
/// Maximum size of the model's answer. A longer one selects no agent.
const MAX_ANSWER: usize = 4 << 10;

const ROUTING_PROMPT: &str = "You route requests. Answer with the name of the one agent that should take the request, exactly as it is \
listed here, and with nothing else; answer none if none of them should.";

/// Asks the model for the agent that should handle a message.
///
/// # Errors
/// The model cannot be called, or its response is invalid.
pub(super) async fn select<'a>(
    model: &ChatModel,
    targets: &'a [RouteTarget],
    message: &Message,
    turn: &Turn,
) -> Result<Selection<'a>, ModelError> {
    let messages = prompt(targets, message);
    let span = model.span(&messages);
    let completion = read_completion(model, &messages, turn)
        .instrument(span.clone())
        .await
        .inspect_err(|_| record_error(&span, "model"))?;
    record_completion(&span, &completion);
    let usage = completion.usage;
    turn.count_tokens(usage.input_tokens, usage.output_tokens);
    let size = completion.text.len() + completion.reasoning.len();
    let target = named_target(&completion.text, targets).filter(|_| size <= MAX_ANSWER);
    Ok(Selection {
        target,
        cost: usage.into_cost(),
    })
}

/// Returns the prompt: names of the agents in the system message, all untrusted text in the user message.
fn prompt(targets: &[RouteTarget], message: &Message) -> [Value; 2] {
    let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
    let system = format!(
        "{ROUTING_PROMPT}\nThe agents: {}.\n\n{UNTRUSTED_DATA_RULE}",
        names.join(", ")
    );
    let descriptions: Vec<_> = targets
        .iter()
        .map(|target| format!("{}: {}", target.name, skills_text(target)))
        .collect();
    let user = format!(
        "The descriptions of the agents:\n{}\nThe request:\n{}",
        fence(&descriptions.join("\n")),
        fence(&sanitize(&message.text(), MAX_REQUEST_TEXT))
    );
    [
        json!({"role": "system", "content": system}),
        json!({"role": "user", "content": user}),
    ]
}

/// Reads the completion, but stops once it is larger than [`MAX_ANSWER`].
async fn read_completion(
    model: &ChatModel,
    messages: &[Value],
    turn: &Turn,
) -> Result<Completion, ModelError> {
    let mut stream = model
        .request_completion(messages, &[], turn.trace().as_ref())
        .await?;
    let mut read = 0;
    while let Some(event) = stream.next().await {
        let (CompletionEvent::Text(text) | CompletionEvent::Reasoning(text)) = event?;
        read += text.len();
        if read > MAX_ANSWER {
            break;
        }
    }
    Ok(stream.take_completion())
}

fn skills_text(target: &RouteTarget) -> String {
    let skills = target
        .skills
        .iter()
        .map(|skill| format!("{} ({})", skill.id, skill.description));
    sanitize(&skills.collect::<Vec<_>>().join("; "), MAX_SKILLS).replace('\n', " ")
}

/// Returns the target that the answer names. An answer with two names selects none.
fn named_target<'a>(answer: &str, targets: &'a [RouteTarget]) -> Option<&'a RouteTarget> {
    let is_separator = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
    let is_named = |target: &&RouteTarget| {
        answer
            .split(is_separator)
            .any(|word| word.eq_ignore_ascii_case(&target.name))
    };
    let mut named = targets.iter().filter(is_named);
    named.next().filter(|_| named.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyAgent, Echo};

    #[test]
    fn s46_only_an_allowed_agent_is_selected() {
        let target = |name: &str| RouteTarget {
            name: name.to_owned(),
            agent: AnyAgent::new(Echo),
            skills: Vec::new(),
        };
        let targets = [target("tea"), target("tea-pot"), target("words")];
        for (answer, chosen) in [
            ("tea", Some("tea")),
            (" Tea.\n", Some("tea")),
            ("The agent `tea-pot`", Some("tea-pot")),
            ("tea or words", None),
            ("none", None),
            ("greedy", None),
            ("", None),
        ] {
            assert_eq!(
                named_target(answer, &targets).map(|target| target.name.as_str()),
                chosen,
                "{answer}"
            );
        }
    }
}
