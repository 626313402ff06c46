//! Reload: agents change while the server runs, no request is lost, and running turns end with their old agent.

use std::sync::Arc;

use attache::model::{
    Binding, CancelTaskRequest, ErrorKind, GetTaskRequest, Message, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, Task, TaskState, Version,
};
use attache::{Agent, AgentCard, Client, HostedAgent, Outcome, Server, Turn};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::harness::{Echo, changing, with_deadline};

/// Replies with its own word.
fn saying(word: &'static str) -> impl Agent {
    move |turn: Turn| async move {
        turn.write("said", word).await;
        Ok(Outcome::Completed)
    }
}

/// Waits for a permit.
fn waiting(go: &Arc<Notify>) -> impl Agent {
    let go = go.clone();
    move |turn: Turn| {
        let go = go.clone();
        async move {
            turn.say("waiting").await;
            go.notified().await;
            turn.write("said", "after all").await;
            Ok(Outcome::Completed)
        }
    }
}

fn server() -> Server {
    Server::new(AgentCard::new("Root", "Says it back"), Echo)
}

fn beside(name: &str, agent: impl Agent) -> HostedAgent {
    HostedAgent::new(name, AgentCard::new(name, "Is beside the first"), agent)
}

async fn say(client: &Client) -> attache::Result<Task> {
    match client
        .send_message(SendMessageRequest::new(Message::user("hello")))
        .await?
    {
        SendMessageResponse::Task(task) => Ok(task),
        SendMessageResponse::Message(message) => panic!("{message:?}"),
    }
}

async fn begin(client: &Client) -> Task {
    let request = SendMessageRequest {
        configuration: Some(SendMessageConfiguration {
            return_immediately: true,
            ..Default::default()
        }),
        ..SendMessageRequest::new(Message::user("hello"))
    };
    match client.send_message(request).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("{message:?}"),
    }
}

async fn find(client: &Client, task: &Task) -> attache::Result<Task> {
    client
        .get_task(GetTaskRequest {
            id: task.id.clone(),
            ..Default::default()
        })
        .await
}

#[tokio::test]
async fn r47_a_removed_agent_drains_and_is_gone() {
    let go = Arc::new(Notify::new());
    let local = server()
        .agent(beside("slow", waiting(&go)))
        .serve_in_process()
        .await
        .unwrap();
    let slow = local
        .client(Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_tenant("slow");
    let task = begin(&slow).await;
    let other = begin(&slow).await;
    let subscribe = SubscribeToTaskRequest {
        id: task.id.clone(),
        ..Default::default()
    };
    let mut stream = with_deadline(slow.subscribe_to_task(subscribe, None))
        .await
        .unwrap();
    local.handle().replace(server()).unwrap();
    assert_eq!(
        with_deadline(say(&slow)).await.unwrap_err().kind(),
        ErrorKind::TaskNotFound,
        "nothing new"
    );
    assert!(
        !with_deadline(find(&slow, &task))
            .await
            .unwrap()
            .status
            .state
            .is_terminal(),
        "what runs can be read"
    );
    let cancel = CancelTaskRequest {
        id: other.id.clone(),
        ..Default::default()
    };
    assert_eq!(
        with_deadline(slow.cancel_task(cancel))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Canceled
    );
    // A second reload does not affect the running turn.
    local
        .handle()
        .replace(server().agent(beside("new", Echo)))
        .unwrap();
    assert!(with_deadline(find(&slow, &task)).await.is_ok());
    go.notify_waiters();
    let mut ended = false;
    while let Some(event) = with_deadline(stream.next()).await {
        ended |= format!("{:?}", event.unwrap()).contains("Completed");
    }
    assert!(ended, "the subscriber receives the final event");
    // The runner drops the agent shortly after the last event.
    let gone = async {
        while find(&slow, &task).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    with_deadline(gone).await;
    assert_eq!(
        with_deadline(find(&slow, &task)).await.unwrap_err().kind(),
        ErrorKind::TaskNotFound
    );
    // If the agent is added again, its tasks are available.
    local
        .handle()
        .replace(server().agent(beside("slow", Echo)))
        .unwrap();
    assert_eq!(
        with_deadline(find(&slow, &task))
            .await
            .unwrap()
            .status
            .state,
        TaskState::Completed
    );
}

#[tokio::test]
async fn an_agent_that_is_called_otherwise_keeps_its_tasks() {
    let local = server()
        .agent(beside("old", Echo))
        .serve_in_process()
        .await
        .unwrap();
    let client = |name: &str| {
        local
            .client(Binding::JsonRpc, Version::V1)
            .unwrap()
            .with_tenant(name)
    };
    let task = with_deadline(say(&client("old"))).await.unwrap();
    local
        .handle()
        .replace(server().agent(beside("new", saying("changed")).namespace("old")))
        .unwrap();
    assert_eq!(
        with_deadline(find(&client("new"), &task)).await.unwrap().id,
        task.id
    );
    assert_eq!(
        with_deadline(say(&client("new"))).await.unwrap().text(),
        "changed"
    );
    // The runner drops the agent shortly after the last event.
    let gone = async {
        while find(&client("old"), &task).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    with_deadline(gone).await;
    let twice = server()
        .agent(beside("new", Echo).namespace("old"))
        .agent(beside("old", Echo));
    assert!(
        local
            .handle()
            .replace(twice)
            .unwrap_err()
            .to_string()
            .contains("is used by another agent")
    );
}

#[tokio::test]
async fn r47_the_card_of_a_removed_agent_goes_and_that_of_a_new_one_comes() {
    let (served, running) = changing(server().agent(beside("old", Echo))).await;
    let status = async |path: &str| served.get(path).await.status;
    assert_eq!(status("/agents/old/.well-known/agent-card.json").await, 200);
    running
        .replace(server().agent(beside("new", Echo)))
        .unwrap();
    assert_eq!(status("/agents/old/.well-known/agent-card.json").await, 404);
    assert_eq!(status("/agents/old/tasks").await, 404);
    assert_eq!(status("/agents/new/.well-known/agent-card.json").await, 200);
    assert_eq!(status("/.well-known/agent-card.json").await, 200);
}

#[tokio::test]
async fn r47_what_cannot_be_served_changes_nothing() {
    let local = server()
        .agent(beside("one", saying("one")))
        .serve_in_process()
        .await
        .unwrap();
    let one = local
        .client(Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_tenant("one");
    let twice = server()
        .agent(beside("two", Echo))
        .agent(beside("two", Echo));
    assert!(
        local
            .handle()
            .replace(twice)
            .unwrap_err()
            .message()
            .contains("two")
    );
    let nowhere = server()
        .agent(beside("one", saying("another")))
        .public_url("nowhere");
    assert!(
        local
            .handle()
            .replace(nowhere)
            .unwrap_err()
            .message()
            .contains("public_url")
    );
    assert_eq!(with_deadline(say(&one)).await.unwrap().text(), "one");
}

#[tokio::test]
async fn r47_no_request_is_lost_while_agents_change() {
    let local = server()
        .agent(beside("word", saying("word 0")))
        .serve_in_process()
        .await
        .unwrap();
    let client = local.client(Binding::JsonRpc, Version::V1).unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let client = if caller % 2 == 0 {
            client.clone()
        } else {
            client.clone().with_tenant("word")
        };
        callers.spawn(async move {
            let mut texts = Vec::new();
            for _ in 0..50 {
                texts.push(with_deadline(say(&client)).await.unwrap().text());
            }
            texts
        });
    }
    let words = ["word 1", "word 2", "word 3", "word 4"];
    for word in words.iter().cycle().take(100) {
        local
            .handle()
            .replace(server().agent(beside("word", saying(word))))
            .unwrap();
        tokio::task::yield_now().await;
    }
    let said = with_deadline(callers.join_all()).await;
    assert_eq!(said.iter().flatten().count(), 400);
    assert!(
        said.iter()
            .flatten()
            .all(|text| text == "hello" || text.starts_with("word ")),
        "{said:?}"
    );
    assert_eq!(
        with_deadline(say(&client.with_tenant("word")))
            .await
            .unwrap()
            .text(),
        "word 4",
        "the newest"
    );
}

/// A running turn stays with its agent; the next turn uses the new one.
#[tokio::test]
async fn r47_a_changed_agent_works_on_what_comes_next() {
    let go = Arc::new(Notify::new());
    let local = server()
        .agent(beside("word", waiting(&go)))
        .serve_in_process()
        .await
        .unwrap();
    let word = local
        .client(Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_tenant("word");
    let task = begin(&word).await;
    local
        .handle()
        .replace(server().agent(beside("word", saying("new"))))
        .unwrap();
    assert_eq!(with_deadline(say(&word)).await.unwrap().text(), "new");
    go.notify_waiters();
    let ended = async {
        loop {
            let found = find(&word, &task).await.unwrap();
            if found.status.state.is_terminal() {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(with_deadline(ended).await.text(), "after all");
}
