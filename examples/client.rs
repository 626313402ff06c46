//! Sends a message to an agent and prints the events: `client http://127.0.0.1:8080 hello`.

use attache::Client;
use attache::model::{Message, StreamResponse};

#[tokio::main]
async fn main() -> attache::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let text = arguments.next().unwrap_or_else(|| "hello".to_owned());
    let client = Client::discover(&url).await?;
    eprintln!("{:?}", client.interface());
    let mut stream = client.stream(Message::user(text)).await?;
    while let Some(event) = stream.next().await {
        match event? {
            StreamResponse::Task(task) => println!("{}", task.status.state),
            StreamResponse::Message(message) => println!("{}", message.text()),
            StreamResponse::StatusUpdate(update) => println!("{}", update.status.state),
            StreamResponse::ArtifactUpdate(update) => println!("{}", update.artifact.as_text()),
        }
    }
    Ok(())
}
