//! What is known of tasks without asking the file.

use super::super::head_cache::HeadChange;
use super::*;

async fn found(store: &Sqlite, id: &str) -> Option<Head> {
    store.find(&scope(), &id.into()).await.unwrap()
}

fn position(store: &Sqlite, id: &str) -> Option<u64> {
    store
        .position(&scope(), &id.into())
        .map(|position| position.0)
}

#[tokio::test]
async fn what_is_known_of_a_task_moves_with_every_commit_and_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let head = create(&store, "t").await.unwrap();
    assert_eq!(position(&store, "t"), None, "nobody has read it yet");
    assert_eq!(found(&store, "t").await, Some(head.clone()));
    for at in 1..5 {
        assert_eq!(position(&store, "t"), Some(at));
        let millis = i64::try_from(at).unwrap();
        store
            .append(&head, Seq(at), &batch("x", TaskState::Working, millis))
            .await
            .unwrap();
        let (position, status_time) = (Seq(at + 1), time(millis));
        let moved = Head {
            position,
            state: TaskState::Working,
            status_time,
            ..head.clone()
        };
        assert_eq!(found(&store, "t").await, Some(moved));
    }
    let refused = store
        .append(&head, Seq(2), &batch("x", TaskState::Completed, 9))
        .await;
    assert!(matches!(refused, Err(Error::Conflict)));
    assert_eq!(position(&store, "t"), Some(5));
    store.remove(std::slice::from_ref(&head)).await.unwrap();
    assert_eq!(
        (position(&store, "t"), found(&store, "t").await),
        (None, None)
    );
}

#[tokio::test]
async fn several_batches_of_one_commit_are_known_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("a.db")));
    let head = create(&store, "t").await.unwrap();
    found(&store, "t").await;
    let blocker = block_writer(&store).await;
    let mut callers = JoinSet::new();
    for at in 1..4 {
        let (store, head) = (Arc::clone(&store), head.clone());
        callers.spawn(async move {
            store
                .append(&head, Seq(at), &batch("x", TaskState::Working, 2))
                .await
        });
        tokio::task::yield_now().await;
    }
    assert_eq!(position(&store, "t"), Some(1), "nothing is committed yet");
    drop(blocker);
    assert!(callers.join_all().await.iter().all(Result::is_ok));
    assert_eq!(position(&store, "t"), Some(4));
}

#[tokio::test]
async fn what_is_known_stays_within_its_scope_and_hides_no_alias() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let head = create(&store, "t").await.unwrap();
    found(&store, "t").await;
    let bob = Scope {
        owner: Caller::new("bob"),
        ..scope()
    };
    assert_eq!(store.position(&bob, &"t".into()), None);
    assert_eq!(store.find(&bob, &"t".into()).await.unwrap(), None);
    let named = NewTask {
        scope: bob.clone(),
        alias: Some("t".into()),
        ..new_task("u")
    };
    store.create(&named).await.unwrap();
    for _ in 0..2 {
        let by_alias = store.find(&bob, &"t".into()).await.unwrap().unwrap();
        assert_eq!((by_alias.id.as_str(), &by_alias.scope), ("u", &bob));
        assert_eq!(
            store.position(&bob, &"t".into()),
            None,
            "a position is that of an id"
        );
        assert_eq!(found(&store, "t").await, Some(head.clone()));
    }
}

#[tokio::test]
async fn no_more_is_known_than_was_allowed() {
    let folder = tempfile::tempdir().unwrap();
    for most in [0, 3] {
        let options = Options {
            max_known_tasks: most,
            ..Options::default()
        };
        let store = Sqlite::open(folder.path().join(format!("{most}.db")), options).unwrap();
        let ids: Vec<String> = (0..10).map(|number| format!("t{number}")).collect();
        for id in &ids {
            create(&store, id).await.unwrap();
            assert!(found(&store, id).await.is_some());
        }
        assert_eq!(
            ids.iter()
                .filter(|id| position(&store, id).is_some())
                .count(),
            most
        );
        for id in &ids {
            assert!(found(&store, id).await.is_some(), "all of them are there");
        }
    }
}

#[test]
fn what_was_read_before_a_change_is_not_remembered_behind_it() {
    let heads = HeadCache::new(9);
    let id = TaskId::from("t");
    let head = Head {
        id: id.clone(),
        scope: scope(),
        context_id: "c".into(),
        position: Seq(1),
        state: TaskState::Working,
        status_time: time(1),
    };
    let change = |to| std::iter::once(HeadChange { id: id.clone(), to });
    let to = |position| Some((Seq(position), TaskState::Working, time(2)));
    let known = || heads.position(&scope(), &id).map(|position| position.0);

    let version = heads.begin_read(&id);
    heads.apply_commit(change(to(2)));
    heads.insert_if_unchanged(&version, &head);
    assert_eq!(
        known(),
        None,
        "it was read before the commit, and comes behind it"
    );

    let version = heads.begin_read(&id);
    heads.insert_if_unchanged(&version, &head);
    assert_eq!(known(), Some(1));
    heads.apply_commit(change(to(2)));
    assert_eq!(
        known(),
        Some(2),
        "it was read before the commit, and came before it"
    );

    let version = heads.begin_read(&id);
    heads.apply_commit(change(None));
    heads.insert_if_unchanged(&version, &head);
    assert_eq!(known(), None, "it was removed");

    let version = heads.begin_read(&id);
    heads.insert_if_unchanged(&version, &head);
    heads.apply_rollback(change(to(2)));
    assert_eq!(
        known(),
        None,
        "what came of a transaction that failed, the file knows"
    );
}
