//! 0.3 JSON: its shapes, and what is read as 0.3: everything from 0.1 on, and much that lies between.
//!
//! Read are the structs of `read.rs` and its neighbours, each turned into the model; written is [`V03`], which wraps
//! a reference to the model, so that nothing is copied on the way out.

mod message;
mod push;
mod read;
mod request;
pub(super) mod rest;
mod task;

use crate::model::TaskId;

pub(super) use message::MessageIn;
pub(super) use push::PushConfigIn;
pub(super) use push::split_name;
pub(super) use request::{
    ConfigIdIn, SendIn, TaskIdIn, some_history, task_of, write_configuration,
};
pub(super) use task::{ArtifactEventIn, StatusEventIn, StatusEventOut, TaskIn};

/// Something of the model as 0.3 writes it in JSON-RPC: `kind` first, lower-case enums.
pub(super) struct V03<'a, T: ?Sized>(pub(super) &'a T, pub(super) Age<'a>);

/// Which readers the writer has in mind.
#[derive(Clone, Copy)]
pub(super) enum Age<'a> {
    /// Those of 0.2 and 0.3.
    Today,
    /// Those of 0.3 who run tools for an agent, and look for what it asks them beside the metadata.
    Tools,
    /// Those of 0.1, who also look for the names of that time, and for the id they gave the task.
    First(Option<&'a TaskId>),
}

impl Age<'_> {
    fn is_first(self) -> bool {
        matches!(self, Age::First(_))
    }
}
