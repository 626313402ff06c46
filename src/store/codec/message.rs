//! Messages, artifacts and the parts they are made of.

use super::bytes::{Corrupt, Read, Reader, Writer};
use crate::model::{Artifact, Base64, Content, Json, Message, Object, Part, Role};

const TEXT: u8 = 0;
const RAW: u8 = 1;
const URL: u8 = 2;
const DATA: u8 = 3;
/// Beside the kind of a part: metadata, a file name or a media type follow.
const MORE: u8 = 0x80;

pub(super) fn write_message(out: &mut Writer, message: &Message) {
    out.text(message.message_id.as_str());
    out.byte(match message.role {
        Role::Unspecified => 0,
        Role::User => 1,
        Role::Agent => 2,
    });
    out.list(&message.parts, write_part);
    out.maybe_context(message.context_id.as_ref());
    out.maybe_task(message.task_id.as_ref());
    out.list(&message.reference_task_ids, |out, id| out.text(id.as_str()));
    out.list(&message.extensions, |out, uri| out.text(uri));
    maybe_object(out, message.metadata.as_ref());
}

pub(super) fn read_message(from: &mut Reader<'_>) -> Read<Message> {
    Ok(Message {
        message_id: from.text()?.into(),
        role: match from.byte()? {
            0 => Role::Unspecified,
            1 => Role::User,
            2 => Role::Agent,
            _ => return Err(Corrupt("an unknown role")),
        },
        parts: from.list(read_part)?,
        context_id: from.maybe_context()?,
        task_id: from.maybe_task()?,
        reference_task_ids: from.list(|from| from.text().map(Into::into))?,
        extensions: from.list(|from| from.text().map(str::to_owned))?,
        metadata: read_maybe_object(from)?,
    })
}

pub(super) fn write_artifact(out: &mut Writer, artifact: &Artifact) {
    out.artifact(&artifact.artifact_id);
    out.maybe_text(artifact.name.as_deref());
    out.maybe_text(artifact.description.as_deref());
    out.list(&artifact.parts, write_part);
    out.list(&artifact.extensions, |out, uri| out.text(uri));
    maybe_object(out, artifact.metadata.as_ref());
}

pub(super) fn read_artifact(from: &mut Reader<'_>) -> Read<Artifact> {
    Ok(Artifact {
        artifact_id: from.artifact()?,
        name: from.maybe_text()?.map(str::to_owned),
        description: from.maybe_text()?.map(str::to_owned),
        parts: from.list(read_part)?,
        extensions: from.list(|from| from.text().map(str::to_owned))?,
        metadata: read_maybe_object(from)?,
    })
}

pub(super) fn maybe_object(out: &mut Writer, object: Option<&Object>) {
    out.maybe_text(object.map(Object::get_text));
}

pub(super) fn read_maybe_object(from: &mut Reader<'_>) -> Read<Option<Object>> {
    let Some(text) = from.maybe_text()? else {
        return Ok(None);
    };
    Object::try_from(json(text)?)
        .map(Some)
        .map_err(|_| Corrupt("JSON that is no object"))
}

fn write_part(out: &mut Writer, part: &Part) {
    let (kind, text) = match &part.content {
        Content::Text(text) => (TEXT, text.as_str()),
        Content::Raw(bytes) => (RAW, bytes.as_str()),
        Content::Url(url) => (URL, &**url),
        Content::Data(data) => (DATA, data.get()),
    };
    out.byte(if part.is_plain() { kind } else { kind | MORE });
    out.text(text);
    if !part.is_plain() {
        maybe_object(out, part.metadata());
        out.maybe_text(part.filename());
        out.maybe_text(part.media_type());
    }
}

fn read_part(from: &mut Reader<'_>) -> Read<Part> {
    let kind = from.byte()?;
    let text = from.text()?;
    let mut part = Part::from(match kind & !MORE {
        TEXT => Content::Text(text.to_owned()),
        RAW => Content::Raw(Base64::parse(text).map_err(|_| Corrupt("bytes that are not base64"))?),
        URL => Content::Url(text.into()),
        DATA => Content::Data(json(text)?),
        _ => return Err(Corrupt("an unknown kind of part")),
    });
    if kind & MORE != 0 {
        if let Some(metadata) = read_maybe_object(from)? {
            part = part.with_metadata(metadata);
        }
        if let Some(name) = from.maybe_text()? {
            part = part.with_filename(name);
        }
        if let Some(media_type) = from.maybe_text()? {
            part = part.with_media_type(media_type);
        }
    }
    Ok(part)
}

fn json(text: &str) -> Read<Json> {
    Json::parse(text).map_err(|_| Corrupt("text that is not JSON"))
}
