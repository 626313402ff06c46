//! The client for programs that do not wait in parallel: each call waits where it stands.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::TaskStream;
use crate::model::{
    AgentCard, CancelTaskRequest, Error, GetTaskRequest, ListTasksRequest, ListTasksResponse,
    Result, SendMessageRequest, SendMessageResponse, Seq, StreamResponse, Task, TaskId,
};

/// A [`Client`](super::Client) whose calls wait. Not for use inside an async runtime, where it would stop everybody.
///
/// ```no_run
/// use attache::BlockingClient;
/// use attache::model::Message;
///
/// # fn main() -> attache::Result<()> {
/// let client = BlockingClient::discover("http://127.0.0.1:8080")?;
/// println!("{}", client.send(Message::user("hello"))?.text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BlockingClient {
    client: super::Client,
    runtime: Arc<Runtime>,
}

impl BlockingClient {
    /// Finds the card of the agent at this url; see [`super::Client::discover`].
    ///
    /// # Errors
    /// As there.
    pub fn discover(url: &str) -> Result<Self> {
        let runtime = runtime()?;
        let client = runtime.block_on(super::Client::discover(url))?;
        Ok(Self {
            client,
            runtime: Arc::new(runtime),
        })
    }

    /// A client that does as this one does.
    ///
    /// # Errors
    /// The system gives us no runtime.
    pub fn new(client: super::Client) -> Result<Self> {
        Ok(Self {
            client,
            runtime: Arc::new(runtime()?),
        })
    }

    /// The client behind it.
    #[must_use]
    pub fn client(&self) -> &super::Client {
        &self.client
    }

    /// The card it was made from, if there was one.
    #[must_use]
    pub fn card(&self) -> Option<&AgentCard> {
        self.client.card()
    }

    /// Sends a message and waits for the end; see [`super::Client::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, request: impl Into<SendMessageRequest>) -> Result<SendMessageResponse> {
        self.wait(self.client.send(request))
    }

    /// Sends a message and gives what happens, event by event; see [`super::Client::stream`].
    ///
    /// # Errors
    /// As there.
    pub fn stream(&self, request: impl Into<SendMessageRequest>) -> Result<BlockingTaskStream> {
        let stream = self.wait(self.client.stream(request))?;
        Ok(BlockingTaskStream {
            stream,
            runtime: self.runtime.clone(),
        })
    }

    /// Follows a task to its end; see [`super::Client::follow`].
    #[must_use]
    pub fn follow(&self, id: impl Into<TaskId>, after: Option<Seq>) -> BlockingTaskStream {
        let _entered = self.runtime.enter();
        BlockingTaskStream {
            stream: self.client.follow(id, after),
            runtime: self.runtime.clone(),
        }
    }

    /// Reads a task.
    ///
    /// # Errors
    /// As [`super::Client::get_task`].
    pub fn get_task(&self, id: impl Into<TaskId>) -> Result<Task> {
        self.wait(self.client.get_task(GetTaskRequest {
            id: id.into(),
            ..Default::default()
        }))
    }

    /// Lists tasks by page.
    ///
    /// # Errors
    /// As [`super::Client::list_tasks`].
    pub fn list_tasks(&self, request: ListTasksRequest) -> Result<ListTasksResponse> {
        self.wait(self.client.list_tasks(request))
    }

    /// Asks for a task to be canceled.
    ///
    /// # Errors
    /// As [`super::Client::cancel_task`].
    pub fn cancel_task(&self, id: impl Into<TaskId>) -> Result<Task> {
        self.wait(self.client.cancel_task(CancelTaskRequest {
            id: id.into(),
            ..Default::default()
        }))
    }

    /// Waits for anything else that [`client`](Self::client) can do.
    pub fn wait<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::internal)
}

/// The events of a task, one after the other; see [`TaskStream`].
pub struct BlockingTaskStream {
    stream: TaskStream,
    runtime: Arc<Runtime>,
}

impl BlockingTaskStream {
    /// The task as far as it is known.
    #[must_use]
    pub fn task(&self) -> Option<&Task> {
        self.stream.task()
    }
}

impl Iterator for BlockingTaskStream {
    type Item = Result<StreamResponse>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.stream.next())
    }
}
