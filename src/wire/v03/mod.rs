//! 0.3 JSON: its shapes, and what is read as 0.3: everything from 0.1 on, and much that lies between.
//!
//! Read are the structs of `part.rs` and its neighbours, each turned into the model; written is [`V03`], which wraps
//! a reference to the model, so that nothing is copied on the way out.

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

/// Something of the model as 0.3 writes it in JSON-RPC: `kind` first, lower-case enums.
pub(super) struct V03<'a, T: ?Sized>(pub(super) &'a T, pub(super) Audience<'a>);

/// Which readers the writer has in mind.
#[derive(Clone, Copy)]
pub(super) enum Audience<'a> {
    /// Those of 0.2 and 0.3.
    V03,
    /// Those of 0.3 who run tools for an agent, and look for what it asks them beside the metadata.
    Tools,
    /// Those of 0.1, who also look for the names of that time, and for the id they gave the task.
    V01(Option<&'a TaskId>),
}

impl Audience<'_> {
    fn is_v01(self) -> bool {
        matches!(self, Audience::V01(_))
    }
}
