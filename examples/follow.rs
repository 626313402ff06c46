//! Follows a task to its end across disconnects, restarts of the server and restarts of this program.
//!
//! `follow http://127.0.0.1:41241 job-1 "slow 10"`. The file `job-1.task` keeps the position. Run it again to continue.

use attache::model::{Message, Seq, StreamResponse};
use attache::{Client, ClientSettings, TaskStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, job, text] = arguments.as_slice() else {
        return Err("usage: <URL> <JOB> <TEXT>".into());
    };
    let mut settings = ClientSettings::default();
    settings.retries.max_retries = 20;
    settings.retries.idempotency_keys_supported = true;
    let client = Client::builder().settings(settings).discover(url).await?;
    let file = format!("{job}.task");
    let mut stream = match std::fs::read_to_string(&file) {
        Ok(saved) => resume(&client, &saved)?,
        Err(_) => send(&client, job, text).await?,
    };
    while let Some(event) = stream.next().await {
        print(&event?);
        if let (Some(task), Some(at)) = (stream.task(), stream.position()) {
            std::fs::write(&file, format!("{} {}", task.id, at.0))?;
        }
    }
    println!("reconnects: {}", stream.reconnects());
    Ok(())
}

/// Sends the message of a job. If it was sent before, the server returns its task: key and id are those of the job.
async fn send(client: &Client, job: &str, text: &str) -> attache::Result<TaskStream> {
    let client = client.clone().with_header("Idempotency-Key", job)?;
    let mut message = Message::user(text);
    message.message_id = job.into();
    client.stream(message).await
}

/// Continues behind the event that was printed last.
fn resume(client: &Client, saved: &str) -> Result<TaskStream, Box<dyn std::error::Error>> {
    let (task, at) = saved.split_once(' ').ok_or("the file is damaged")?;
    println!("continues {task} after event {at}");
    Ok(client.follow(task, Some(Seq(at.parse()?))))
}

fn print(event: &StreamResponse) {
    match event {
        StreamResponse::Task(task) => {
            let line = format!("{} {} {}", task.id, task.status.state, task.text());
            println!("{}", line.trim_end());
        }
        StreamResponse::Message(message) => println!("{}", message.text()),
        StreamResponse::StatusUpdate(update) => println!("{}", update.status.state),
        StreamResponse::ArtifactUpdate(update) => println!("{}", update.artifact.as_text()),
    }
}
