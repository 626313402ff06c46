//! Encoding of stream items as server-sent events.

use super::chunk_buffer::ChunkBuffer;
use super::encodings::{encode_streamed_task, encode_unshared_event, json_encoding};
use super::reply::log_failure;
use crate::model::{Entry, Error, Result, StreamResponse};
use crate::service::{StreamItem, TaskEventStream};
use crate::wire::file_encoding::FileConversion;
use crate::wire::jsonrpc::{JsonRpcId, begin_result, end_result};
use crate::wire::{
    Dialect, StreamEventWriter, sse, task_event_envelope, write_event, write_stream_error,
};

/// Encoder of the events of one stream.
pub(super) trait EventEncoder: Send + Unpin {
    /// Appends one item. Appends nothing if the item is not visible to the subscriber.
    ///
    /// # Errors
    /// Unavailable: the byte budget does not allow the encoding of a large task.
    fn write(
        &mut self,
        out: &mut ChunkBuffer,
        stream: &TaskEventStream,
        item: StreamItem,
    ) -> Result<()>;

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
    /// Whether the caller expects base64 text in the bytes of files.
    has_base64_files: bool,
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
            has_base64_files: false,
        }
    }

    /// Sets whether the caller expects base64 text in the bytes of files.
    pub(super) fn with_base64_files(self, has_base64_files: bool) -> Self {
        Self {
            has_base64_files,
            ..self
        }
    }

    /// Appends an event with base64 text in the bytes of its files.
    fn write_with_base64_files(&self, out: &mut Vec<u8>, mut event: StreamResponse, closes: bool) {
        FileConversion::Encode.apply_to_event(&mut event);
        write_event(out, &event, closes, self.event_writer.dialect());
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
    fn write(
        &mut self,
        out: &mut ChunkBuffer,
        stream: &TaskEventStream,
        item: StreamItem,
    ) -> Result<()> {
        self.event_writer.select_dialect(stream.client_dialect());
        match item {
            StreamItem::Full(event, position) => {
                self.begin_event(out, position.map(|position| position.0));
                // `false`: a task or message without successors says so itself.
                if self.has_base64_files {
                    self.write_with_base64_files(out, *event, false);
                } else {
                    write_event(out, &event, false, self.event_writer.dialect());
                }
            }
            StreamItem::LargeTask(task, position) if self.has_base64_files => {
                self.begin_event(out, Some(position.0));
                out.push_shared(encode_unshared_event(stream, task, |out, event| {
                    self.write_with_base64_files(out, event, false);
                })?);
            }
            StreamItem::LargeTask(mut task, position) => {
                let dialect = self.event_writer.dialect();
                self.begin_event(out, Some(position.0));
                if let Some((before, after)) = task_event_envelope(dialect) {
                    let shared = encode_streamed_task(stream, &mut task, dialect)?;
                    out.extend_from_slice(before);
                    out.push_shared(shared);
                    out.extend_from_slice(after);
                } else {
                    out.push_shared(encode_unshared_event(stream, task, |out, event| {
                        write_event(out, &event, false, dialect);
                    })?);
                }
            }
            StreamItem::Update { entry, closes } if self.has_base64_files => {
                self.begin_event(out, Some(entry.seq.0));
                let (task, context) = stream.ids();
                if let Some(event) = entry.update(task, context) {
                    self.write_with_base64_files(out, event, closes);
                }
            }
            StreamItem::Update { entry, closes } => {
                self.begin_event(out, Some(entry.seq.0));
                let encoding = json_encoding(self.event_writer.dialect(), closes);
                let mut write = |entry: &Entry, out: &mut Vec<u8>| {
                    let (task, context) = stream.ids();
                    self.event_writer
                        .write_entry(out, entry, task, context, closes);
                };
                match encoding {
                    Some(encoding) => entry.encode_into(encoding, out, write),
                    None => write(&entry, out),
                }
            }
        }
        self.end_event(out);
        Ok(())
    }

    fn encode_failure(&mut self, error: Error) -> Vec<u8> {
        let mut out = Vec::new();
        let version = self.event_writer.dialect().version();
        write_stream_error(&mut out, &log_failure(error), self.id.as_ref(), version);
        out
    }
}
