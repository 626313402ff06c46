//! Hooks after a reload, and on the events of recovery.

use attache::HookPhase;
use attache::model::{Binding, Version};

use super::super::send_text;
use super::{Behaviour, TestHook, server};
use crate::harness::with_deadline;

#[tokio::test]
async fn a_reload_replaces_the_hooks() {
    let changing = TestHook::new("mask", Behaviour::Change).hook();
    let local = with_deadline(server([]).serve_in_process()).await.unwrap();
    let client = local.client(Binding::JsonRpc, Version::V1).unwrap();
    let text = async || {
        let task = with_deadline(send_text(&client, "a secret")).await;
        task.artifacts[0].as_text()
    };
    assert_eq!(text().await, "a secret");
    let replaced = local
        .handle()
        .replace(server([changing.phases([HookPhase::Event])]));
    replaced.unwrap();
    assert_eq!(text().await, "a ***");
    local.handle().replace(server([])).unwrap();
    assert_eq!(text().await, "a secret");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn hooks_see_the_end_of_an_interrupted_task() {
    use std::time::Duration;

    use attache::store::{Sqlite, sqlite::Options};
    use attache::{Client, Server};

    use crate::harness::run;

    let folder = tempfile::tempdir().unwrap();
    let store = || Sqlite::open(folder.path().join("tasks.db"), Options::default()).unwrap();
    let mut settings = attache::ServerSettings::default();
    settings.shutdown_grace = Duration::from_millis(50);
    let start = async |server: Server| {
        let server = server.store(store()).server_settings(settings.clone());
        let running = with_deadline(run(server)).await;
        let url = format!("http://{}/", running.address);
        let client = Client::new(&url, Binding::JsonRpc, Version::V1).unwrap();
        (running, client)
    };
    let (mut running, client) = start(server([])).await;
    with_deadline(super::super::begin(&client, "hang")).await;
    running.stop().await;
    drop(running);
    let hook = TestHook::new("audit", Behaviour::Deny);
    let (_running, client) = start(server([hook.hook().phases([HookPhase::Event])])).await;
    let listed = with_deadline(client.list_tasks(Default::default()))
        .await
        .unwrap();
    let task = with_deadline(super::super::wait_until_ended(&client, &listed.tasks[0])).await;
    // A denial cannot keep an interrupted task open.
    let status = task.status.message.unwrap().text();
    assert_eq!(status, "Agent execution failed (interrupted)");
    assert_eq!(hook.seen(), ["audit event TASK_STATE_FAILED"]);
}
