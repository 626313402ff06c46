//! A model that says who takes a task. What it reads is data, and whom it may name is not for anything it reads to say.

use attache::Turn;
use attache::model::Message;
use serde_json::{Value, json};
use tracing::Instrument;

use super::RouteTarget;
use crate::chat_model::{
    ChatModel, Completion, CompletionEvent, ModelError, record_completion, record_error,
};
use crate::lineage::Cost;
use crate::llm::{UNTRUSTED_DATA_RULE, fence, sanitize};

/// How much of a request, of what one agent says of itself, and of an answer is read.
const MAX_REQUEST_TEXT: usize = 8 << 10;
const MAX_SKILLS: usize = 2 << 10;
const MAX_ANSWER: usize = 4 << 10;

const ROUTING_PROMPT: &str = "You pass requests on. Answer with the name of the one agent that should take the request, exactly as it is \
listed here, and with nothing else; answer none if none of them should.";

/// Whom the model names, if that is one of these; and what it cost.
///
/// # Errors
/// The model does not answer.
pub(super) async fn select<'a>(
    model: &ChatModel,
    targets: &'a [RouteTarget],
    asked: &Message,
    turn: &Turn,
) -> Result<(Option<&'a RouteTarget>, Cost), ModelError> {
    let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
    let system = format!(
        "{ROUTING_PROMPT}\nThe agents: {}.\n\n{UNTRUSTED_DATA_RULE}",
        names.join(", ")
    );
    let about = targets
        .iter()
        .map(|target| format!("{}: {}", target.name, skills_text(target)))
        .collect::<Vec<_>>();
    let user = format!(
        "What the agents say of themselves:\n{}\nThe request:\n{}",
        fence(&about.join("\n")),
        fence(&sanitize(&asked.text(), MAX_REQUEST_TEXT))
    );
    let messages = [
        json!({"role": "system", "content": system}),
        json!({"role": "user", "content": user}),
    ];
    let span = model.span(&messages);
    match read_completion(model, &messages, turn)
        .instrument(span.clone())
        .await
    {
        Ok(completion) => {
            record_completion(&span, &completion);
            turn.count_tokens(
                completion.usage.input_tokens,
                completion.usage.output_tokens,
            );
            let named = named_target(&completion.text, targets);
            let named =
                named.filter(|_| completion.text.len() + completion.reasoning.len() <= MAX_ANSWER);
            Ok((named, completion.usage.into_cost()))
        }
        Err(why) => {
            record_error(&span, "model");
            Err(why)
        }
    }
}

/// What the model says, or enough of it to know that it says too much.
async fn read_completion(
    model: &ChatModel,
    messages: &[Value],
    turn: &Turn,
) -> Result<Completion, ModelError> {
    let mut answer = model
        .request_completion(messages, &[], turn.trace().as_ref())
        .await?;
    let mut read = 0;
    while let Some(piece) = answer.next().await {
        let (CompletionEvent::Text(text) | CompletionEvent::Reasoning(text)) = piece?;
        read += text.len();
        if read > MAX_ANSWER {
            break;
        }
    }
    Ok(answer.take_completion())
}

fn skills_text(target: &RouteTarget) -> String {
    let skills = target
        .skills
        .iter()
        .map(|skill| format!("{} ({})", skill.id, skill.description));
    sanitize(&skills.collect::<Vec<_>>().join("; "), MAX_SKILLS).replace('\n', " ")
}

/// The one that an answer names: as a whole, or as the only one in it.
fn named_target<'a>(answer: &str, targets: &'a [RouteTarget]) -> Option<&'a RouteTarget> {
    let is_apart = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
    let says = |target: &&RouteTarget| {
        answer
            .split(is_apart)
            .any(|word| word.eq_ignore_ascii_case(&target.name))
    };
    let mut completion = targets.iter().filter(says);
    completion.next().filter(|_| completion.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyAgent, Echo};

    #[test]
    fn s46_only_one_of_those_that_may_be_chosen_is() {
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
