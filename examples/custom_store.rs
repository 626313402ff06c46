//! A store of your own: it passes every call to another store and prints its name to stderr.
//!
//! `custom_store` serves an echo agent with it. `custom_store check` runs the conformance suite on it.

use attache::model::{Entry, Message, PushConfigId, Scope, Seq, TaskId, Timestamp};
use attache::store::*;
use attache::{AgentCard, Outcome, Server, Turn, async_trait};

struct Traced(Memory);

/// Passes each method to the inner store. A store for a database implements them itself.
macro_rules! traced_store {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        #[async_trait]
        impl Store for Traced {
            fn is_durable(&self) -> bool { self.0.is_durable() }
            $(async fn $name(&self, $($arg: $type),*) -> Result<$result> {
                eprintln!("{}", stringify!($name));
                self.0.$name($($arg),*).await
            })*
        }
    };
}

traced_store! {
    fn create(task: &NewTask) -> CreateResult;
    fn append(task: &Head, at: Seq, batch: &Batch) -> Seq;
    fn read(task: &Head, after: Seq, limit: ReadLimit) -> Vec<Entry>;
    fn find(scope: &Scope, task: &TaskId) -> Option<Head>;
    fn find_by_key(scope: &Scope, key: &IdempotencyKey) -> Option<IdempotencyRecord>;
    fn remove_keys(before: Timestamp, limit: usize) -> usize;
    fn list(scope: &Scope, query: &TaskQuery) -> TaskPage;
    fn list_unfinished(after: Option<&TaskId>, limit: usize) -> Vec<Head>;
    fn list_runnable(after: Option<&TaskId>, limit: usize) -> Vec<Head>;
    fn list_parked(scope: &Scope, limit: usize) -> Vec<Head>;
    fn list_ended(before: Timestamp, limit: usize) -> Vec<Head>;
    fn count_ended() -> u64;
    fn save_snapshot(task: &Head, at: Seq, snapshot: &Snapshot) -> ();
    fn load_snapshot(task: &Head, max_bytes: usize) -> Option<(Seq, Snapshot)>;
    fn remove(tasks: &[Head]) -> ();
    fn put_config(task: &Head, config: &PushRegistration) -> ();
    fn list_configs(task: &Head) -> Vec<PushRegistration>;
    fn delete_config(task: &Head, id: &PushConfigId) -> ();
    fn list_webhooks(filter: WebhookFilter, after: Option<u64>, limit: usize) -> Vec<Webhook>;
    fn find_webhook(task: &Head, id: &PushConfigId) -> Option<Webhook>;
    fn record_delivery(webhook: &Webhook) -> bool;
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    if address == "check" {
        conformance(async || Traced(Memory::new())).await;
        return Ok(());
    }
    let echo = async |turn: Turn| Ok(Outcome::CompletedWith(Message::agent(turn.text())));
    let server = Server::new(AgentCard::new("Echo", "Echoes"), echo).store(Traced(Memory::new()));
    server.serve(address).await
}
