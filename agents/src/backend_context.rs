//! Conversation ids for backends.
//!
//! Callers may choose the context id of a message. A backend that stores conversations by this id would serve the
//! conversation of one caller to another. Backends therefore receive an id that also depends on agent, tenant and caller.

#[cfg(unix)]
use std::sync::Arc;

use attache::Turn;
#[cfg(unix)]
use attache::model::Task;
use attache::model::{ContextId, Message, Scope};
use sha2::{Digest, Sha256};

/// Separates these digests from others over the same fields.
const PURPOSE: &str = "attache backend context 1";

/// Returns the id of the conversation for backends. It is the same for all turns of a conversation, after a restart, and on
/// all replicas.
pub(crate) fn backend_context_id(turn: &Turn) -> ContextId {
    derive(&turn.call().scope, turn.context_id())
}

/// Returns the message of the turn with the conversation id for backends, and without internal metadata.
pub(crate) fn backend_message(turn: &Turn) -> Message {
    let id = backend_context_id(turn);
    with_context(turn.message(), &id)
}

/// Returns the task of the turn with the conversation id for backends, and without internal metadata.
#[cfg(unix)]
pub(crate) fn backend_task(turn: &Turn) -> Task {
    let id = backend_context_id(turn);
    let mut task = turn.task().clone().without_internal_metadata();
    let messages = task.history.iter_mut().chain(&mut task.status.message);
    for message in messages {
        *message = Arc::new(with_context(message, &id));
    }
    task.context_id = id;
    task
}

fn with_context(message: &Message, id: &ContextId) -> Message {
    let mut message = message.clone().without_internal_metadata();
    if message.context_id.is_some() {
        message.context_id = Some(id.clone());
    }
    message
}

/// Derives an id in the form of a UUID. Fields are prefixed with their length, so that they cannot be confused.
fn derive(scope: &Scope, context: &ContextId) -> ContextId {
    let mut hasher = Sha256::new();
    for field in [
        PURPOSE,
        &scope.agent,
        &scope.tenant,
        scope.owner.name(),
        context.as_str(),
    ] {
        hasher.update((field.len() as u64).to_be_bytes());
        hasher.update(field);
    }
    let digest = hasher.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    // Version 8 (custom) and the variant of RFC 9562.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = crate::fingerprint::hex(&bytes);
    let groups = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    ContextId::from(groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::Caller;

    fn id(agent: &str, tenant: &str, owner: &str, context: &str) -> String {
        let scope = Scope {
            agent: agent.into(),
            tenant: tenant.into(),
            owner: Caller::new(owner),
        };
        derive(&scope, &ContextId::from(context)).to_string()
    }

    #[test]
    fn d11_the_id_depends_on_agent_tenant_caller_and_context() {
        // Fixed: a backend finds its conversations after an upgrade.
        assert_eq!(
            id("echo", "", "key:ann", "c"),
            "daa4bbd6-bb6a-84a9-b2ae-d9898aa1c8ae"
        );
        let all = [
            id("echo", "", "key:ann", "c"),
            id("echo", "", "key:ann", "d"),
            id("echo", "", "key:bob", "c"),
            id("echo", "blue", "key:ann", "c"),
            id("other", "", "key:ann", "c"),
            // The boundaries of fields count.
            id("ech", "o", "key:ann", "c"),
            id("echo", "key:", "ann", "c"),
            id("echo", "", "anonymous", "c"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }
}
