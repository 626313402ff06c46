//! Follows a task to its end across disconnects, restarts of the server and restarts of this program.
//!
//! `follow http://127.0.0.1:41241 "slow 10"`. The file `task` keeps the task and the position. Run again to continue.

use attache::model::{Message, Seq, StreamResponse};
use attache::{Client, ClientSettings, RetryPolicy, TaskStream};

const FILE: &str = "task";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("http://127.0.0.1:41241".into());
    let text = arguments.next().unwrap_or("hello".into());
    let settings = ClientSettings {
        retries: RetryPolicy {
            max_retries: 20,
            idempotency_keys_supported: true,
            ..RetryPolicy::default()
        },
        ..ClientSettings::default()
    };
    let client = Client::builder().settings(settings).discover(&url).await?;
    let mut stream = open(&client, text).await?;
    while let Some(event) = stream.next().await {
        print(&event?);
        if let (Some(task), Some(at)) = (stream.task(), stream.position()) {
            std::fs::write(FILE, format!("{} {}", task.id, at.0))?;
        }
    }
    println!("reconnects: {}", stream.reconnects());
    std::fs::remove_file(FILE)?;
    Ok(())
}

/// Continues the task of the file, or sends the message.
async fn open(client: &Client, text: String) -> Result<TaskStream, Box<dyn std::error::Error>> {
    let Ok(saved) = std::fs::read_to_string(FILE) else {
        return Ok(client.stream(Message::user(text)).await?);
    };
    let (task, at) = saved.split_once(' ').ok_or("the file `task` is damaged")?;
    println!("continues {task} after event {at}");
    Ok(client.follow(task, Some(Seq(at.parse()?))))
}

fn print(event: &StreamResponse) {
    match event {
        StreamResponse::Task(task) => println!("{} {}", task.id, task.status.state),
        StreamResponse::Message(message) => println!("{}", message.text()),
        StreamResponse::StatusUpdate(update) => println!("{}", update.status.state),
        StreamResponse::ArtifactUpdate(update) => println!("{}", update.artifact.as_text()),
    }
}
