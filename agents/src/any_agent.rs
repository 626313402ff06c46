//! Type-erased agents, for lists of agents of different types.

use std::pin::Pin;
use std::sync::Arc;

use attache::model::{Call, Message, Task};
use attache::{Agent, Failure, Outcome, Turn};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Type-erased agent behind an `Arc`. Clones share the agent.
///
/// ```
/// use attache_agents::{AnyAgent, Echo, demo_agent};
/// let agents = [AnyAgent::new(Echo), AnyAgent::new(demo_agent())];
/// ```
#[derive(Clone)]
pub struct AnyAgent(Arc<dyn ErasedAgent>);

impl AnyAgent {
    /// Erases the type of an agent.
    pub fn new(agent: impl Agent) -> Self {
        Self(Arc::new(agent))
    }
}

impl Agent for AnyAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        self.0.run(turn).await
    }

    async fn reply(&self, message: &Message, call: &Call) -> Option<Message> {
        self.0.reply(message, call).await
    }

    async fn on_canceled(&self, task: &Task) {
        self.0.on_canceled(task).await;
    }

    fn needs_durable_start(&self) -> bool {
        self.0.needs_durable_start()
    }
}

impl std::fmt::Debug for AnyAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnyAgent")
    }
}

/// Object-safe form of [`Agent`].
trait ErasedAgent: Send + Sync {
    fn run(&self, turn: Turn) -> BoxFuture<'_, Result<Outcome, Failure>>;
    fn reply<'a>(&'a self, message: &'a Message, call: &'a Call) -> BoxFuture<'a, Option<Message>>;
    fn on_canceled<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, ()>;
    fn needs_durable_start(&self) -> bool;
}

impl<A: Agent> ErasedAgent for A {
    fn run(&self, turn: Turn) -> BoxFuture<'_, Result<Outcome, Failure>> {
        Box::pin(Agent::run(self, turn))
    }

    fn reply<'a>(&'a self, message: &'a Message, call: &'a Call) -> BoxFuture<'a, Option<Message>> {
        Box::pin(Agent::reply(self, message, call))
    }

    fn on_canceled<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, ()> {
        Box::pin(Agent::on_canceled(self, task))
    }

    fn needs_durable_start(&self) -> bool {
        Agent::needs_durable_start(self)
    }
}
