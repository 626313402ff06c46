//! A model that says who takes a task. What it reads is data, and whom it may name is not for anything it reads to say.

use attache::Turn;
use attache::model::Message;
use serde_json::{Value, json};
use tracing::Instrument;

use super::Choice;
use crate::lineage::Cost;
use crate::llm::{RULE, clean, fenced};
use crate::model::{Failed, Model, Piece, Said, answered, failed};

/// How much of a request, of what one agent says of itself, and of an answer is read.
const MAX_REQUEST: usize = 8 << 10;
const MAX_SKILLS: usize = 2 << 10;
const MAX_ANSWER: usize = 4 << 10;

const TASK: &str = "You pass requests on. Answer with the name of the one agent that should take the request, exactly as it is \
listed here, and with nothing else; answer none if none of them should.";

/// Whom the model names, if that is one of these; and what it cost.
///
/// # Errors
/// The model does not answer.
pub(super) async fn choose<'a>(
    model: &Model,
    choices: &'a [Choice],
    asked: &Message,
    turn: &Turn,
) -> Result<(Option<&'a Choice>, Cost), Failed> {
    let names: Vec<_> = choices.iter().map(|choice| choice.name.as_str()).collect();
    let system = format!("{TASK}\nThe agents: {}.\n\n{RULE}", names.join(", "));
    let about = choices
        .iter()
        .map(|choice| format!("{}: {}", choice.name, skills(choice)))
        .collect::<Vec<_>>();
    let user = format!(
        "What the agents say of themselves:\n{}\nThe request:\n{}",
        fenced(&about.join("\n")),
        fenced(&clean(&asked.text(), MAX_REQUEST))
    );
    let messages = [
        json!({"role": "system", "content": system}),
        json!({"role": "user", "content": user}),
    ];
    let span = model.span(&messages);
    match heard(model, &messages, turn).instrument(span.clone()).await {
        Ok(said) => {
            answered(&span, &said);
            turn.count_tokens(said.usage.input_tokens, said.usage.output_tokens);
            let named = named(&said.text, choices);
            let named = named.filter(|_| said.text.len() + said.reasoning.len() <= MAX_ANSWER);
            Ok((named, said.usage.of_one_call()))
        }
        Err(why) => {
            failed(&span, "model");
            Err(why)
        }
    }
}

/// What the model says, or enough of it to know that it says too much.
async fn heard(model: &Model, messages: &[Value], turn: &Turn) -> Result<Said, Failed> {
    let mut answer = model.ask(messages, &[], turn.trace().as_ref()).await?;
    let mut read = 0;
    while let Some(piece) = answer.next().await {
        let (Piece::Text(text) | Piece::Reasoning(text)) = piece?;
        read += text.len();
        if read > MAX_ANSWER {
            break;
        }
    }
    Ok(answer.said())
}

fn skills(choice: &Choice) -> String {
    let skills = choice
        .skills
        .iter()
        .map(|skill| format!("{} ({})", skill.id, skill.description));
    clean(&skills.collect::<Vec<_>>().join("; "), MAX_SKILLS).replace('\n', " ")
}

/// The one that an answer names: as a whole, or as the only one in it.
fn named<'a>(answer: &str, choices: &'a [Choice]) -> Option<&'a Choice> {
    let is_apart = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
    let says = |choice: &&Choice| {
        answer
            .split(is_apart)
            .any(|word| word.eq_ignore_ascii_case(&choice.name))
    };
    let mut said = choices.iter().filter(says);
    said.next().filter(|_| said.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Echo, Shared};

    #[test]
    fn s46_only_one_of_those_that_may_be_chosen_is() {
        let choice = |name: &str| Choice {
            name: name.to_owned(),
            agent: Shared::new(Echo),
            skills: Vec::new(),
        };
        let choices = [choice("tea"), choice("tea-pot"), choice("words")];
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
                named(answer, &choices).map(|choice| choice.name.as_str()),
                chosen,
                "{answer}"
            );
        }
    }
}
