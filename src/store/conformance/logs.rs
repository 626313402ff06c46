//! Opening a log, adding to it, reading it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::future::maybe_done;

use super::{
    batch, create, expect_eq, expect_ok, expect_true, find, key, log, new_task, note, registration,
    status_batch, timestamp,
};
use crate::model::{Artifact, Event, Message, Part, Scope, Seq, TaskId, TaskState};
use crate::store::{Batch, CreateResult, Error, Head, NewTask, Store};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    a_new_log_has_its_first_batch(&make().await).await;
    a_taken_id_is_a_conflict_that_leaves_nothing(&make().await).await;
    batches_are_added_in_order(&make().await).await;
    batches_may_follow_one_that_is_on_its_way(&make().await).await;
    a_log_that_moved_on_is_a_conflict_that_leaves_nothing(&make().await).await;
    an_empty_batch_moves_only_the_state(&make().await).await;
    a_log_is_read_from_anywhere(&make().await).await;
    every_kind_of_event_is_kept(&make().await).await;
    a_task_is_found_within_its_scope_alone(&make().await).await;
    odd_names_are_just_names(&make().await).await;
}

async fn a_new_log_has_its_first_batch(store: &dyn Store) {
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
    };
    let entries: Vec<_> = task.batch.entries(Seq(0)).collect();
    let opened = expect_ok(store.create(&task).await, "a task is opened");
    expect_eq(
        &opened,
        &CreateResult::Created(expected.clone()),
        "a new log's head tells its position, state and time",
    );
    expect_eq(
        find(store, "ann", "t").await,
        Some(expected.clone()),
        "a new log is found at once, by its id",
    );
    expect_eq(
        log(store, &expected).await,
        entries,
        "a new log has its first batch, numbered from 1",
    );
}

async fn a_taken_id_is_a_conflict_that_leaves_nothing(store: &dyn Store) {
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
            "an id that anybody has is a conflict",
        );
        expect_eq(
            find(store, owner, "alias").await,
            None,
            "a task that was refused leaves no alias",
        );
        let mut third = new_task(&format!("of {owner}"));
        (third.scope, third.batch.key) = (super::scope(owner), key("k", 2));
        create(store, third).await;
    }
    expect_eq(
        find(store, "ann", "t").await,
        Some(head.clone()),
        "a task keeps its head when its id is refused",
    );
    expect_eq(
        log(store, &head).await,
        before,
        "a task keeps its log when its id is refused",
    );
    let configs = expect_ok(store.list_configs(&head).await, "webhooks can be read");
    expect_eq(
        configs,
        Vec::new(),
        "a task that was refused leaves no webhook",
    );
}

async fn batches_are_added_in_order(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let mut expected = log(store, &head).await;
    let first = batch(vec![note("a"), note("b")], TaskState::Working, 2_000);
    // A clock that went back changes no order.
    let second = Batch {
        time: timestamp(5),
        ..batch(vec![note("c")], TaskState::Completed, 1_500)
    };
    let mut position = head.position;
    for batch in [&first, &second] {
        expected.extend(batch.entries(position));
        position = expect_ok(
            store.append(&head, position, batch).await,
            "a batch is added behind the last entry",
        );
        expect_eq(
            position.0,
            expected.len() as u64,
            "adding a batch returns the position of its last entry",
        );
    }
    expect_eq(
        log(store, &head).await,
        expected,
        "a log is its batches in order, numbered without a gap",
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
        "a head tells the position, state and time of the last batch",
    );
}

async fn a_log_that_moved_on_is_a_conflict_that_leaves_nothing(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    expect_ok(
        store
            .append(&head, Seq(1), &status_batch(TaskState::Working, 2_000))
            .await,
        "a batch is added",
    );
    let before = (find(store, "ann", "t").await, log(store, &head).await);
    for wrong in [Seq(0), Seq(1), Seq(3), Seq(u64::MAX)] {
        let late = Batch {
            key: key("late", 1),
            ..status_batch(TaskState::Completed, 3_000)
        };
        let refused = store.append(&head, wrong, &late).await;
        expect_true(
            matches!(refused, Err(Error::Conflict)),
            "a batch for any but the last position is a conflict",
        );
    }
    let after = (find(store, "ann", "t").await, log(store, &head).await);
    expect_eq(
        after,
        before,
        "a batch that conflicts leaves log and head as they were",
    );
    let other = Batch {
        key: key("late", 2),
        ..status_batch(TaskState::Completed, 3_000)
    };
    expect_ok(
        store.append(&head, Seq(2), &other).await,
        "a batch that conflicts does not use up its key",
    );
}

/// As the engine asks: both are begun, in order, and the second is not looked at again before the first is there.
async fn batches_may_follow_one_that_is_on_its_way(store: &dyn Store) {
    if store.has_external_writers() {
        return;
    }
    let head = create(store, new_task("t")).await;
    let batches =
        [1, 2].map(|number| batch(vec![note(format!("{number}"))], TaskState::Working, number));
    let mut first = pin!(maybe_done(store.append(&head, Seq(1), &batches[0])));
    let mut second = pin!(maybe_done(store.append(&head, Seq(2), &batches[1])));
    poll_fn(|context| {
        let _ = (first.as_mut().poll(context), second.as_mut().poll(context));
        Poll::Ready(())
    })
    .await;
    for (mut appended, end) in [(first, Seq(2)), (second, Seq(3))] {
        appended.as_mut().await;
        let position = appended
            .take_output()
            .map(|appended| expect_ok(appended, "a batch is added"));
        expect_eq(
            position,
            Some(end),
            "batches are added in the order in which they were begun",
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
    expect_eq(events, expected, "none of them is lost");
}

async fn an_empty_batch_moves_only_the_state(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let moved = store
        .append(&head, Seq(1), &batch(Vec::new(), TaskState::Working, 2_000))
        .await;
    expect_eq(
        expect_ok(moved, "an empty batch is added"),
        Seq(1),
        "an empty batch does not move the position",
    );
    expect_eq(
        log(store, &head).await.len(),
        1,
        "an empty batch adds no entry",
    );
    let now = Head {
        state: TaskState::Working,
        status_time: timestamp(2_000),
        ..head
    };
    expect_eq(
        find(store, "ann", "t").await,
        Some(now),
        "an empty batch still sets state and time",
    );
}

async fn a_log_is_read_from_anywhere(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    for size in [3, 1, 700, 2] {
        let position = expect_ok(store.find(&head.scope, &head.id).await, "a task is found")
            .map(|head| head.position);
        let notes = (0..size)
            .map(|number| note(format!("{size}/{number}")))
            .collect();
        let more = batch(notes, TaskState::Working, 2_000);
        expect_ok(
            store
                .append(&head, position.unwrap_or_default(), &more)
                .await,
            "a batch is added",
        );
    }
    let all = log(store, &head).await;
    expect_eq(all.len(), 707, "a log has every entry of every batch");
    expect_true(
        all.iter()
            .zip(1..)
            .all(|(entry, seq)| entry.seq == Seq(seq)),
        "entries are numbered from 1, without a gap",
    );
    for after in [0, 1, 2, 4, 5, 6, 300, 704, 705, 706, 707, 708] {
        for limit in [0, 1, 2, 3, 256, 257, 1_000] {
            let read = expect_ok(
                store.read(&head, Seq(after), limit).await,
                "a log can be read from anywhere",
            );
            let from = usize::try_from(after).unwrap_or_default();
            let expected: Vec<_> = all.iter().skip(from).take(limit).cloned().collect();
            expect_eq(
                read,
                expected,
                "reading gives the entries after a position, oldest first, at most the limit",
            );
        }
    }
    let beyond = expect_ok(
        store.read(&head, Seq(u64::MAX), 10).await,
        "reading behind the end is no error",
    );
    expect_eq(beyond, Vec::new(), "there is nothing behind the end");
}

async fn every_kind_of_event_is_kept(store: &dyn Store) {
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
        "every event is read as it was written",
    );
}

async fn a_task_is_found_within_its_scope_alone(store: &dyn Store) {
    // Scopes that look alike when their names are joined.
    let names = [
        ("a", "b", "c"),
        ("ab", "", "c"),
        ("a", "", "bc"),
        ("", "a", "bc"),
        ("a", "b", "C"),
    ];
    let scope_of = |(agent, tenant, owner): (&str, &str, &str)| Scope {
        agent: Arc::from(agent),
        tenant: Arc::from(tenant),
        owner: crate::model::Caller::new(owner),
    };
    for (number, name) in names.into_iter().enumerate() {
        let task = NewTask {
            scope: scope_of(name),
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
    for (number, name) in names.into_iter().enumerate() {
        for other in 0..names.len() {
            let id = TaskId::from(format!("t{other}"));
            let found = expect_ok(
                store.find(&scope_of(name), &id).await,
                "looking for a task never fails",
            );
            expect_true(
                found.is_some() == (number == other),
                "a task of another scope is as good as none",
            );
        }
        let mine = expect_ok(
            store.find(&scope_of(name), &"mine".into()).await,
            "looking for an alias never fails",
        );
        let mine = mine.map(|head| head.id.to_string());
        expect_eq(
            mine,
            Some(format!("t{number}")),
            "an alias leads to the task of its own scope",
        );
        let page = store
            .list(
                &scope_of(name),
                &crate::store::TaskQuery {
                    limit: 10,
                    ..Default::default()
                },
            )
            .await;
        expect_eq(
            expect_ok(page, "tasks can be listed").total,
            1,
            "a list stays within its scope",
        );
    }
    let head = find_in(store, &scope_of(names[0]), "t0").await;
    let stolen = Head {
        scope: scope_of(names[1]),
        ..head.clone()
    };
    expect_eq(
        log(store, &stolen).await,
        Vec::new(),
        "a head with another scope reads nothing",
    );
    let refused = store
        .append(&stolen, Seq(1), &status_batch(TaskState::Failed, 5_000))
        .await;
    expect_true(
        matches!(refused, Err(Error::Conflict)),
        "a head with another scope adds nothing",
    );
    expect_ok(
        store.remove(std::slice::from_ref(&stolen)).await,
        "removing what is not there is no error",
    );
    expect_eq(
        find_in(store, &head.scope, "t0").await,
        head,
        "a head with another scope removes nothing",
    );
}

async fn find_in(store: &dyn Store, scope: &Scope, id: &str) -> Head {
    let found = expect_ok(
        store.find(scope, &id.into()).await,
        "looking for a task never fails",
    );
    found.unwrap_or_else(|| panic!("rule broken: a task is found until it is removed: {id}"))
}

async fn odd_names_are_just_names(store: &dyn Store) {
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
            "ids are any text, told apart by every byte",
        );
    }
}
