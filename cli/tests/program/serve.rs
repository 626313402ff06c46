//! `attache serve`.

use serde_json::json;

use crate::harness::{call, complaint, say, send, serve};

#[test]
fn an_echo_says_it_back() {
    let server = serve(&["serve", "--echo", "--store", "memory"]);
    let url = server.line("Listening on ");
    assert_eq!(say(&url, "hello")["artifacts"][0]["parts"], json!([{"text": "hello"}]));
    server.line("Card: ");
    assert_eq!(server.line("Tasks: "), "in memory, until the program ends");
}

#[cfg(unix)]
#[test]
fn a_command_is_an_agent() {
    let server = serve(&["serve", "--exec", "/bin/sh -c 'tr a-z A-Z; echo \"$1\"' x 'a b'"]);
    let url = server.line("Listening on ");
    let task = say(&url, "hello");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(task["artifacts"][0]["parts"], json!([{"text": "HELLOa b\n"}]));
    let card = send(&server.line("Card: "), "GET", &["Accept: application/json"], "");
    assert_eq!(card["name"], "sh");
    assert!(!card.to_string().contains("a-z"), "the command line is nobody's business: {card}");
    assert!(server.line("Tasks: ").ends_with("tasks.db"));
    let task = call(&url, "GetTask", &json!({"id": task["id"]}))["result"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

#[cfg(unix)]
#[test]
fn exactly_one_agent_is_served() {
    for args in [&["serve"][..], &["serve", "--echo", "--exec", "cat"], &["serve", "--store", "memory"]] {
        let (code, said) = complaint(args);
        assert_eq!(code, Some(2));
        assert!(said.contains("--echo") && said.contains("--exec"), "{said}");
    }
    let (code, said) = complaint(&["serve", "--exec", "cat 'x"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("a quote is not closed"), "{said}");
}

#[test]
fn an_address_that_others_can_reach_is_refused_unless_it_is_allowed() {
    for verb in [&["demo"][..], &["serve", "--echo"]] {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let (code, said) = complaint(&[verb, &["--store", "memory", "--listen", address]].concat());
            assert_eq!(code, Some(1));
            assert!(said.contains("127.0.0.1") && said.contains("--allow-anonymous"), "{said}");
        }
    }
    let server = serve(&["demo", "--store", "memory", "--allow-anonymous", "--listen", "0.0.0.0:0"]);
    assert!(server.line("Listening on ").starts_with("http://127.0.0.1:"));
}
