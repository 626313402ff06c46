//! Sends a message with a webhook, and prints the notifications until the task has ended.
//!
//! `attache demo`, then `cargo run --example push_receiver -- http://127.0.0.1:41241 "stream 3"`.

use attache::model::StreamResponse;
use attache::model::{Message, PushConfig, SendMessageConfiguration, SendMessageRequest};
use attache::{Client, PushReceiver, PushReceiverSettings};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("http://127.0.0.1:8080".into());
    let text = arguments.next().unwrap_or("hello".into());

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let hook = format!("http://{}/hook", listener.local_addr()?);
    let (receiver, mut notifications) = PushReceiver::new(PushReceiverSettings {
        token: Some("a random token".into()),
        ..PushReceiverSettings::default()
    });
    let mut request = SendMessageRequest::new(Message::user(text));
    request.configuration = Some(SendMessageConfiguration {
        return_immediately: true,
        task_push_notification_config: Some(PushConfig {
            url: hook,
            token: Some("a random token".into()),
            ..PushConfig::default()
        }),
        ..SendMessageConfiguration::default()
    });

    let follow = async {
        let client = Client::discover(&url).await?;
        client.send(request).await?;
        while let Some(notification) = notifications.next().await {
            let StreamResponse::StatusUpdate(update) = notification.event else {
                continue;
            };
            println!("{}", update.status.state);
            if update.status.state.is_terminal() {
                break;
            }
        }
        attache::Result::<()>::Ok(())
    };
    tokio::select! {
        () = receiver.serve(listener) => {}
        done = follow => done?,
    }
    Ok(())
}
