//! Encoding of stream items as server-sent events.

use super::encodings::json_encoding;
use super::reply::log_failure;
use crate::model::{Entry, Error};
use crate::service::{StreamItem, TaskEventStream};
use crate::wire::jsonrpc::{JsonRpcId, begin_result, end_result};
use crate::wire::{Dialect, StreamEventWriter, sse, write_event, write_stream_error};

/// Encoder of the events of one stream.
pub(super) trait EventEncoder: Send + Unpin {
    /// Appends one item. Appends nothing if the item is not visible to the subscriber.
    fn write(&mut self, out: &mut Vec<u8>, stream: &TaskEventStream, item: &StreamItem);

    /// Returns the event that ends the stream with an error.
    fn encode_failure(&mut self, error: Error) -> Vec<u8>;

    /// Returns the bytes after the last item. Returns `None` from the second call on.
    fn finish(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// Encoder of the JSON-RPC and REST bindings. JSON-RPC wraps each event in a response object.
pub(super) struct JsonEventEncoder {
    /// Id of the JSON-RPC call. `None` on REST.
    id: Option<JsonRpcId<'static>>,
    /// Start of the response object, the same for all events.
    prefix: Vec<u8>,
    event_writer: StreamEventWriter,
}

impl JsonEventEncoder {
    pub(super) fn new(id: Option<JsonRpcId<'static>>, dialect: Dialect) -> Self {
        let mut prefix = Vec::new();
        if let Some(id) = &id {
            begin_result(&mut prefix, id);
        }
        Self {
            id,
            prefix,
            event_writer: StreamEventWriter::new(dialect),
        }
    }

    fn begin_event(&self, out: &mut Vec<u8>, event_id: Option<u64>) {
        sse::begin_event(out, event_id);
        out.extend_from_slice(&self.prefix);
    }

    fn end_event(&self, out: &mut Vec<u8>) {
        if self.id.is_some() {
            end_result(out);
        }
        sse::end_event(out);
    }
}

impl EventEncoder for JsonEventEncoder {
    fn write(&mut self, out: &mut Vec<u8>, stream: &TaskEventStream, item: &StreamItem) {
        match item {
            StreamItem::Full(event, position) => {
                self.begin_event(out, position.map(|position| position.0));
                // `false`: a task or message without successors says so itself.
                write_event(out, event, false, self.event_writer.dialect());
            }
            StreamItem::Update { entry, closes } => {
                self.begin_event(out, Some(entry.seq.0));
                let encoding = json_encoding(self.event_writer.dialect(), *closes);
                let mut write = |entry: &Entry, out: &mut Vec<u8>| {
                    let (task, context) = stream.ids();
                    self.event_writer
                        .write_entry(out, entry, task, context, *closes);
                };
                match encoding {
                    Some(encoding) => entry.encode_into(encoding, out, write),
                    None => write(entry, out),
                }
            }
        }
        self.end_event(out);
    }

    fn encode_failure(&mut self, error: Error) -> Vec<u8> {
        let mut out = Vec::new();
        let version = self.event_writer.dialect().version();
        write_stream_error(&mut out, &log_failure(error), self.id.as_ref(), version);
        out
    }
}
