//! Scripts: features of rules, and refused files.

use attache_agents::Script;
use serde_json::json;

use crate::harness::{artifact, start, state, status_text};

fn refused(rules: &str) -> String {
    Script::parse(rules).unwrap_err().to_string()
}

#[tokio::test]
async fn a_script_can_ask_several_questions() {
    let script = r#"
        [[rule]]
        word = "order"
        steps = [
            { ask = "how many {args}?" },
            { say = "{text} of them" },
            { ask = "when?" },
            { write = { name = "order", text = ["at ", "{text}"] } },
            { complete = "thank you" },
        ]
    "#;
    let agent = start(Script::parse(script).unwrap()).await;
    let first = agent.send_text("order  green tea").await;
    assert_eq!(status_text(&first), "how many green tea?");
    let second = agent.answer(&first, json!([{"text": "two"}])).await;
    assert_eq!(
        (state(&second), status_text(&second)),
        ("INPUT_REQUIRED", "when?")
    );
    let task = agent.answer(&second, json!([{"text": "noon"}])).await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("COMPLETED", "thank you")
    );
    assert_eq!(artifact(&task, "order"), &json!([{"text": "at noon"}]));
    assert_eq!(state(&agent.send_text("borders").await), "REJECTED");
}

#[tokio::test]
async fn the_first_matching_rule_runs() {
    let script = r#"
        [[rule]]
        word = "order tea"
        steps = [{ complete = "tea and {args}" }]
        [[rule]]
        word = "order"
        steps = [{ complete = "{word 1|nothing}" }]
        [[rule]]
        steps = [{ file = { name = "a", media_type = "image/png", base64 = "AAEC" } }]
    "#;
    let agent = start(Script::parse(script).unwrap()).await;
    assert_eq!(
        status_text(&agent.send_text("order tea milk").await),
        "tea and milk"
    );
    assert_eq!(status_text(&agent.send_text("ORDER teas").await), "teas");
    assert_eq!(status_text(&agent.send_text(" order").await), "nothing");
    let file = json!([{"raw": "AAEC", "filename": "a", "mediaType": "image/png"}]);
    assert_eq!(artifact(&agent.send_text("else").await, "a"), &file);
}

#[tokio::test]
async fn a_rule_can_match_a_part_of_the_text_and_the_message_id() {
    let script = r#"
        [[rule]]
        message_id = "m"
        contains = "Milk"
        steps = [{ complete = "milk" }]
        [[rule]]
        message_id = "other"
        steps = [{ complete = "other" }]
        [[rule]]
        steps = [{ complete = "else" }]
    "#;
    let agent = start(Script::parse(script).unwrap()).await;
    assert_eq!(status_text(&agent.send_text("tea with milk").await), "milk");
    assert_eq!(status_text(&agent.send_text("tea").await), "else");
    let message = json!({"messageId": "other", "role": "ROLE_USER", "parts": [{"text": "milk"}]});
    let answer = agent.call("SendMessage", json!({"message": message})).await;
    assert_eq!(status_text(&answer["task"]), "other");
}

#[test]
fn script_errors_name_their_position() {
    let step = |step: &str| refused(&format!("[[rule]]\nword = \"w\"\nsteps = [{{ {step} }}]"));
    for (complaint, part) in [
        (
            refused("[[rule]]\nword = \"w\""),
            "rule 1 (`w`) must have either reply or steps",
        ),
        (
            refused("[[rule]]\nreply = \"a\"\nsteps = [{ say = \"b\" }]"),
            "either reply or steps",
        ),
        (refused("[[rules]]"), "unknown field `rules`"),
        (refused("[[rule]]\nwhen = 1"), "unknown field `when`"),
        (step("shout = \"a\""), "unknown variant `shout`"),
        (step("say = \"{unknown}\""), "{unknown} is not known"),
        (
            step("wait = { seconds = 1e9 }"),
            "step 1: seconds must lie between 0 and 3600",
        ),
        (step("wait = { seconds = nan }"), "seconds must lie"),
        (step("wait = { seconds = 5, every = 0 }"), "every must lie"),
        (
            step("wait = { seconds = { word = 1, default = 1, max = 1e9 } }"),
            "seconds must lie",
        ),
        (
            step("stream = { name = \"s\", text = \"\", chunks = 1e6, bytes = 1 }"),
            "chunks must lie",
        ),
        (
            step("stream = { name = \"s\", text = \"\", chunks = 1e4, bytes = 1e4 }"),
            "chunks times bytes",
        ),
        (
            step("file = { name = \"f\", media_type = \"a/b\" }"),
            "one of text, base64 and url",
        ),
    ] {
        assert!(complaint.contains(part), "{part}: {complaint}");
    }
}

#[test]
fn the_script_in_the_mock_documentation_is_valid() {
    let page = include_str!("../../../docs/mock.md");
    let script = page
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let script = Script::parse(script).unwrap();
    assert_eq!(script.faults().len(), 2);
    assert_eq!(
        (script.faults()[0].cut_after, script.faults()[0].times),
        (Some(1024), Some(1))
    );
}
