//! Blocking client, for programs without an async runtime.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::TaskStream;
use crate::model::{
    AgentCard, CancelTaskRequest, Error, GetTaskRequest, ListTasksRequest, ListTasksResponse,
    Result, SendMessageRequest, SendMessageResponse, Seq, StreamResponse, Task, TaskId,
};

/// [`Client`](super::Client) with blocking calls. Must not be used inside an async runtime: it would block a worker
/// thread.
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
    /// Finds the card of the agent at `url`; see [`super::Client::discover`].
    ///
    /// # Errors
    /// As [`super::Client::discover`].
    pub fn discover(url: &str) -> Result<Self> {
        let runtime = runtime()?;
        let client = runtime.block_on(super::Client::discover(url))?;
        Ok(Self {
            client,
            runtime: Arc::new(runtime),
        })
    }

    /// Wraps an async client.
    ///
    /// # Errors
    /// Internal: the runtime could not be created.
    pub fn new(client: super::Client) -> Result<Self> {
        Ok(Self {
            client,
            runtime: Arc::new(runtime()?),
        })
    }

    /// Returns the async client.
    #[must_use]
    pub fn client(&self) -> &super::Client {
        &self.client
    }

    /// Returns the agent card that [`discover`](Self::discover) read.
    #[must_use]
    pub fn card(&self) -> Option<&AgentCard> {
        self.client.card()
    }

    /// Sends a message and waits until its task is at rest; see [`super::Client::send`].
    ///
    /// # Errors
    /// As [`super::Client::send`].
    pub fn send(&self, request: impl Into<SendMessageRequest>) -> Result<SendMessageResponse> {
        self.wait(self.client.send(request))
    }

    /// Sends a message and returns the events of its task; see [`super::Client::stream`].
    ///
    /// # Errors
    /// As [`super::Client::stream`].
    pub fn stream(&self, request: impl Into<SendMessageRequest>) -> Result<BlockingTaskStream> {
        let stream = self.wait(self.client.stream(request))?;
        Ok(BlockingTaskStream {
            stream,
            runtime: self.runtime.clone(),
        })
    }

    /// Follows a task until it has ended; see [`super::Client::follow`].
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

    /// Requests the cancellation of a task.
    ///
    /// # Errors
    /// As [`super::Client::cancel_task`].
    pub fn cancel_task(&self, id: impl Into<TaskId>) -> Result<Task> {
        self.wait(self.client.cancel_task(CancelTaskRequest {
            id: id.into(),
            ..Default::default()
        }))
    }

    /// Runs any other call of [`client`](Self::client) to completion.
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

/// Iterator over the events of a task; see [`TaskStream`].
pub struct BlockingTaskStream {
    stream: TaskStream,
    runtime: Arc<Runtime>,
}

impl BlockingTaskStream {
    /// Returns the task as known so far.
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
