//! Messages, artifacts, parts and metadata objects.

use super::decoder::LogDecoder;
use super::encoder::LogEncoder;
use super::{CodecError, DecodeResult};
use crate::model::{Artifact, Base64, Content, Json, Message, Object, Part, Role};

// Numbers of the part kinds. They are on disk: never change or reuse one.
const TEXT: u8 = 0;
const RAW: u8 = 1;
const URL: u8 = 2;
const DATA: u8 = 3;
/// Flag beside the kind of a part: metadata, file name and media type follow.
const HAS_ATTRIBUTES: u8 = 0x80;

/// Encodes a message.
pub(super) fn encode_message(out: &mut LogEncoder, message: &Message) {
    out.text(message.message_id.as_str());
    out.byte(match message.role {
        Role::Unspecified => 0,
        Role::User => 1,
        Role::Agent => 2,
    });
    out.list(&message.parts, encode_part);
    out.optional_text(message.context_id.as_ref().map(AsRef::as_ref));
    out.optional_text(message.task_id.as_ref().map(AsRef::as_ref));
    out.list(&message.reference_task_ids, |out, id| out.text(id.as_str()));
    out.list(&message.extensions, |out, uri| out.text(uri));
    encode_optional_object(out, message.metadata.as_ref());
}

/// Decodes a message.
pub(super) fn decode_message(from: &mut LogDecoder<'_>) -> DecodeResult<Message> {
    Ok(Message {
        message_id: from.text()?.into(),
        role: match from.byte()? {
            0 => Role::Unspecified,
            1 => Role::User,
            2 => Role::Agent,
            _ => return Err(CodecError("unknown role")),
        },
        parts: from.list(decode_part)?,
        context_id: from.optional_text()?.map(Into::into),
        task_id: from.optional_text()?.map(Into::into),
        reference_task_ids: from.list(|from| from.text().map(Into::into))?,
        extensions: from.list(|from| from.text().map(str::to_owned))?,
        metadata: decode_optional_object(from)?,
    })
}

/// Encodes an artifact.
pub(super) fn encode_artifact(out: &mut LogEncoder, artifact: &Artifact) {
    out.text(artifact.artifact_id.as_str());
    out.optional_text(artifact.name.as_deref());
    out.optional_text(artifact.description.as_deref());
    out.list(&artifact.parts, encode_part);
    out.list(&artifact.extensions, |out, uri| out.text(uri));
    encode_optional_object(out, artifact.metadata.as_ref());
}

/// Decodes an artifact.
pub(super) fn decode_artifact(from: &mut LogDecoder<'_>) -> DecodeResult<Artifact> {
    Ok(Artifact {
        artifact_id: from.artifact_id()?,
        name: from.optional_text()?.map(str::to_owned),
        description: from.optional_text()?.map(str::to_owned),
        parts: from.list(decode_part)?,
        extensions: from.list(|from| from.text().map(str::to_owned))?,
        metadata: decode_optional_object(from)?,
    })
}

/// Encodes metadata as its JSON text.
pub(super) fn encode_optional_object(out: &mut LogEncoder, object: Option<&Object>) {
    out.optional_text(object.map(Object::as_str));
}

/// Decodes metadata.
pub(super) fn decode_optional_object(from: &mut LogDecoder<'_>) -> DecodeResult<Option<Object>> {
    let Some(text) = from.optional_text()? else {
        return Ok(None);
    };
    Object::try_from(json(text)?)
        .map(Some)
        .map_err(|_| CodecError("JSON that is not an object"))
}

fn encode_part(out: &mut LogEncoder, part: &Part) {
    let (kind, text) = match &part.content {
        Content::Text(text) => (TEXT, text.as_str()),
        Content::Raw(bytes) => (RAW, bytes.as_str()),
        Content::Url(url) => (URL, &**url),
        Content::Data(data) => (DATA, data.get()),
    };
    out.byte(if part.is_plain() {
        kind
    } else {
        kind | HAS_ATTRIBUTES
    });
    out.text(text);
    if !part.is_plain() {
        encode_optional_object(out, part.metadata());
        out.optional_text(part.filename());
        out.optional_text(part.media_type());
    }
}

fn decode_part(from: &mut LogDecoder<'_>) -> DecodeResult<Part> {
    let kind = from.byte()?;
    let text = from.text()?;
    let mut part = Part::from(match kind & !HAS_ATTRIBUTES {
        TEXT => Content::Text(text.to_owned()),
        RAW => {
            Content::Raw(Base64::parse(text).map_err(|_| CodecError("bytes that are not base64"))?)
        }
        URL => Content::Url(text.into()),
        DATA => Content::Data(json(text)?),
        _ => return Err(CodecError("unknown part kind")),
    });
    if kind & HAS_ATTRIBUTES != 0 {
        if let Some(metadata) = decode_optional_object(from)? {
            part = part.with_metadata(metadata);
        }
        if let Some(name) = from.optional_text()? {
            part = part.with_filename(name);
        }
        if let Some(media_type) = from.optional_text()? {
            part = part.with_media_type(media_type);
        }
    }
    Ok(part)
}

fn json(text: &str) -> DecodeResult<Json> {
    Json::parse(text).map_err(|_| CodecError("text that is not JSON"))
}
