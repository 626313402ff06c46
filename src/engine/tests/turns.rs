//! Context of a turn, and the recording of its events.

use super::harness::*;
use super::*;
use crate::agent::Question;
use crate::model::{Artifact, INPUT_REQUEST, Json, Part};

fn engine_of(agent: impl Agent) -> Engine {
    engine_on(Arc::new(Memory::new()), agent, Settings::default())
}

#[tokio::test]
async fn a_prompt_has_a_line_for_every_part() {
    let agent = |turn: Turn| async move { Ok(Outcome::CompletedWith(Message::agent(turn.text()))) };
    let message = Message::user("look:")
        .part(Part::data(Json::parse(r#"{"a": 1.50}"#).unwrap()))
        .part(Part::file([1, 2, 3], "image/png").with_filename("cat.png"))
        .part(Part::url("https://example.org/dog"));
    let engine = engine_of(agent);
    let accepted = within_deadline(engine.start(call(), InitialMessage::from(message)))
        .await
        .unwrap();
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(
        task.status.message.unwrap().text(),
        "look:\n{\"a\": 1.50}\n[file cat.png, image/png, 3 bytes]\n[file unnamed, unknown type, at https://example.org/dog]"
    );
}

#[tokio::test]
async fn a_writer_sets_the_flags_of_its_chunks() {
    let engine = engine_of(ScriptedAgent::default());
    let (head, task) = send(&engine, "chunk chunk chunk close").await;
    assert_eq!(
        log_summary(&engine, &head).await[3..7],
        [
            "artifact false false",
            "artifact true false",
            "artifact true false",
            "artifact true true"
        ]
    );
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(task.artifacts[0].name.as_deref(), Some("long"));
    assert_eq!(task.artifacts[0].as_text(), "piecepiecepiece");
}

#[tokio::test]
async fn a_blocked_caller_returns_when_credentials_are_needed_and_the_turn_goes_on() {
    let engine = engine_of(ScriptedAgent::default());
    let (head, task) = send(&engine, "login listen").await;
    assert_eq!(task.status.state, TaskState::AuthRequired);
    assert_eq!(task.status.message.unwrap().text(), "log in");
    assert!(engine.inner.journal.active_tasks.get(&head.id).is_some());
    let accepted = within_deadline(engine.continue_task(call(), &head, message("more"), None))
        .await
        .unwrap();
    let canceled = within_deadline(engine.cancel(&head, None)).await.unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap()
            .status,
        canceled.status
    );
}

#[tokio::test]
async fn r14_a_duplicate_returns_too_while_credentials_are_needed() {
    let engine = engine_of(ScriptedAgent::default());
    let keyed = || InitialMessage {
        key: key("k", 1),
        ..initial_message("login hang")
    };
    for _ in 0..2 {
        let accepted = within_deadline(engine.start(call(), keyed()))
            .await
            .unwrap();
        assert_eq!(
            within_deadline(engine.await_turn_result(accepted))
                .await
                .unwrap()
                .status
                .state,
            TaskState::AuthRequired
        );
    }
    assert_eq!(
        engine
            .inner
            .journal
            .store
            .list(
                &super::scope(),
                &TaskQuery {
                    limit: 9,
                    ..TaskQuery::default()
                }
            )
            .await
            .unwrap()
            .total,
        1
    );
}

#[tokio::test]
async fn r14_a_repeated_message_is_answered_with_its_own_turn() {
    let agent = ScriptedAgent::default();
    let engine = engine_of(agent.clone());
    let messages = ["ask", "gate ask", "done"].map(message);
    let first = || InitialMessage {
        key: key("1", 1),
        ..InitialMessage::from(messages[0].clone())
    };
    let accepted = within_deadline(engine.start(call(), first()))
        .await
        .unwrap();
    let head = accepted.head.clone();
    within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    let say = |number: u8| {
        let message = messages[usize::from(number) - 1].clone();
        engine.continue_task(call(), &head, message, key(&number.to_string(), number))
    };
    within_deadline(say(2)).await.unwrap();
    within_deadline(say(3)).await.unwrap();
    // The first message has its result, whatever follows.
    let again = within_deadline(engine.start(call(), first()))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(again))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Working
    );
    let again = within_deadline(engine.find_replay(&super::scope(), &key("1", 1).unwrap()))
        .await
        .unwrap();
    assert_eq!(
        within_deadline(engine.await_turn_result(again.unwrap()))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Working
    );
    let second = within_deadline(say(2)).await.unwrap();
    let third = within_deadline(say(3)).await.unwrap();
    agent.gate.add_permits(1);
    assert_eq!(
        within_deadline(engine.await_turn_result(second))
            .await
            .unwrap()
            .status
            .state,
        TaskState::InputRequired
    );
    assert_eq!(
        within_deadline(engine.await_turn_result(third))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
    assert_eq!(agent.received(), ["ask", "gate ask", "done"]);
    assert!(
        within_deadline(engine.find_replay(&super::scope(), &key("4", 4).unwrap()))
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn s76_an_idempotency_key_reveals_nothing_to_another_owner() {
    let engine = engine_of(ScriptedAgent::default());
    let stranger = || {
        Call::new(Scope {
            owner: Caller::new("stranger"),
            ..super::scope()
        })
    };
    let keyed = |body| InitialMessage {
        key: key("k", body),
        ..initial_message("ask")
    };
    let ours = within_deadline(engine.start(call(), keyed(1)))
        .await
        .unwrap();
    let theirs = within_deadline(engine.start(stranger(), keyed(2)))
        .await
        .unwrap();
    assert_ne!(ours.head.id, theirs.head.id);
    for (caller, body, head) in [(call(), 1, &ours.head), (stranger(), 2, &theirs.head)] {
        let again = engine
            .find_replay(&caller.scope, &key("k", body).unwrap())
            .await
            .unwrap();
        assert_eq!(again.unwrap().head.id, head.id);
    }
}

#[tokio::test]
async fn metadata_is_added_to_the_task() {
    let agent = |turn: Turn| async move {
        for (key, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
            turn.add_metadata([(key, Json::from(value))].into_iter().collect())
                .await;
        }
        Ok(Outcome::Completed)
    };
    let metadata = send(&engine_of(agent), "go").await.1.metadata.unwrap();
    assert_eq!(metadata.get("a").unwrap().get(), "\"3\"");
    assert_eq!(metadata.get("b").unwrap().get(), "\"2\"");
}

#[tokio::test]
async fn trailing_metadata_is_merged_into_the_final_status() {
    for (words, expected) in [
        (
            "say meta",
            vec![(TaskState::Working, false), (TaskState::Completed, true)],
        ),
        ("meta", vec![(TaskState::Completed, true)]),
        ("meta ask", vec![(TaskState::InputRequired, true)]),
        (
            "meta say",
            vec![
                (TaskState::Working, true),
                (TaskState::Working, false),
                (TaskState::Completed, false),
            ],
        ),
    ] {
        let engine = engine_of(ScriptedAgent::default());
        let head = send(&engine, words).await.0;
        let entries = entries(&engine, &head).await;
        let statuses = entries.iter().filter_map(|entry| match &entry.event {
            Event::Status { status, metadata } => Some((status.state, metadata.is_some())),
            _ => None,
        });
        assert_eq!(statuses.collect::<Vec<_>>(), expected, "{words}");
    }
}

#[tokio::test]
async fn metadata_does_not_hide_that_credentials_are_needed() {
    let engine = engine_of(ScriptedAgent::default());
    for (text, states) in [
        ("login meta gate", vec!["auth_required"]),
        (
            "meta login meta say gate",
            vec!["working", "auth_required", "working"],
        ),
    ] {
        let head = start(&engine, text).await.head;
        yield_until_idle().await;
        assert_eq!(log_summary(&engine, &head).await[3..], states, "{text}");
        let task = check_invariants(&engine, &head).await;
        if states.len() == 1 {
            assert_eq!(task.status.message.unwrap().text(), "log in");
        }
        let task = within_deadline(engine.cancel(&head, None)).await.unwrap();
        assert_eq!(
            task.metadata.unwrap().get("word").unwrap().get(),
            "\"meta\""
        );
    }
}

#[tokio::test]
async fn r44_an_invalid_agent_response_fails_the_task_and_the_call() {
    let agent = |turn: Turn| async move {
        let message = Message::agent("so far");
        match turn.text().as_str() {
            "task" => Ok(Outcome::CompletedWith(message.in_task("another"))),
            "context" => Ok(Outcome::InputRequired(Question {
                message: message.in_context("another"),
                request: None,
            })),
            "nothing" => Ok(Outcome::Failed(Message {
                parts: Vec::new(),
                ..message
            })),
            text => {
                turn.add_artifact(Artifact::default().with_id("empty"))
                    .await;
                turn.write("late", "ignored").await;
                if text == "hang" {
                    std::future::pending().await
                } else {
                    Ok(Outcome::Completed)
                }
            }
        }
    };
    let engine = engine_of(agent);
    for text in ["task", "context", "nothing", "artifact", "hang"] {
        let accepted = start(&engine, text).await;
        let head = accepted.head.clone();
        let error = model::Error::from(
            within_deadline(engine.await_turn_result(accepted))
                .await
                .unwrap_err(),
        );
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{text}");
        let task = check_invariants(&engine, &head).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(
            task.status.message.as_ref().unwrap().text(),
            "Agent execution failed (invalid-agent-response)"
        );
        assert_eq!(
            task.metadata.unwrap().get("attache.reason").unwrap().get(),
            "\"invalid-agent-response\""
        );
        let words: Vec<_> = log_summary(&engine, &head)
            .await
            .into_iter()
            .filter(|word| word != "working")
            .collect();
        assert_eq!(words[2..], ["turn", "failed", "end"], "{text}");
    }
    wait_until_idle(&engine).await;
    check_idle(&engine).await;
}

#[tokio::test]
async fn r14_a_duplicate_gets_the_same_invalid_response_error() {
    let engine = engine_of(ScriptedAgent::default());
    for _ in 0..2 {
        let keyed = InitialMessage {
            key: key("k", 1),
            ..initial_message("say empty")
        };
        let accepted = within_deadline(engine.start(call(), keyed)).await.unwrap();
        assert!(matches!(
            within_deadline(engine.await_turn_result(accepted)).await,
            Err(Error::InvalidAgentResponse(_))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_response_during_a_cancel_ends_as_canceled() {
    let engine = engine_of(ScriptedAgent::default());
    let head = start(&engine, "listen empty write hang").await.head;
    yield_until_idle().await;
    let task = within_deadline(engine.cancel(&head, None)).await.unwrap();
    assert_eq!(
        (task.status.state, task.artifacts.len()),
        (TaskState::Canceled, 0)
    );
}

#[tokio::test]
async fn a_question_has_a_machine_readable_form() {
    let agent = |_: Turn| async {
        let request = Json::parse(r#"{"type":"object"}"#).unwrap();
        Ok(Outcome::InputRequired(
            Question::from("which port?").with_request(request),
        ))
    };
    let (head, task) = send(&engine_of(agent), "go").await;
    let question = task.status.message.unwrap();
    assert_eq!(question.text(), "which port?");
    assert_eq!(question.extensions, [INPUT_REQUEST]);
    assert_eq!(
        question
            .metadata
            .as_ref()
            .unwrap()
            .get(INPUT_REQUEST)
            .unwrap()
            .get(),
        r#"{"type":"object"}"#
    );
    assert_eq!(question.task_id.as_ref(), Some(&head.id));
    assert_eq!(question.context_id, Some(task.context_id));
}

/// Agent that reports the texts of the other tasks it can see.
async fn report_visible_tasks(turn: Turn) -> Result<Outcome, Failure> {
    let limit = turn.text().parse().unwrap_or(10);
    let texts = |tasks: Vec<Task>| {
        tasks
            .iter()
            .map(|task| task.history[0].text())
            .collect::<Vec<_>>()
            .join(",")
    };
    let context = turn.context_tasks(limit).await;
    let referenced = turn.referenced_tasks().await;
    Ok(Outcome::CompletedWith(Message::agent(format!(
        "{} | {}",
        texts(context),
        texts(referenced)
    ))))
}

#[tokio::test]
async fn s02_a_turn_sees_only_the_context_of_its_owner_up_to_the_limit() {
    let clock = ManualClock::starting_at(0);
    let engine = engine_with(
        Arc::new(Memory::new()),
        report_visible_tasks,
        Settings::default(),
        clock.clone(),
    );
    let stranger = Call::new(Scope {
        owner: Caller::new("stranger"),
        ..super::scope()
    });
    let mut ids = Vec::new();
    let mut time = 0;
    let mut ask = async |call: Call, context: &str, text: &str, refers: Vec<TaskId>| {
        time += 1;
        clock.advance_to(time);
        let message = Message {
            reference_task_ids: refers,
            ..Message::user(text).in_context(context)
        };
        let accepted = within_deadline(engine.start(call, InitialMessage::from(message)))
            .await
            .unwrap();
        ids.push(accepted.head.id.clone());
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap()
            .status
            .message
            .unwrap()
            .text()
    };
    assert_eq!(ask(call(), "c", "one", vec![]).await, " | ");
    assert_eq!(ask(stranger, "c", "secret", vec![]).await, " | ");
    assert_eq!(ask(call(), "d", "elsewhere", vec![]).await, " | ");
    assert_eq!(ask(call(), "c", "two", vec![]).await, "one | ");
    assert_eq!(ask(call(), "c", "1", vec![]).await, "two | ");
    assert_eq!(ask(call(), "c", "0", vec![]).await, " | ");
    let refers = ["id-000001", "unknown"].map(TaskId::from).to_vec();
    assert_eq!(ask(call(), "e", "refers", refers).await, " | one");
    let secret = ids[1].clone();
    let elsewhere = ids[2].clone();
    let ask = async |refers: Vec<TaskId>| {
        let message = Message {
            reference_task_ids: refers,
            ..Message::user("x")
        };
        let accepted = within_deadline(engine.start(call(), InitialMessage::from(message)))
            .await
            .unwrap();
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap()
            .status
            .message
            .unwrap()
            .text()
    };
    assert_eq!(ask(vec![secret, elsewhere]).await, " | elsewhere");
}

struct DurableStartAgent {
    store: Arc<FaultyStore>,
    durable: bool,
}

impl Agent for DurableStartAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let head = self.store.find(&turn.call().scope, turn.task_id()).await?;
        let entries = match &head {
            Some(head) => Store::read(&*self.store, head, Seq(0), ReadLimit::entries(100)).await?,
            None => Vec::new(),
        };
        let turns = entries
            .iter()
            .filter(|entry| entry.event == Event::TurnStarted)
            .count();
        match turn.text().as_str() {
            "ask" => Ok(Outcome::ask(turns.to_string())),
            _ => Ok(Outcome::CompletedWith(Message::agent(turns.to_string()))),
        }
    }

    fn needs_durable_start(&self) -> bool {
        self.durable
    }
}

#[tokio::test]
async fn a_durable_start_is_in_the_store_before_the_turn_begins() {
    for (durable, turns) in [(true, ["1", "2"]), (false, ["0", "2"])] {
        let store = Arc::new(FaultyStore::default());
        let engine = engine_on(
            store.clone(),
            DurableStartAgent {
                store: store.clone(),
                durable,
            },
            Settings::default(),
        );
        let (head, task) = send(&engine, "ask").await;
        assert_eq!(task.status.message.unwrap().text(), turns[0]);
        let task = send_to(&engine, &head, "done").await.unwrap();
        assert_eq!(task.status.message.unwrap().text(), turns[1]);
    }
}

#[tokio::test]
async fn a_quick_turn_is_one_commit() {
    let store = Arc::new(FaultyStore::default());
    let engine = engine_on(store.clone(), ScriptedAgent::default(), Settings::default());
    send(&engine, "say write done").await;
    assert_eq!(store.calls(), 1);
    assert!(engine.inner.tracker.is_empty());
}

#[tokio::test]
async fn every_turn_has_the_call_of_its_own_message() {
    let agent = |turn: Turn| async move {
        tokio::task::yield_now().await;
        Ok(Outcome::ask(
            turn.call()
                .trace
                .as_ref()
                .map_or("none", TraceContext::span_id),
        ))
    };
    let store = Arc::new(FaultyStore::default());
    let traced = |span: u8| Call {
        trace: Some(trace(span)),
        ..call()
    };
    let first = engine_on(
        store.clone(),
        ScriptedAgent::default(),
        Settings {
            max_turns: 1,
            ..Settings::default()
        },
    );
    start(&first, "hang").await;
    let head = within_deadline(first.start(traced(1), initial_message("one")))
        .await
        .unwrap()
        .head;
    shut_down(&first).await;
    let settings = Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 2 },
        max_turns: 1,
        ..Settings::default()
    };
    let engine = engine_on(store, agent, settings);
    // An earlier process has received the first message: only the trace of its call is in the log.
    let accepted = within_deadline(engine.continue_task(traced(2), &head, message("two"), None))
        .await
        .unwrap();
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(task.status.message.unwrap().text(), trace(2).span_id());
    let texts: Vec<_> = task.history.iter().map(|sent| sent.text()).collect();
    assert_eq!(texts, ["one", "two", trace(1).span_id()]);
    let accepted = within_deadline(engine.continue_task(call(), &head, message("three"), None))
        .await
        .unwrap();
    let task = within_deadline(engine.await_turn_result(accepted))
        .await
        .unwrap();
    assert_eq!(
        task.status.message.unwrap().text(),
        "none",
        "a call without a trace gets none"
    );
    assert_eq!(
        within_deadline(engine.newest_trace(&head)).await.unwrap(),
        Some(trace(2))
    );
}

fn trace(span: u8) -> TraceContext {
    TraceContext::parse(
        &format!("00-{:032x}-{span:016x}-01", 7),
        Some("vendor=value"),
    )
    .unwrap()
}

#[tokio::test]
async fn trace_metadata_is_in_every_status_if_enabled() {
    for wanted in [true, false] {
        let settings = Settings {
            trace_metadata: wanted,
            ..Settings::default()
        };
        let engine = engine_on(
            Arc::new(FaultyStore::default()),
            ScriptedAgent::default(),
            settings,
        );
        let traced = Call {
            trace: Some(trace(1)),
            ..call()
        };
        let accepted = within_deadline(engine.start(traced, initial_message("say done")))
            .await
            .unwrap();
        let head = accepted.head.clone();
        within_deadline(engine.await_turn_result(accepted))
            .await
            .unwrap();
        let entries = entries(&engine, &head).await;
        let statuses = entries.iter().filter_map(|entry| match &entry.event {
            Event::Status { metadata, .. } => Some(metadata.as_ref()),
            _ => None,
        });
        let stamped: Vec<_> = statuses
            .map(|metadata| metadata?.get("traceId").map(|id| id.get().to_owned()))
            .collect();
        let id = format!("\"{}\"", trace(1).trace_id());
        assert_eq!(stamped, vec![wanted.then_some(id); 2]);
    }
}

/// Agent that never waits, and so exhausts the cooperative budget of its task.
struct NeverPausingAgent;

impl Agent for NeverPausingAgent {
    async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
        loop {
            tokio::task::coop::consume_budget().await;
        }
    }
}

#[tokio::test]
async fn the_sender_gets_its_reply_while_the_agent_never_pauses() {
    let engine = engine_of(NeverPausingAgent);
    let accepted = within_deadline(engine.start(call(), InitialMessage::from(Message::user("go"))))
        .await
        .unwrap();
    assert!(
        engine
            .inner
            .journal
            .active_tasks
            .get(&accepted.head.id)
            .is_some()
    );
    engine.inner.stop.cancel();
}
