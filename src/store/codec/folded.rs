//! Logs, folded.

use std::sync::Arc;

use super::bytes::{Corrupt, Read, Reader, Writer};
use super::message::{
    maybe_object, read_artifact, read_maybe_object, read_message, write_artifact, write_message,
};
use super::{read_status, read_trace, write_status, write_trace};
use crate::model::{Message, Task};
use crate::store::Folded;

/// Folds have a format of their own; of those before, which had less, nothing is read any more.
pub(super) const FOLDED_FORMAT: u8 = 3;

/// A log, folded. A cache: what is of another format is folded anew, so there is no need to read it.
pub(in crate::store) fn write_folded(folded: &Folded) -> Vec<u8> {
    let mut out = Writer::behind(&[], FOLDED_FORMAT, 0);
    write_task(&mut out, &folded.task);
    out.list(&folded.waiting, |out, message| write_message(out, message));
    out.list(&folded.traces, |out, (turn, trace)| {
        out.number(*turn);
        write_trace(out, trace);
    });
    out.number(folded.turns_ended);
    out.number(folded.attempts.into());
    out.into_bytes()
}

/// The reverse of [`write_folded`].
pub(in crate::store) fn read_folded(bytes: &[u8]) -> Read<Folded> {
    let mut from = Reader::new(bytes, FOLDED_FORMAT)?;
    let folded = Folded {
        task: Arc::new(read_task(&mut from)?),
        waiting: read_messages(&mut from)?,
        traces: from.list(|from| Ok((from.number()?, read_trace(from)?)))?,
        turns_ended: from.number()?,
        attempts: u32::try_from(from.number()?).map_err(|_| Corrupt("a number beyond 32 bits"))?,
    };
    from.end(folded)
}

fn write_task(out: &mut Writer, task: &Task) {
    out.text(task.id.as_str());
    out.text(task.context_id.as_str());
    write_status(out, &task.status);
    out.list(&task.artifacts, write_artifact);
    out.list(&task.history, |out, message| write_message(out, message));
    maybe_object(out, task.metadata.as_ref());
}

pub(super) fn read_task(from: &mut Reader<'_>) -> Read<Task> {
    Ok(Task {
        id: from.text()?.into(),
        context_id: from.text()?.into(),
        status: read_status(from)?,
        artifacts: from.list(read_artifact)?,
        history: read_messages(from)?,
        metadata: read_maybe_object(from)?,
    })
}

fn read_messages(from: &mut Reader<'_>) -> Read<Vec<Arc<Message>>> {
    from.list(|from| read_message(from).map(Arc::new))
}
