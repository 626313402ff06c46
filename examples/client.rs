//! Says something to an agent and shows what comes back, as it comes: `client http://127.0.0.1:8080 hello`.

use attache::model::{Message, SendMessageRequest, SendMessageResponse, StreamResponse};
use attache::{Client, ErrorKind};

#[tokio::main]
async fn main() -> attache::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let text = arguments.next().unwrap_or_else(|| "hello".to_owned());
    let client = Client::discover(&url).await?;
    eprintln!("{:?}", client.interface());
    let request = SendMessageRequest::new(Message::user(text));
    match follow(&client, request.clone()).await {
        // Not every agent streams; the message was not taken, so it can be sent again.
        Err(error) if error.kind() == ErrorKind::UnsupportedOperation => wait(&client, request).await,
        done => done,
    }
}

async fn follow(client: &Client, request: SendMessageRequest) -> attache::Result<()> {
    let mut stream = client.send_streaming_message(request).await?;
    while let Some(event) = stream.next().await {
        match event?.1 {
            StreamResponse::Task(task) => println!("{}", task.status.state),
            StreamResponse::Message(message) => println!("{}", message.text()),
            StreamResponse::StatusUpdate(update) => println!("{}", update.status.state),
            StreamResponse::ArtifactUpdate(update) => show(&update.artifact.parts),
        }
    }
    Ok(())
}

async fn wait(client: &Client, request: SendMessageRequest) -> attache::Result<()> {
    match client.send_message(request).await? {
        SendMessageResponse::Task(task) => {
            println!("{}", task.status.state);
            task.artifacts.iter().for_each(|artifact| show(&artifact.parts));
        }
        SendMessageResponse::Message(message) => println!("{}", message.text()),
    }
    Ok(())
}

fn show(parts: &[attache::model::Part]) {
    parts.iter().filter_map(|part| part.as_text()).for_each(|text| println!("{text}"));
}
