//! Fold of a log into a task: independence of batching, and the rules for transitions, chunks and
//! history (07).

use std::sync::Arc;

use attache::model::{
    Artifact, Entry, Event, FoldError, Json, Message, Object, Part, Seq, StreamResponse, Task,
    TaskState, TaskStatus, Timestamp,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use crate::strategies::{self, Fit};

const CASES: u32 = 200;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

fn created(time: Timestamp) -> Entry {
    let event = Event::Created {
        id: "t".into(),
        context_id: "c".into(),
        metadata: None,
    };
    Entry {
        seq: Seq(1),
        time,
        event,
    }
}

/// Strategy: any event. Artifacts have few ids, so that chunks meet.
fn event() -> BoxedStrategy<Event> {
    let fit = Fit::Protobuf;
    let artifact = (
        strategies::artifact(fit),
        select(vec!["a", "b"]),
        strategies::part(fit),
        any::<[bool; 2]>(),
    );
    let artifact =
        artifact.prop_map(
            |(artifact, id, part, [append, last_chunk])| Event::Artifact {
                artifact: artifact.with_id(id).part(part),
                append,
                last_chunk,
                metadata: None,
            },
        );
    prop_oneof![
        2 => strategies::message(fit).prop_map(|message| Event::Message(Arc::new(message))),
        3 => (strategies::status(fit), strategies::metadata(fit))
            .prop_map(|(status, metadata)| Event::Status { status, metadata }),
        4 => artifact,
        1 => select(vec![Event::TurnStarted, Event::TurnEnded, Event::CancelRequested { metadata: None }]),
        1 => Just(Event::Ignored { reason: "late".to_owned() }),
    ]
    .boxed()
}

/// Strategy: a log as the engine stores it, without rejected events.
fn log() -> BoxedStrategy<Vec<Entry>> {
    let entries = vec((event(), strategies::timestamp()), 0..12);
    (strategies::timestamp(), entries)
        .prop_map(|(start, events)| {
            let mut log = vec![created(start)];
            let mut task = Task::fold(&log).unwrap().unwrap();
            for (event, time) in events {
                let entry = Entry {
                    seq: Seq(log.len() as u64 + 1),
                    time,
                    event,
                };
                let before = task.clone();
                match task.apply(&entry) {
                    Ok(()) => log.push(entry),
                    Err(_) => assert_eq!(task, before, "a rejected event changes nothing"),
                }
            }
            log
        })
        .boxed()
}

#[test]
fn fold_is_independent_of_batching() {
    strategies::check(CASES, log(), |log| {
        let whole = Task::fold(&log).unwrap().unwrap();
        for cut in 1..=log.len() {
            let mut task = Task::fold(&log[..cut]).unwrap().unwrap();
            log[cut..]
                .iter()
                .for_each(|entry| task.apply(entry).unwrap());
            prop_assert_eq!(&task, &whole);
        }
        Ok(())
    });
}

#[test]
fn client_fold_equals_server_fold() {
    strategies::check(CASES, log(), |log| {
        for cut in 1..=log.len() {
            let mut server = Task::fold(&log[..cut]).unwrap().unwrap();
            let mut client = server.clone();
            let mut is_status_known = true;
            for entry in &log[cut..] {
                server.apply(entry).unwrap();
                if let Some(update) = entry.update(&client.id, &client.context_id) {
                    client.apply_update(&update).unwrap();
                }
                // Streams do not contain incoming messages, and such a message archives the status
                // message.
                is_status_known = match &entry.event {
                    Event::Message(_) => false,
                    // An ignored status is not the current state.
                    Event::Status { status, .. } => {
                        is_status_known || status.state == server.status.state
                    }
                    _ => is_status_known,
                };
                prop_assert_eq!(&client.artifacts, &server.artifacts);
                prop_assert_eq!(&client.metadata, &server.metadata);
                prop_assert_eq!(client.status.state, server.status.state);
                prop_assert_eq!(client.status.timestamp, server.status.timestamp);
                prop_assert!(!is_status_known || client.status == server.status);
            }
        }
        Ok(())
    });
}

#[test]
fn timestamps_never_decrease() {
    strategies::check(CASES, log(), |log| {
        let times =
            (1..=log.len()).map(|cut| Task::fold(&log[..cut]).unwrap().unwrap().status.timestamp);
        prop_assert!(times.collect::<Vec<_>>().is_sorted());
        Ok(())
    });
}

/// Returns a task in this state, reached by the shortest way.
fn in_state(state: TaskState) -> Task {
    let mut task = Task::fold(&[created(at(1000))]).unwrap().unwrap();
    if state != TaskState::Submitted {
        task.apply(&status(state, None)).unwrap();
    }
    task
}

fn status(state: TaskState, message: Option<&str>) -> Entry {
    let mut status = TaskStatus::new(state);
    status.message = message.map(|text| {
        Arc::new(Message {
            message_id: text.into(),
            ..Message::agent(text)
        })
    });
    Entry {
        seq: Seq(2),
        time: at(2000),
        event: Event::Status {
            status,
            metadata: None,
        },
    }
}

/// The table of 07 §2: `+` transition, `.` ignored, `x` rejected. A new task is submitted.
#[test]
fn s77_transition_table() {
    use TaskState::{
        AuthRequired, Canceled, Completed, Failed, InputRequired, Rejected, Submitted, Working,
    };
    let columns = [
        Submitted,
        Working,
        InputRequired,
        AuthRequired,
        Completed,
        Failed,
        Canceled,
        Rejected,
    ];
    for (from, row) in [
        (Submitted, "++++++++"),
        (Working, ".+++++++"),
        (InputRequired, ".+++++++"),
        (AuthRequired, ".+++++++"),
        (Completed, "xxxxxxxx"),
        (Failed, "xxxxxxxx"),
        (Canceled, "xxxxxxxx"),
        (Rejected, "xxxxxxxx"),
    ] {
        for (to, cell) in columns.into_iter().zip(row.chars()) {
            let before = in_state(from);
            let mut task = before.clone();
            let moved = task.apply(&status(to, Some("m")));
            assert_eq!(from.can_become(to), cell == '+', "{from} {to}");
            match cell {
                '+' => assert_eq!((moved, task.status.state), (Ok(()), to), "{from} {to}"),
                '.' => assert_eq!((moved, task), (Ok(()), before), "{from} {to}"),
                _ => assert_eq!(
                    (moved, task),
                    (Err(FoldError::TaskEnded(from)), before),
                    "{from} {to}"
                ),
            }
        }
        let mut task = in_state(from);
        let moved = task.apply(&status(TaskState::Unspecified, None));
        assert!(
            matches!(
                moved,
                Err(FoldError::InvalidTransition(..) | FoldError::TaskEnded(_))
            ),
            "{from}: {moved:?}"
        );
    }
}

#[test]
fn s77_ended_task_rejects_all_events() {
    let chunk = Event::Artifact {
        artifact: Artifact::text("n", "x"),
        append: false,
        last_chunk: false,
        metadata: None,
    };
    for state in TaskState::ALL
        .into_iter()
        .filter(|state| state.is_terminal())
    {
        let before = in_state(state);
        let mut task = before.clone();
        for event in [
            chunk.clone(),
            Event::Message(Arc::new(Message::user("late"))),
        ] {
            let refused = task.apply(&Entry {
                seq: Seq(3),
                time: at(3000),
                event,
            });
            assert_eq!(refused, Err(FoldError::TaskEnded(state)));
        }
        for event in [
            Event::TurnEnded,
            Event::Ignored {
                reason: "late".to_owned(),
            },
        ] {
            assert_eq!(
                task.apply(&Entry {
                    seq: Seq(3),
                    time: at(3000),
                    event
                }),
                Ok(())
            );
        }
        assert_eq!(task, before);
    }
}

/// A server may close a stream with a snapshot of the ended task (05 §1).
#[test]
fn final_snapshot_of_an_ended_task_is_accepted() {
    let mut client = in_state(TaskState::Completed);
    let mut seen = client.clone();
    seen.artifacts.push(Artifact::text("n", "x"));
    assert_eq!(
        client.apply_update(&StreamResponse::Task(seen.clone())),
        Ok(())
    );
    assert_eq!(client, seen);
    let other = Task {
        status: TaskStatus::new(TaskState::Working),
        ..seen.clone()
    };
    let refused = client.apply_update(&StreamResponse::Task(other));
    assert_eq!(
        (refused, client),
        (Err(FoldError::TaskEnded(TaskState::Completed)), seen)
    );
}

fn object(value: serde_json::Value) -> Object {
    Object::try_from(Json::from(value)).unwrap()
}

fn put(task: &mut Task, id: &str, parts: &[Part], append: bool) -> Result<(), FoldError> {
    let artifact = Artifact {
        artifact_id: id.into(),
        parts: parts.to_vec(),
        ..Artifact::default()
    };
    let event = Event::Artifact {
        artifact,
        append,
        last_chunk: false,
        metadata: None,
    };
    task.apply(&Entry {
        seq: Seq(2),
        time: at(2000),
        event,
    })
}

/// 05 §4: text is appended to the last text part, unless either part has other attributes.
#[test]
fn chunks_of_plain_text_are_concatenated() {
    let plain = Part::text("a");
    let data = Part::data(json!(1));
    let beside = [
        Part::text("a").with_metadata(Object::new()),
        Part::text("a").with_filename("f"),
        Part::text("a").with_media_type("text/plain"),
        Part::url("a"),
        data.clone(),
    ];
    let folded = |first: &[Part], second: &[Part]| {
        let mut task = in_state(TaskState::Working);
        put(&mut task, "x", first, false).unwrap();
        put(&mut task, "x", second, true).unwrap();
        task.artifacts[0].parts.clone()
    };
    assert_eq!(
        folded(std::slice::from_ref(&plain), &[Part::text("b")]),
        [Part::text("ab")]
    );
    assert_eq!(
        folded(std::slice::from_ref(&plain), &[Part::text("")]),
        [Part::text("a")]
    );
    assert_eq!(
        folded(
            &[data.clone(), plain.clone()],
            &[Part::text("b"), data.clone(), Part::text("c")]
        ),
        [data.clone(), Part::text("ab"), data, Part::text("c")]
    );
    for other in beside {
        let first = std::slice::from_ref(&plain);
        let second = std::slice::from_ref(&other);
        assert_eq!(folded(first, second), [plain.clone(), other.clone()]);
        assert_eq!(folded(second, first), [other.clone(), plain.clone()]);
    }
}

/// 05 §4: the other rows of the table.
#[test]
fn artifacts_are_added_replaced_and_appended_to() {
    let mut task = in_state(TaskState::Working);
    let unknown = Err(FoldError::UnknownArtifact("a".into()));
    assert_eq!(put(&mut task, "a", &[Part::text("x")], true), unknown);
    assert_eq!(
        put(&mut task, "a", &[], false),
        Err(FoldError::EmptyArtifact("a".into()))
    );
    put(&mut task, "a", &[Part::text("1")], false).unwrap();
    put(&mut task, "b", &[Part::text("2")], false).unwrap();
    assert_eq!(
        put(&mut task, "a", &[], true),
        Err(FoldError::EmptyArtifact("a".into()))
    );
    put(&mut task, "a", &[Part::text("3"), Part::text("4")], false).unwrap();
    let held: Vec<_> = task
        .artifacts
        .iter()
        .map(|artifact| (artifact.artifact_id.as_str(), artifact.as_text()))
        .collect();
    // Parts of one event stay separate; only a chunk is appended.
    assert_eq!(held, [("a", "3\n4".to_owned()), ("b", "2".to_owned())]);
    let chunk = |name: &str, metadata| Artifact {
        artifact_id: "b".into(),
        name: Some(name.to_owned()),
        description: Some(name.to_owned()),
        parts: vec![Part::text("+")],
        extensions: vec![name.to_owned()],
        metadata: Some(object(metadata)),
    };
    for artifact in [
        chunk("first", json!({"k": 1, "l": 1})),
        chunk("second", json!({"k": 2, "m": 2})),
    ] {
        let event = Event::Artifact {
            artifact,
            append: true,
            last_chunk: true,
            metadata: None,
        };
        task.apply(&Entry {
            seq: Seq(3),
            time: at(3000),
            event,
        })
        .unwrap();
    }
    let filled = Artifact {
        parts: vec![Part::text("2++")],
        ..chunk("first", json!({"k": 2, "l": 1, "m": 2}))
    };
    assert_eq!(task.artifacts[1], filled);
}

fn ids(task: &Task) -> Vec<&str> {
    task.history
        .iter()
        .map(|message| message.message_id.as_str())
        .collect()
}

fn incoming_message(id: &str) -> Entry {
    let message = Message {
        message_id: id.into(),
        ..Message::user("x")
    };
    Entry {
        seq: Seq(2),
        time: at(2000),
        event: Event::Message(Arc::new(message)),
    }
}

/// 07 §4: a status message enters the history with the next status or message.
#[test]
fn history_contains_messages_in_order() {
    let mut task = in_state(TaskState::Submitted);
    let steps: [(Entry, &[&str], Option<&str>); 6] = [
        (incoming_message("u1"), &["u1"], None),
        (status(TaskState::Working, Some("s1")), &["u1"], Some("s1")),
        (
            status(TaskState::InputRequired, Some("s2")),
            &["u1", "s1"],
            Some("s2"),
        ),
        (incoming_message("u1"), &["u1", "s1", "s2", "u1"], None),
        (
            status(TaskState::Working, None),
            &["u1", "s1", "s2", "u1"],
            None,
        ),
        (
            status(TaskState::Completed, Some("s3")),
            &["u1", "s1", "s2", "u1"],
            Some("s3"),
        ),
    ];
    for (entry, history, current) in steps {
        task.apply(&entry).unwrap();
        assert_eq!(ids(&task), history);
        assert_eq!(
            task.status
                .message
                .as_ref()
                .map(|message| message.message_id.as_str()),
            current
        );
    }
    let stamped = |message: &Arc<Message>| {
        message.task_id.as_ref() == Some(&task.id)
            && message.context_id.as_ref() == Some(&task.context_id)
    };
    assert!(
        [0, 3].iter().all(|at| stamped(&task.history[*at])),
        "a message that came in names its task"
    );
    for (length, kept) in [(None, 4), (Some(0), 0), (Some(2), 2), (Some(9), 4)] {
        let mut task = task.clone();
        task.limit_history(length);
        assert_eq!(task.history.len(), kept);
    }
}

/// 07 §4: status metadata is merged into the task; the server sets the time unless the agent did.
#[test]
fn metadata_merges_and_time_is_clamped() {
    let entry = |time, metadata, own: Option<i64>| Entry {
        seq: Seq(2),
        time: at(time),
        event: Event::Status {
            status: TaskStatus {
                timestamp: own.map(at),
                ..TaskStatus::new(TaskState::Working)
            },
            metadata: Some(object(metadata)),
        },
    };
    let mut task = in_state(TaskState::Submitted);
    for (entry, time) in [
        (entry(2000, json!({"a": 1, "b": 1}), None), 2000),
        (entry(1500, json!({"b": 2}), None), 2000),
        (entry(1500, json!({}), Some(2500)), 2500),
        (entry(3000, json!({"c": 3}), Some(10)), 2500),
    ] {
        task.apply(&entry).unwrap();
        assert_eq!(task.status.timestamp, Some(at(time)));
    }
    assert_eq!(task.metadata, Some(object(json!({"a": 1, "b": 2, "c": 3}))));
}

#[test]
fn log_without_created_has_no_task() {
    assert_eq!(Task::fold(&[]), Ok(None));
    assert_eq!(Task::fold(&[incoming_message("u1")]), Ok(None));
    assert_eq!(
        Task::fold(&[created(at(1)), created(at(2))]),
        Err(FoldError::WrongTask("t".into()))
    );
    let mut task = in_state(TaskState::Working);
    let message = StreamResponse::Message(Message::agent("x"));
    assert_eq!(
        task.apply_update(&message),
        Err(FoldError::UnexpectedMessage)
    );
    let other = StreamResponse::Task(Task::submitted("other".into(), "c".into(), at(1)));
    assert_eq!(
        task.apply_update(&other),
        Err(FoldError::WrongTask("other".into()))
    );
}
