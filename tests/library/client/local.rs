//! Clients of a server in the same process.

use attache::model::{
    Binding, ErrorKind, GetTaskRequest, Message, SendMessageRequest, SendMessageResponse, Version,
};
use attache::{AgentCard, Failure, InProcessServer, Outcome, Server, Turn};

use crate::harness::{Echo, with_deadline};

async fn local(agent: impl attache::Agent) -> InProcessServer {
    with_deadline(Server::new(AgentCard::new("Echo", "Says it back"), agent).serve_in_process())
        .await
        .unwrap()
}

fn hello() -> SendMessageRequest {
    SendMessageRequest::new(Message::user("hello"))
}

#[tokio::test]
async fn clients_of_one_server_share_its_tasks() {
    let server = local(Echo).await;
    let old = server.client(Binding::JsonRpc, Version::V03).unwrap();
    let new = server.client(Binding::HttpJson, Version::V1).unwrap();
    let SendMessageResponse::Task(task) = with_deadline(old.send_message(hello())).await.unwrap()
    else {
        panic!("no task");
    };
    let request = GetTaskRequest {
        id: task.id.clone(),
        ..Default::default()
    };
    assert_eq!(with_deadline(new.get_task(request)).await.unwrap(), task);
}

#[tokio::test]
async fn calls_and_turns_end_with_the_server() {
    let hangs = |_: Turn| std::future::pending::<Result<Outcome, Failure>>();
    let server = local(hangs).await;
    let client = server.client(Binding::JsonRpc, Version::V1).unwrap();
    let mut stream = with_deadline(client.send_streaming_message(hello()))
        .await
        .unwrap();
    with_deadline(stream.next()).await.unwrap().unwrap();
    drop(server);
    // The stream ends or is cut; events in flight may still arrive.
    while let Some(Ok(_)) = with_deadline(stream.next()).await {}
    let gone = with_deadline(client.send_message(hello()))
        .await
        .unwrap_err();
    assert_eq!(
        (gone.kind(), gone.message()),
        (ErrorKind::Unavailable, "cannot connect to the agent")
    );
}
