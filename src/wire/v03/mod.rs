//! JSON of 0.3, and of 0.1 and 0.2, which are read as 0.3.
//!
//! Deserialized shapes (`V03Message`, `V03Task`, …) convert to the model. Serialization uses
//! [`V03`], a wrapper around a reference to the model, so that nothing is cloned.

mod message;
mod part;
pub(super) mod proto_json;
mod push;
mod request;
mod task;

use crate::model::TaskId;

pub(super) use message::V03Message;
pub(super) use push::V03PushConfig;
pub(super) use push::parse_push_config_name;
pub(super) use request::{
    V03PushConfigParams, V03SendParams, V03TaskParams, parse_task_name, write_configuration,
    zero_as_absent,
};
pub(super) use task::{V03ArtifactEvent, V03StatusEvent, V03StatusEventWriter, V03Task};

/// Value of the model, serialized as 0.3 JSON-RPC: `kind` first, lower-case enums.
pub(super) struct V03<'a, T: ?Sized>(pub(super) &'a T, pub(super) Audience<'a>);

/// Clients that a serialized value is for.
#[derive(Clone, Copy)]
pub(super) enum Audience<'a> {
    /// Clients of 0.2 and 0.3.
    V03,
    /// 0.3 clients that run tools and read the agent's question from `inputRequest`.
    Tools,
    /// 0.1 clients, which expect the member names of 0.1 and the task id that they chose.
    V01(Option<&'a TaskId>),
}

impl Audience<'_> {
    fn is_v01(self) -> bool {
        matches!(self, Audience::V01(_))
    }
}
