//! What a caller may expect of lists: 04 §3.6.

use attache::{Failure, Outcome, Settings, Turn};
use serde_json::{Value, json};

use crate::harness::{Running, message, start, start_with};

/// Asks when told to, else completes with a result.
async fn agent(turn: Turn) -> Result<Outcome, Failure> {
    turn.write("result", "text").await;
    if turn.text() == "ask" { Ok(Outcome::ask("which?")) } else { Ok(Outcome::Completed) }
}

async fn list(server: &Running, params: Value) -> Value {
    server.result("ListTasks", params).await
}

fn ids(list: &Value) -> Vec<String> {
    list["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

/// Every page, and the ids on all of them.
async fn pages(server: &Running, params: Value) -> (Vec<usize>, Vec<String>) {
    let (mut sizes, mut all, mut token) = (Vec::new(), Vec::new(), json!(""));
    loop {
        let mut params = params.clone();
        params["pageToken"] = token;
        let page = list(server, params).await;
        sizes.push(ids(&page).len());
        all.extend(ids(&page));
        token = page["nextPageToken"].clone();
        if token == "" {
            return (sizes, all);
        }
    }
}

#[tokio::test]
async fn a_list_has_the_newest_status_first_and_says_how_many_there_are() {
    let server = start(agent).await;
    let empty = list(&server, json!({})).await;
    assert_eq!(empty, json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}));
    let first = server.say("ask", json!({})).await;
    for _ in 0..4 {
        server.say("done", json!({})).await;
    }
    server.say("ask", json!({"taskId": first["id"]})).await;
    let all = list(&server, json!({})).await;
    assert_eq!(
        (&all["totalSize"], &all["pageSize"], &all["nextPageToken"]),
        (&json!(5), &json!(50), &json!(""))
    );
    let order: Vec<_> = all["tasks"].as_array().unwrap().iter().map(place).collect();
    assert!(order.is_sorted_by(|one, two| one > two), "{order:?}");
    for (size, expected) in [(1, vec![1; 5]), (2, vec![2, 2, 1]), (5, vec![5]), (4, vec![4, 1]), (6, vec![5])]
    {
        assert_eq!(pages(&server, json!({"pageSize": size})).await, (expected, ids(&all)), "pageSize {size}");
    }
}

fn place(task: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&task["status"]["timestamp"]), text(&task["id"]))
}

#[tokio::test]
async fn a_list_has_only_what_was_asked_for() {
    let server = start_with(agent, |server| server.tenants(["blue"])).await;
    let asked = server.say("ask", json!({"contextId": "c"})).await;
    let done = server.say("done", json!({"contextId": "c"})).await;
    let other = server.say("done", json!({"contextId": "d"})).await;
    let blue = json!({"tenant": "blue", "message": message("done", json!({}))});
    let blue = server.result("SendMessage", blue).await["task"].clone();
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let expect =
        |tasks: &[&Value]| sorted(tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect());
    let time = |task: &Value| task["status"]["timestamp"].clone();
    for (params, tasks) in [
        (json!({}), &[&asked, &done, &other][..]),
        (json!({"contextId": "c"}), &[&asked, &done]),
        (json!({"contextId": "c", "status": "TASK_STATE_COMPLETED"}), &[&done]),
        (json!({"status": "TASK_STATE_UNSPECIFIED", "contextId": "d"}), &[&other]),
        (json!({"status": "TASK_STATE_CANCELED"}), &[]),
        (json!({"contextId": "nobody's"}), &[]),
        (json!({"tenant": "blue"}), &[&blue]),
        (json!({"statusTimestampAfter": time(&asked)}), &[&asked, &done, &other]),
        (json!({"statusTimestampAfter": "2999-01-01T00:00:00Z"}), &[]),
    ] {
        let page = list(&server, params.clone()).await;
        assert_eq!(sorted(ids(&page)), expect(tasks), "{params}");
        assert_eq!(page["totalSize"], tasks.len(), "{params}");
    }
    let task = |page: Value| page["tasks"][0].clone();
    let bare = task(list(&server, json!({"contextId": "d", "historyLength": 0})).await);
    assert_eq!((bare.get("artifacts"), bare.get("history")), (None, None));
    assert_eq!(task(list(&server, json!({"contextId": "d", "includeArtifacts": true})).await), other);
}

#[tokio::test]
async fn a_page_token_survives_what_comes_and_goes() {
    let settings = Settings {
        max_tasks: Some(3),
        sweep_every: std::time::Duration::from_millis(1),
        ..Settings::default()
    };
    let server = start_with(agent, |server| server.settings(settings)).await;
    let mut asked = Vec::new();
    for _ in 0..6 {
        asked.push(server.say("ask", json!({})).await["id"].clone());
    }
    let first = list(&server, json!({"pageSize": 3})).await;
    let rest = pages(&server, json!({})).await.1.split_off(3);
    // The last of the page moves to the front, and so do two new ones; then all that ended before are forgotten.
    let moved = &first["tasks"][2]["id"];
    server.say("ask", json!({"taskId": moved})).await;
    for _ in 0..10 {
        server.say("done", json!({})).await;
    }
    let second = list(&server, json!({"pageSize": 3, "pageToken": first["nextPageToken"]})).await;
    assert_eq!(ids(&second), rest);
    assert_eq!(second["nextPageToken"], "");
}

#[tokio::test]
async fn a_page_token_that_is_none_of_ours_is_refused_by_name() {
    let server = start_with(agent, |server| server.tenants(["blue"])).await;
    for _ in 0..3 {
        server.say("done", json!({"contextId": "c"})).await;
    }
    let page = list(&server, json!({"pageSize": 1, "contextId": "c"})).await;
    let token = page["nextPageToken"].as_str().unwrap();
    let with = |token: &str| json!({"pageSize": 1, "contextId": "c", "pageToken": token});
    assert_eq!(ids(&list(&server, with(token)).await).len(), 1);
    let mut wrong = vec![
        with("garbled"),
        with("!"),
        with("e30"),
        with("eyJ0IjoxLCJpIjoieCIsImYiOiJ5In0"),
        with(&token[1..]),
        with(&format!("{token}=")),
        json!({"pageSize": 1, "pageToken": token}),
        json!({"pageSize": 1, "contextId": "d", "pageToken": token}),
        json!({"pageSize": 1, "contextId": "c", "tenant": "blue", "pageToken": token}),
        json!({"pageSize": 1, "contextId": "c", "status": "TASK_STATE_WORKING", "pageToken": token}),
    ];
    wrong.push(with(&"A".repeat(100_000)));
    for params in wrong {
        let error = server.error("ListTasks", params.clone()).await;
        assert_eq!(error["code"], -32602, "{params}");
        assert_eq!(error["data"][1]["fieldViolations"][0]["field"], "pageToken", "{params}");
    }
    for size in [0, -1, 101] {
        let error = server.error("ListTasks", json!({"pageSize": size})).await;
        assert_eq!(
            (&error["code"], &error["data"][1]["fieldViolations"][0]["field"]),
            (&json!(-32602), &json!("pageSize"))
        );
    }
}
