//! Creating, appending and reading logs; scopes and ids.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::future::maybe_done;

use super::{
    append, batch, create, expect_eq, expect_ok, expect_true, find, key, log, new_task, note,
    registration, status_batch, timestamp,
};
use crate::model::{
    Artifact, CallMetadata, Entry, Event, Message, Part, Scope, Seq, TaskId, TaskState, Version,
};
use crate::store::{Batch, CreateResult, Error, Head, Holder, NewTask, ReadLimit, Store};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    create_writes_the_first_batch(&make().await).await;
    create_refuses_a_taken_id(&make().await).await;
    appends_in_order(&make().await).await;
    appends_pipelined_batches(&make().await).await;
    append_refuses_other_positions(&make().await).await;
    appends_an_empty_batch(&make().await).await;
    reads_from_any_position(&make().await).await;
    keeps_every_kind_of_event(&make().await).await;
    separates_scopes(&make().await).await;
    refuses_heads_of_another_scope(&make().await).await;
    accepts_any_text_as_id(&make().await).await;
}

async fn create_writes_the_first_batch(store: &dyn Store) {
    let mut task = new_task("t");
    task.batch = Batch {
        time: timestamp(999),
        ..batch(vec![note("a"), note("b")], TaskState::Working, 1_234)
    };
    let expected = Head {
        id: task.id.clone(),
        scope: task.scope.clone(),
        context_id: task.context_id.clone(),
        position: Seq(2),
        state: TaskState::Working,
        status_time: timestamp(1_234),
        holder: Holder::None,
    };
    let entries: Vec<_> = task.batch.entries(Seq(0)).collect();
    let opened = expect_ok(store.create(&task).await, "`create` succeeds");
    expect_eq(
        &opened,
        &CreateResult::Created(expected.clone()),
        "`create` returns the head with position, state and status time",
    );
    expect_eq(
        find(store, "ann", "t").await,
        Some(expected.clone()),
        "`find` returns a new task by its id",
    );
    expect_eq(
        log(store, &expected).await,
        entries,
        "a new log has the entries of its first batch, numbered from 1",
    );
}

async fn create_refuses_a_taken_id(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let before = log(store, &head).await;
    for owner in ["ann", "bob"] {
        let mut second = new_task("t");
        second.scope = super::scope(owner);
        second.alias = Some("alias".into());
        second.config = Some(Box::new(registration("hook", "https://example.org")));
        second.batch = Batch {
            key: key("k", 1),
            ..batch(vec![note("x")], TaskState::Completed, 9_000)
        };
        let refused = store.create(&second).await;
        expect_true(
            matches!(refused, Err(Error::Conflict)),
            "`create` with the id of a task of any scope is `Conflict`",
        );
        expect_eq(
            find(store, owner, "alias").await,
            None,
            "a refused `create` records no alias",
        );
        let mut third = new_task(&format!("of {owner}"));
        third.scope = super::scope(owner);
        third.batch.key = key("k", 2);
        create(store, third).await;
    }
    expect_eq(
        find(store, "ann", "t").await,
        Some(head.clone()),
        "a refused `create` does not change the head of the existing task",
    );
    expect_eq(
        log(store, &head).await,
        before,
        "a refused `create` does not change the log of the existing task",
    );
    let configs = expect_ok(store.list_configs(&head).await, "`list_configs` succeeds");
    expect_eq(
        configs,
        Vec::new(),
        "a refused `create` registers no webhook",
    );
}

async fn appends_in_order(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let mut expected = log(store, &head).await;
    let first = batch(vec![note("a"), note("b")], TaskState::Working, 2_000);
    // A clock that jumps back does not change the order.
    let second = Batch {
        time: timestamp(5),
        ..batch(vec![note("c")], TaskState::Completed, 1_500)
    };
    let mut position = head.position;
    for batch in [&first, &second] {
        expected.extend(batch.entries(position));
        position = append(store, &head, position, batch).await;
        expect_eq(
            position.0,
            expected.len() as u64,
            "`append` returns the position of the last entry",
        );
    }
    expect_eq(
        log(store, &head).await,
        expected,
        "a log has its batches in order, numbered without a gap",
    );
    let now = Head {
        position,
        state: TaskState::Completed,
        status_time: timestamp(1_500),
        ..head
    };
    expect_eq(
        find(store, "ann", "t").await,
        Some(now),
        "a head has position, state and status time of the last batch",
    );
}

async fn append_refuses_other_positions(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    append(
        store,
        &head,
        Seq(1),
        &status_batch(TaskState::Working, 2_000),
    )
    .await;
    let before = (find(store, "ann", "t").await, log(store, &head).await);
    for wrong in [Seq(0), Seq(1), Seq(3), Seq(u64::MAX)] {
        let late = Batch {
            key: key("late", 1),
            ..status_batch(TaskState::Completed, 3_000)
        };
        let refused = store.append(&head, wrong, &late).await;
        expect_true(
            matches!(refused, Err(Error::Conflict)),
            "`append` at any position but the end of the log is `Conflict`",
        );
    }
    let after = (find(store, "ann", "t").await, log(store, &head).await);
    expect_eq(
        after,
        before,
        "a batch that conflicts changes neither log nor head",
    );
    let other = Batch {
        key: key("late", 2),
        ..status_batch(TaskState::Completed, 3_000)
    };
    expect_ok(
        store.append(&head, Seq(2), &other).await,
        "a batch that conflicts does not record its key",
    );
}

/// Pipelines two appends as the engine does: polls both once, then completes the first before it polls the second again.
async fn appends_pipelined_batches(store: &dyn Store) {
    if store.has_external_writers() {
        return;
    }
    let head = create(store, new_task("t")).await;
    let batches =
        [1, 2].map(|number| batch(vec![note(format!("{number}"))], TaskState::Working, number));
    let mut first = pin!(maybe_done(store.append(&head, Seq(1), &batches[0])));
    let mut second = pin!(maybe_done(store.append(&head, Seq(2), &batches[1])));
    poll_fn(|context| {
        let _ = first.as_mut().poll(context);
        let _ = second.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    for (mut appended, end) in [(first, Seq(2)), (second, Seq(3))] {
        appended.as_mut().await;
        let position = appended
            .take_output()
            .map(|appended| expect_ok(appended, "`append` at the end of the log succeeds"));
        expect_eq(
            position,
            Some(end),
            "pipelined batches are applied in the order of their first poll",
        );
    }
    let events: Vec<_> = log(store, &head)
        .await
        .into_iter()
        .skip(1)
        .map(|entry| entry.event)
        .collect();
    let expected: Vec<_> = batches
        .iter()
        .flat_map(|batch| batch.events.clone())
        .collect();
    expect_eq(events, expected, "pipelined batches are not lost");
}

async fn appends_an_empty_batch(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let moved = store
        .append(&head, Seq(1), &batch(Vec::new(), TaskState::Working, 2_000))
        .await;
    expect_eq(
        expect_ok(moved, "`append` of an empty batch succeeds"),
        Seq(1),
        "an empty batch does not move the position",
    );
    expect_eq(
        log(store, &head).await.len(),
        1,
        "an empty batch appends no entry",
    );
    let now = Head {
        state: TaskState::Working,
        status_time: timestamp(2_000),
        ..head
    };
    expect_eq(
        find(store, "ann", "t").await,
        Some(now),
        "an empty batch sets state and status time",
    );
}

async fn reads_from_any_position(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    for size in [3, 1, 700, 2] {
        let position = expect_ok(store.find(&head.scope, &head.id).await, "`find` succeeds")
            .map(|head| head.position);
        let notes = (0..size)
            .map(|number| note(format!("{size}/{number}")))
            .collect();
        let more = batch(notes, TaskState::Working, 2_000);
        append(store, &head, position.unwrap_or_default(), &more).await;
    }
    let all = log(store, &head).await;
    expect_eq(all.len(), 707, "a log has every entry of every batch");
    expect_true(
        all.iter()
            .zip(1..)
            .all(|(entry, seq)| entry.seq == Seq(seq)),
        "entries are numbered from 1 without a gap",
    );
    for after in [0, 1, 2, 4, 5, 6, 300, 704, 705, 706, 707, 708] {
        for limit in [0, 1, 2, 3, 256, 257, 1_000] {
            let read = expect_ok(
                store
                    .read(&head, Seq(after), ReadLimit::entries(limit))
                    .await,
                "`read` succeeds at any position",
            );
            let from = usize::try_from(after).unwrap_or_default();
            let expected: Vec<_> = all.iter().skip(from).take(limit).cloned().collect();
            expect_eq(
                read,
                expected,
                "`read` returns the entries after a position, oldest first, at most `limit`",
            );
        }
    }
    for bytes in [0, 1, 2_000, 20_000, usize::MAX] {
        let limit = ReadLimit {
            entries: 600,
            bytes,
        };
        let read = expect_ok(store.read(&head, Seq(2), limit).await, "`read` succeeds");
        let mut size = 0;
        let is_before_limit = |entry: &&Entry| {
            let is_before = size < bytes;
            size += entry.event.memory_size();
            is_before
        };
        let rest = all.iter().skip(2).take(600);
        let expected: Vec<_> = rest.take_while(is_before_limit).cloned().collect();
        expect_eq(
            read,
            expected,
            "`read` ends with the entry that reaches the limit of bytes",
        );
    }
    let beyond = expect_ok(
        store
            .read(&head, Seq(u64::MAX), ReadLimit::entries(10))
            .await,
        "`read` after the end succeeds",
    );
    expect_eq(beyond, Vec::new(), "`read` after the end returns nothing");
}

async fn keeps_every_kind_of_event(store: &dyn Store) {
    let metadata = Some(
        [("k", serde_json::json!({ "n": [1.5, null, "ü"] }))]
            .into_iter()
            .collect(),
    );
    let message = Message {
        metadata: metadata.clone(),
        ..Message::user("hi\0 there")
    };
    let file = Part::file([0, 255], "a/b")
        .with_filename("f")
        .with_metadata(crate::model::Object::new());
    let artifact = Artifact::new("name", Part::data(serde_json::json!([null])))
        .part(file)
        .part(Part::url("u:v"));
    let status = crate::model::TaskStatus::new(TaskState::InputRequired)
        .with_message(message.clone())
        .with_timestamp(timestamp(-1));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = crate::model::TraceContext::parse(parent, Some("vendor=value"));
    let traced = trace.map(Event::TraceContext).into_iter();
    let events = vec![
        Event::Message(Arc::new(message)),
        Event::CallMetadata(CallMetadata {
            version: Version::V03,
            extensions: vec!["urn:e".into()],
        }),
        Event::TurnStarted,
        Event::Status {
            status,
            metadata: metadata.clone(),
        },
        Event::Artifact {
            artifact,
            append: true,
            last_chunk: true,
            metadata: metadata.clone(),
        },
        Event::CancelRequested { metadata },
        note(""),
        Event::TurnEnded,
    ];
    let mut task = new_task("t");
    task.batch.events.extend(events.into_iter().chain(traced));
    let expected: Vec<_> = task.batch.entries(Seq(0)).collect();
    let head = create(store, task).await;
    expect_eq(
        log(store, &head).await,
        expected,
        "`read` returns every event unchanged",
    );
}

async fn separates_scopes(store: &dyn Store) {
    // Scopes whose concatenated names are equal.
    let names = [
        ("a", "b", "c"),
        ("ab", "", "c"),
        ("a", "", "bc"),
        ("", "a", "bc"),
        ("a", "b", "C"),
    ];
    let scopes = names.map(|(agent, tenant, owner)| Scope {
        agent: Arc::from(agent),
        tenant: Arc::from(tenant),
        owner: crate::model::Caller::new(owner),
    });
    for (number, scope) in scopes.iter().enumerate() {
        let task = NewTask {
            scope: scope.clone(),
            ..new_task(&format!("t{number}"))
        };
        create(
            store,
            NewTask {
                alias: Some("mine".into()),
                ..task
            },
        )
        .await;
    }
    for (number, scope) in scopes.iter().enumerate() {
        for other in 0..scopes.len() {
            let id = TaskId::from(format!("t{other}"));
            let found = expect_ok(store.find(scope, &id).await, "`find` succeeds");
            expect_true(
                found.is_some() == (number == other),
                "`find` returns nothing for a task of another scope",
            );
        }
        let mine = expect_ok(store.find(scope, &"mine".into()).await, "`find` succeeds");
        let mine = mine.map(|head| head.id.to_string());
        expect_eq(
            mine,
            Some(format!("t{number}")),
            "an alias belongs to one scope",
        );
        let page = store
            .list(
                scope,
                &crate::store::TaskQuery {
                    limit: 10,
                    ..Default::default()
                },
            )
            .await;
        expect_eq(
            expect_ok(page, "`list` succeeds").total,
            1,
            "`list` returns tasks of its scope only",
        );
    }
}

async fn refuses_heads_of_another_scope(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let bobs = NewTask {
        scope: super::scope("bob"),
        ..new_task("u")
    };
    let stolen = Head {
        scope: create(store, bobs).await.scope,
        ..head.clone()
    };
    expect_eq(
        log(store, &stolen).await,
        Vec::new(),
        "`read` with another scope returns nothing",
    );
    let refused = store
        .append(&stolen, Seq(1), &status_batch(TaskState::Failed, 5_000))
        .await;
    expect_true(
        matches!(refused, Err(Error::Conflict)),
        "`append` with another scope is `Conflict`",
    );
    expect_ok(
        store.remove(std::slice::from_ref(&stolen)).await,
        "`remove` of an absent task succeeds",
    );
    expect_eq(
        find(store, "ann", "t").await,
        Some(head),
        "`remove` with another scope removes nothing",
    );
}

async fn accepts_any_text_as_id(store: &dyn Store) {
    let odd = ["", "A", "a", "it's \"%_'; --", "日本語🎉", &"x".repeat(256)];
    for (number, id) in odd.iter().enumerate() {
        let mut task = new_task(id);
        task.context_id = (*id).into();
        task.batch.key = key(id, u8::try_from(number).unwrap_or_default());
        create(store, task).await;
    }
    for id in odd {
        let found = find(store, "ann", id).await;
        let names = found.map(|head| (head.id.to_string(), head.context_id.to_string()));
        expect_eq(
            names,
            Some((id.to_owned(), id.to_owned())),
            "ids are arbitrary text, compared by every byte",
        );
    }
}
