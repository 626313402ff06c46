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
        .split("```toml as=data file=script.toml\n")
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

const BRANCHES: &str = r#"
    [[rule]]
    word = "book"
    steps = [
        { ask = "book {args}?" },
        { branch = [
            { word = "yes", steps = [
                { ask = "window or aisle?" },
                { branch = [
                    { contains = "window", steps = [{ write = { name = "seat", text = "window" } }] },
                    { steps = [{ write = { name = "seat", text = "aisle" } }] },
                ] },
                { say = "booked" },
            ] },
            { word = "no", steps = [{ reject = "as you like" }] },
        ] },
        { complete = "done: {text}" },
    ]
"#;

#[tokio::test]
async fn a_script_branches_on_the_answer() {
    let agent = start(Script::parse(BRANCHES).unwrap()).await;
    let ask = agent.send_text("book a flight").await;
    assert_eq!(status_text(&ask), "book a flight?");
    let task = agent.answer(&ask, json!([{"text": "No thanks"}])).await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("REJECTED", "as you like")
    );
    for (answer, seat) in [("the WINDOW please", "window"), ("any", "aisle")] {
        let ask = agent.send_text("book a flight").await;
        let second = agent.answer(&ask, json!([{"text": "yes"}])).await;
        assert_eq!(status_text(&second), "window or aisle?");
        let task = agent.answer(&second, json!([{"text": answer}])).await;
        assert_eq!(artifact(&task, "seat"), &json!([{"text": seat}]));
        assert_eq!(status_text(&task), format!("done: {answer}"));
    }
    // No branch matches: the script continues behind them.
    let ask = agent.send_text("book a flight").await;
    let task = agent.answer(&ask, json!([{"text": "perhaps"}])).await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("COMPLETED", "done: perhaps")
    );
}

#[tokio::test]
async fn a_rule_can_match_the_beginning_of_the_message_id() {
    let script = r#"
        [[rule]]
        message_id_prefix = "test-"
        steps = [{ complete = "test" }]
        [[rule]]
        message_id_prefix = "m"
        steps = [{ complete = "message" }]
    "#;
    let agent = start(Script::parse(script).unwrap()).await;
    assert_eq!(status_text(&agent.send_text("hi").await), "message");
}

#[test]
fn branches_and_texts_that_are_wrong_are_explained() {
    for (steps, expected) in [
        (
            "{ branch = [] }",
            "rule 1 (``), step 1: a branch step must have at least one branch",
        ),
        (
            "{ say = \"a\" }, { branch = [{ steps = [{ wait = { seconds = -1 } }] }] }",
            "rule 1 (``), step 2: branch 1, step 1: seconds must lie between",
        ),
        (
            "{ branch = [{ words = \"a\", steps = [] }] }",
            "unknown field `words`",
        ),
        ("{ branch = [{ word = \"a\" }] }", "missing field `steps`"),
        (
            "{ write = { name = \"a\", text = \"a { b\" } }",
            "unbalanced brace in `a { b`",
        ),
        (
            "{ write = { name = \"a\", text = [\"a\", \"{what}\"] } }",
            "{what} is not known",
        ),
        (
            "{ write = { name = \"a\", text = 1 } }",
            "a text or a list of texts",
        ),
    ] {
        let error = refused(&format!("[[rule]]\nsteps = [{steps}]"));
        assert!(error.contains(expected), "{steps}: {error}");
        assert!(!error.contains("untagged"), "{error}");
    }
    let error = refused("[[rule]]\nmessage_id_prefix = 1\nreply = \"a\"");
    assert!(error.contains("message_id_prefix"), "{error}");
}
