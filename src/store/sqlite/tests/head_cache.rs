//! The cache of task heads.

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
async fn cached_heads_follow_commits_and_removals() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let head = create(&store, "t").await.unwrap();
    assert_eq!(position(&store, "t"), None, "no read has cached it yet");
    assert_eq!(found(&store, "t").await, Some(head.clone()));
    for at in 1..5 {
        assert_eq!(position(&store, "t"), Some(at));
        let millis = i64::try_from(at).unwrap();
        store
            .append(&head, Seq(at), &batch("x", TaskState::Working, millis))
            .await
            .unwrap();
        let moved = Head {
            position: Seq(at + 1),
            state: TaskState::Working,
            status_time: time(millis),
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
async fn batches_of_one_commit_are_applied_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("a.db")));
    let head = create(&store, "t").await.unwrap();
    found(&store, "t").await;
    let blocker = block_writer(&store).await;
    let mut callers = JoinSet::new();
    for at in 1..4 {
        let store = Arc::clone(&store);
        let head = head.clone();
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
async fn cached_heads_stay_within_their_scope_and_hide_no_alias() {
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
            "`position` does not resolve aliases"
        );
        assert_eq!(found(&store, "t").await, Some(head.clone()));
    }
}

#[tokio::test]
async fn the_cache_is_bounded() {
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
            assert!(found(&store, id).await.is_some(), "every task is found");
        }
    }
}

#[test]
fn a_head_read_before_a_change_is_not_cached_after_it() {
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
    assert_eq!(known(), None, "read before the commit, inserted after it");

    let version = heads.begin_read(&id);
    heads.insert_if_unchanged(&version, &head);
    assert_eq!(known(), Some(1));
    heads.apply_commit(change(to(2)));
    assert_eq!(
        known(),
        Some(2),
        "inserted before the commit, then updated by it"
    );

    let version = heads.begin_read(&id);
    heads.apply_commit(change(None));
    heads.insert_if_unchanged(&version, &head);
    assert_eq!(known(), None, "read before the removal, inserted after it");

    let version = heads.begin_read(&id);
    heads.insert_if_unchanged(&version, &head);
    heads.apply_rollback(change(to(2)));
    assert_eq!(known(), None, "a failed transaction evicts the head");
}
