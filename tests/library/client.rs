//! Client tests: every operation over every binding and version, against scripted peers and the server of this crate.

mod answers;
#[cfg(feature = "blocking")]
mod blocking;
mod choosing;
mod connections;
mod credentials;
mod discovery;
mod files;
mod following;
mod foreign;
#[cfg(feature = "grpc")]
mod grpc;
#[path = "../stand_in/kaos.rs"]
mod kaos;
mod late_answers;
mod local;
mod oauth;
mod peer;
mod receiver;
mod seeds;
mod sending;
#[cfg(feature = "jws")]
mod signatures;
mod streams;
#[cfg(feature = "tls")]
mod tls;
mod watching;

use attache::model::{Error, Request, Response, StreamResponse};
use attache::{Client, EventStream};

use crate::harness::with_deadline;

/// Result of a call.
#[derive(Debug, PartialEq)]
enum CallResult {
    Response(Response),
    /// Events of a stream, and the error that ended it.
    Events(Vec<StreamResponse>, Option<Error>),
}

/// Calls the operation of a request.
async fn call(client: &Client, request: Request) -> Result<CallResult, Error> {
    let response = match request {
        Request::SendStreamingMessage(request) => {
            return with_deadline(async {
                Ok(collect_events(client.send_streaming_message(*request).await?).await)
            })
            .await;
        }
        Request::SubscribeToTask(request) => {
            return with_deadline(async {
                Ok(collect_events(client.subscribe_to_task(request, None).await?).await)
            })
            .await;
        }
        Request::SendMessage(request) => {
            Response::SendMessage(with_deadline(client.send_message(*request)).await?)
        }
        Request::GetTask(request) => Response::Task(with_deadline(client.get_task(request)).await?),
        Request::ListTasks(request) => {
            Response::ListTasks(with_deadline(client.list_tasks(request)).await?)
        }
        Request::CancelTask(request) => {
            Response::Task(with_deadline(client.cancel_task(request)).await?)
        }
        Request::CreatePushConfig(config) => {
            Response::PushConfig(with_deadline(client.create_push_config(*config)).await?)
        }
        Request::GetPushConfig(request) => {
            Response::PushConfig(with_deadline(client.get_push_config(request)).await?)
        }
        Request::ListPushConfigs(request) => {
            Response::ListPushConfigs(with_deadline(client.list_push_configs(request)).await?)
        }
        Request::DeletePushConfig(request) => {
            with_deadline(client.delete_push_config(request)).await?;
            Response::Empty
        }
        Request::GetExtendedAgentCard(_) => Response::AgentCard(Box::new(
            with_deadline(client.get_extended_agent_card()).await?,
        )),
    };
    Ok(CallResult::Response(response))
}

async fn collect_events(mut stream: EventStream) -> CallResult {
    let mut events = Vec::new();
    loop {
        match stream.next().await {
            Some(Ok((_, event))) => events.push(event),
            Some(Err(error)) => {
                assert!(stream.next().await.is_none(), "an error is the last item");
                return CallResult::Events(events, Some(error));
            }
            None => return CallResult::Events(events, None),
        }
    }
}
