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

use std::borrow::Cow;

use crate::model::{Object, Publish, TaskId};

pub(super) use message::{V03List, V03Message, V03SentMessage, non_empty_metadata};
pub(super) use push::parse_push_config_name;
#[cfg(feature = "grpc")]
pub(super) use push::set_authentication;
pub(super) use push::{V1PushConfig, V03PushConfig, V03PushSuccess};
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
    /// 0.3 clients that run tools: they understand the parts `tool-use` and `tool-result`.
    Tools,
    /// KAOS clients, whose parts have `type` in place of `kind`.
    Kaos,
    /// 0.1 clients, which expect the member names of 0.1 and the task id that they chose.
    V01(Option<&'a TaskId>),
}

impl Audience<'_> {
    /// Whether values for this audience still have their internal metadata, which select the form of parts.
    fn needs_publishing(self) -> bool {
        matches!(self, Audience::Tools)
    }

    /// Returns the metadata to write.
    fn metadata(self, metadata: &Option<Object>) -> Cow<'_, Option<Object>> {
        if self.needs_publishing() {
            metadata.published()
        } else {
            Cow::Borrowed(metadata)
        }
    }

    fn is_v01(self) -> bool {
        matches!(self, Audience::V01(_))
    }
}
