//! `attache chat` on a terminal, in a pseudo-terminal.

use serde_json::json;

use super::run::{DEMO, VerbRun, verb};
use super::scripted_agent::{self, ScriptedAgent};
use crate::pty::Pty;

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const UP: &str = "\u{1b}[A";
const LEFT: &str = "\u{1b}[D";
const PROMPT: &str = "\n› ";

struct Chat {
    pty: Pty,
    /// Keeps the working directory.
    _run: VerbRun,
}

fn chat(url: &str, args: &[&str]) -> Chat {
    chat_in(verb(&[&["chat", "-a", url], args].concat()))
}

fn chat_in(run: VerbRun) -> Chat {
    let mut pty = Pty::start(&run.command, 80);
    pty.wait_for("Ctrl-D ends the chat");
    pty.wait_for(PROMPT);
    Chat { pty, _run: run }
}

impl Chat {
    /// Types a line, and returns what is printed before the next prompt.
    fn say(&mut self, line: &str) -> String {
        self.say_until(line, PROMPT)
    }

    fn say_until(&mut self, line: &str, prompt: &str) -> String {
        self.pty.press(&format!("{line}\r"));
        // The editor echoes the line.
        self.pty.wait_for("\n");
        self.pty.wait_for(prompt)
    }

    fn end(mut self) {
        self.pty.press(CTRL_D);
        let (status, rest) = self.pty.finish();
        assert!(status.success(), "{rest}");
    }
}

#[test]
fn a_chat_keeps_its_context_and_shows_ids_each_turn() {
    let mut chat = chat(&DEMO, &[]);
    let first = chat.say("hello");
    let second = chat.say("again");
    let id = |text: &str, label: &str| {
        let value = text.split(label).nth(1).unwrap_or_else(|| panic!("{text}"));
        value.split_whitespace().next().unwrap().to_owned()
    };
    assert!(first.contains("hello\n\n✓ completed"), "{first:?}");
    assert_eq!(id(&first, "  context"), id(&second, "  context"));
    assert_ne!(id(&first, "  task"), id(&second, "  task"));
    let shown = chat.say("/task");
    assert!(shown.contains(&id(&second, "  task")), "{shown:?}");
    chat.end();
}

#[test]
fn a_chat_resumes_a_context() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let mut chat = chat(&peer.url, &["--context-id", "c-1"]);
    chat.say("hi");
    chat.end();
    let sent = peer.posted_bodies();
    assert_eq!(sent[0]["params"]["message"]["contextId"], "c-1");
}

#[test]
fn keys_edit_the_line_and_the_history() {
    let mut chat = chat(&DEMO, &[]);
    let first = chat.say(&format!("helo{LEFT}l"));
    assert!(first.contains("hello\n\n✓"), "{first:?}");
    let repeated = chat.say(UP);
    assert!(repeated.contains("hello\n\n✓"), "{repeated:?}");
    chat.end();
}

#[test]
fn pasted_lines_and_continued_lines_are_one_message() {
    let mut chat = chat(&DEMO, &[]);
    chat.pty.press("\u{1b}[200~one\ntwo\u{1b}[201~\r");
    chat.pty.wait_for("one\ntwo\n\n✓ completed");
    chat.pty.wait_for(PROMPT);
    chat.pty.press("three\\\r");
    chat.pty.press("four\r");
    chat.pty.wait_for("three\nfour\n\n✓ completed");
    chat.pty.wait_for(PROMPT);
    chat.end();
}

#[test]
fn ctrl_c_cancels_the_turn_and_keeps_the_session() {
    let mut chat = chat(&DEMO, &[]);
    chat.pty.press("slow 60\r");
    chat.pty.wait_for("1 of 60 seconds");
    chat.pty.press(CTRL_C);
    chat.pty.wait_for("■ canceled");
    chat.pty.wait_for(PROMPT);
    let next = chat.say("hello");
    assert!(next.contains("✓ completed"), "{next:?}");
    chat.pty.press(&format!("not sent{CTRL_C}"));
    chat.pty.wait_for("/quit ends the chat");
    chat.pty.wait_for(PROMPT);
    let next = chat.say("still here");
    assert!(next.contains("still here\n\n✓ completed"), "{next:?}");
    chat.end();
}

#[test]
fn a_question_is_answered_inline() {
    let mut chat = chat(&DEMO, &[]);
    let asked = chat.say_until("ask", "\nanswer › ");
    assert!(
        asked.contains("What is your name?\n\n? input required"),
        "{asked:?}"
    );
    let answered = chat.say("Ada");
    assert!(
        answered.contains("Hello, Ada!\n\n✓ completed"),
        "{answered:?}"
    );
    chat.say_until("ask", "\nanswer › ");
    let canceled = chat.say("/cancel");
    assert!(canceled.contains("■ canceled"), "{canceled:?}");
    chat.end();
}

#[test]
fn an_approval_takes_one_key() {
    let asks = json!({"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": {
        "messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "May `pay` be called?"}],
        "metadata": {"urn:attache:ext:input-request:v1": {"requestId": "r", "wants": "approval", "tool": "pay"}}}}});
    let answer = move |request: &scripted_agent::RecordedRequest, _| {
        let is_answer = request.json()["params"]["message"]["taskId"] == "t-1";
        let task = if is_answer {
            scripted_agent::task("TASK_STATE_COMPLETED")
        } else {
            asks.clone()
        };
        scripted_agent::result(&json!({"task": task}))
    };
    let peer = ScriptedAgent::new(scripted_agent::plain, answer);
    let mut chat = chat(&peer.url, &[]);
    let asked = chat.say_until("pay Ann", "\napprove? [y/n] › ");
    assert!(
        asked.contains("May `pay` be called?") || asked.contains("May pay be called?"),
        "{asked:?}"
    );
    chat.say("y");
    chat.end();
    let sent = peer.posted_bodies();
    let answer = sent
        .iter()
        .find(|body| body["params"]["message"]["taskId"] == "t-1")
        .unwrap();
    assert_eq!(
        answer["params"]["message"]["parts"],
        json!([{"text": "yes"}])
    );
}

#[test]
fn commands_attach_files_change_the_agent_and_survive_errors() {
    let run = verb(&["chat", "-a", &DEMO]).file("note.txt", "content");
    let mut chat = chat_in(run);
    let attached = chat.say("/file note.txt");
    assert!(attached.contains("attached note.txt"), "{attached:?}");
    let received = chat.say("file");
    assert!(received.contains("note.txt"), "{received:?}");
    let missing = chat.say("/file nothing.txt");
    assert!(missing.contains("nothing.txt"), "{missing:?}");
    assert!(chat.say("/help").contains("/cancel [id]"));
    assert!(chat.say("/nonsense").contains("/help lists them"));
    let refused = chat.say("/agent 127.0.0.1:1");
    assert!(refused.contains("A2ACLI_ERR_UNREACHABLE"), "{refused:?}");
    assert!(chat.say("hello").contains("✓ completed"));
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    assert!(
        chat.say(&format!("/agent {}", peer.url))
            .contains("Peer · ")
    );
    chat.say("hi");
    let sent = peer.posted_bodies();
    assert!(
        sent[0]["params"]["message"]["contextId"].is_null(),
        "{sent:?}"
    );
    assert!(chat.say("/debug").contains("debug: on"));
    assert!(chat.say("hi").contains("SendMessage"));
    chat.pty.press("/quit\r");
    let (status, rest) = chat.pty.finish();
    assert!(status.success(), "{rest}");
}

#[test]
fn text_follows_the_width_of_a_resized_terminal() {
    let mut chat = chat(&DEMO, &[]);
    chat.pty.resize(60);
    // The prompt after this turn is drawn with the new width.
    chat.say("hello");
    let narrow = chat.say("stream 20");
    let answer = narrow.split("\n\n✓").next().unwrap();
    // Frames of the status line, which are erased, precede the first line.
    let lines = answer.lines().filter(|line| !line.contains('·'));
    let widest = lines.map(|line| line.chars().count()).max().unwrap();
    assert!((50..=60).contains(&widest), "{narrow:?}");
    chat.end();
}
