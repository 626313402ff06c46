//! A task whose stored log is damaged (D16), over a restart.

use std::path::Path;
use std::time::Duration;

use attache::store::Sqlite;
use attache::store::sqlite::Options;
use attache::{Agent, Failure, Outcome, ServerSettings, Turn};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{Running, message, start_with, with_deadline};

/// Never ends a turn with the text `hold`.
struct Holds;

impl Agent for Holds {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        if turn.text() == "hold" {
            std::future::pending::<()>().await;
        }
        Ok(Outcome::Completed)
    }
}

async fn serve(file: &Path) -> Running {
    let store = Sqlite::open(file, Options::default()).unwrap();
    let mut settings = ServerSettings::default();
    settings.shutdown_grace = Duration::ZERO;
    start_with(Holds, |server| {
        server.store(store).server_settings(settings)
    })
    .await
}

/// Sends a message, waits for the turn if it ends, and returns the id of the task.
async fn send(server: &Running, text: &str) -> String {
    let configuration = json!({"returnImmediately": text == "hold"});
    let params = json!({"message": message(text, json!({})), "configuration": configuration});
    let result = server.result("SendMessage", params).await;
    result["task"]["id"].as_str().unwrap().to_owned()
}

/// Flips a bit in the first row of a log.
fn damage(file: &Path, task: &str) {
    let tool = Connection::open(file).unwrap();
    let sql = "SELECT task, min(last_position), body FROM batch \
               WHERE task = (SELECT number FROM task WHERE id = ?1)";
    let found = tool.query_row(sql, [task], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    });
    let (number, position, mut body): (i64, i64, Vec<u8>) = found.unwrap();
    let middle = body.len() / 2;
    body[middle] ^= 1;
    let update = "UPDATE batch SET body = ?1 WHERE task = ?2 AND last_position = ?3";
    assert_eq!(tool.execute(update, (body, number, position)).unwrap(), 1);
}

fn find<'a>(tasks: &'a Value, id: &str) -> &'a Value {
    let mut tasks = tasks["tasks"].as_array().unwrap().iter();
    tasks.find(|task| task["id"] == id).unwrap()
}

#[tokio::test]
async fn d16_a_damaged_task_fails_alone_and_does_not_stay_working() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let mut server = serve(&file).await;
    let damaged = send(&server, "hold").await;
    let ended = send(&server, "end").await;
    let also_damaged = send(&server, "end").await;
    server.stop().await;
    damage(&file, &damaged);
    damage(&file, &also_damaged);
    let mut server = serve(&file).await;
    // Recovery has ended the running task in its head, which lists show.
    let recovered = async {
        loop {
            let list = server.result("ListTasks", json!({})).await;
            if find(&list, &damaged)["status"]["state"] != "TASK_STATE_WORKING" {
                return list;
            }
        }
    };
    let list = with_deadline(recovered).await;
    let status = &find(&list, &damaged)["status"];
    assert_eq!(status["state"], "TASK_STATE_FAILED", "{list}");
    let reason = "the stored data of the task is damaged";
    assert_eq!(status["message"]["parts"][0]["text"], reason);
    assert_eq!(
        find(&list, &also_damaged)["status"]["message"]["parts"][0]["text"],
        reason
    );
    let intact = find(&list, &ended);
    assert_eq!(intact["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(list["totalSize"], 3);
    let working = json!({"status": "TASK_STATE_WORKING"});
    let working = server.result("ListTasks", working).await;
    assert_eq!(working["totalSize"], 0, "{working}");
    for id in [&damaged, &also_damaged] {
        let error = server.error("GetTask", json!({"id": id})).await;
        assert_eq!(error["message"], reason, "{error}");
    }
    server.stop().await;
}
