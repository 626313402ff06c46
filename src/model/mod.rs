//! Data types of A2A: one model that every protocol version is read into and written from.
//!
//! Plain data without I/O or async. `Serialize` and `Deserialize` on these types produce and accept
//! the JSON of A2A 1.0. Codecs for older versions and other bindings live in [`crate::wire`].

mod artifact;
mod base64;
mod card;
mod client_dialect;
mod content_size;
mod error;
mod event;
mod exchange;
mod id;
mod json;
mod limits;
mod memory_size;
mod message;
mod object;
mod published;
mod push;
mod push_request;
mod request;
#[cfg(feature = "schema")]
mod schema;
mod scope;
mod secret;
mod security;
mod task;
mod task_result;
mod time;
mod trace;
pub mod units;
mod version;

pub use artifact::Artifact;
pub use base64::{Base64, InvalidBase64};
pub use card::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface,
    AgentProvider, AgentSkill, KAOS_BINDING,
};
pub use client_dialect::ClientDialect;
pub(crate) use client_dialect::{KIND_KEY, is_sent_as_data, is_tool_kind};
pub use error::{Error, ErrorKind, Result, Violation};
pub use event::{
    CallMetadata, Entry, Event, Seq, StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent,
};
pub use exchange::{Request, Response};
#[cfg(feature = "server")]
pub(crate) use id::random_id;
pub use id::{ArtifactId, ContextId, MessageId, PushConfigId, TaskId};
pub use json::{InvalidJson, Json};
pub(crate) use json::{int32, non_empty, or_default};
pub use limits::Limits;
pub use message::{Content, INPUT_REQUEST, LINEAGE, Message, Part, Role};
#[cfg(test)]
pub(crate) use object::MEMBER_VISITS;
pub use object::Object;
pub(crate) use published::Publish;
pub use push::{AuthenticationInfo, PushConfig};
pub use push_request::{
    DeletePushConfigRequest, GetPushConfigRequest, ListPushConfigsRequest, ListPushConfigsResponse,
};
pub use request::{
    CancelTaskRequest, GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest,
    ListTasksResponse, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    SubscribeToTaskRequest,
};
pub use scope::{Call, Caller, CallerKey, ClientAddress, Scope};
pub use secret::Secret;
pub(crate) use security::OAuthFlowMembers;
pub use security::{
    ApiKeySecurityScheme, AuthorizationCodeFlow, ClientCredentialsFlow, DeviceCodeFlow,
    HttpAuthSecurityScheme, ImplicitFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme,
    OAuthFlows, OpenIdConnectSecurityScheme, PasswordFlow, SecurityRequirement, SecurityScheme,
};
pub use task::{FoldError, Task, TaskState, TaskStatus};
pub use task_result::{NO_CONTENT, OUTPUT_KEY, TaskResult};
pub use time::{InvalidTimestamp, Timestamp};
pub use trace::TraceContext;
pub use version::{Binding, Operation, Version};
