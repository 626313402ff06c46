//! Any agent behind one type, for lists of agents of different kinds.

use std::pin::Pin;
use std::sync::Arc;

use attache::model::{Call, Message, Task};
use attache::{Agent, Failure, Outcome, Turn};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any agent. A clone is the same agent.
///
/// ```
/// use attache_agents::{Echo, Shared, practice};
/// let agents = [Shared::new(Echo), Shared::new(practice())];
/// ```
#[derive(Clone)]
pub struct Shared(Arc<dyn Any>);

impl Shared {
    /// Takes an agent.
    pub fn new(agent: impl Agent) -> Self {
        Self(Arc::new(agent))
    }
}

impl Agent for Shared {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        self.0.run(turn).await
    }

    async fn reply(&self, message: &Message, call: &Call) -> Option<Message> {
        self.0.reply(message, call).await
    }

    async fn canceled(&self, task: &Task) {
        self.0.canceled(task).await;
    }

    fn durable_start(&self) -> bool {
        self.0.durable_start()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

trait Any: Send + Sync {
    fn run(&self, turn: Turn) -> Boxed<'_, Result<Outcome, Failure>>;
    fn reply<'a>(&'a self, message: &'a Message, call: &'a Call) -> Boxed<'a, Option<Message>>;
    fn canceled<'a>(&'a self, task: &'a Task) -> Boxed<'a, ()>;
    fn durable_start(&self) -> bool;
}

impl<A: Agent> Any for A {
    fn run(&self, turn: Turn) -> Boxed<'_, Result<Outcome, Failure>> {
        Box::pin(Agent::run(self, turn))
    }

    fn reply<'a>(&'a self, message: &'a Message, call: &'a Call) -> Boxed<'a, Option<Message>> {
        Box::pin(Agent::reply(self, message, call))
    }

    fn canceled<'a>(&'a self, task: &'a Task) -> Boxed<'a, ()> {
        Box::pin(Agent::canceled(self, task))
    }

    fn durable_start(&self) -> bool {
        Agent::durable_start(self)
    }
}
