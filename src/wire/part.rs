//! Part deserialization: 1.0 by its single content member, older versions by `kind`, and mixed
//! forms (02 §5).

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json::field_error;
use crate::model::{Base64, Content, Json, KIND_KEY, Object, Part, is_tool_kind};

/// Members that a part may have in any version.
#[derive(Default)]
pub(crate) struct PartMembers {
    pub(crate) text: Option<String>,
    pub(crate) raw: Option<Base64>,
    pub(crate) url: Option<Box<str>>,
    pub(crate) data: Option<Json>,
    pub(crate) file: Option<V03File>,
    pub(crate) metadata: Option<Object>,
    pub(crate) filename: Option<String>,
    pub(crate) media_type: Option<String>,
}

impl PartMembers {
    /// Creates the part. Exactly one member must be content.
    pub(crate) fn into_part<E: de::Error>(self) -> Result<Part, E> {
        let (file, name, media_type) = match self.file {
            Some(file) => (Some(file.content), file.name, file.media_type),
            None => (None, None, None),
        };
        let mut contents = [
            self.text.map(Content::Text),
            self.raw.map(Content::Raw),
            self.url.map(Content::Url),
            self.data.map(Content::Data),
            file,
        ]
        .into_iter()
        .flatten();
        let content = match (contents.next(), contents.next()) {
            (Some(content), None) => content,
            _ => return Err(E::custom("must have exactly one of text, raw, url, data")),
        };
        let mut part = Part::from(content);
        if let Some(metadata) = self.metadata {
            part = part.with_metadata(metadata);
        }
        if let Some(name) = self.filename.or(name).filter(|name| !name.is_empty()) {
            part = part.with_filename(name);
        }
        if let Some(media_type) = self
            .media_type
            .or(media_type)
            .filter(|media_type| !media_type.is_empty())
        {
            part = part.with_media_type(media_type);
        }
        Ok(part)
    }
}

/// File object of a 0.3 part.
pub(crate) struct V03File {
    pub(crate) content: Content,
    pub(crate) name: Option<String>,
    pub(crate) media_type: Option<String>,
}

impl<'de> Deserialize<'de> for V03File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct FileMembers {
            // Official samples of 0.3 use the last three names.
            #[serde(alias = "data", alias = "fileWithBytes", alias = "file_with_bytes")]
            bytes: Option<Base64>,
            #[serde(alias = "url", alias = "fileWithUri", alias = "file_with_uri")]
            uri: Option<Box<str>>,
            #[serde(alias = "mime_type", alias = "mediaType")]
            mime_type: Option<String>,
            #[serde(alias = "filename")]
            name: Option<String>,
        }
        let members = FileMembers::deserialize(deserializer)?;
        let content = match (members.bytes, members.uri) {
            (Some(bytes), None) => Content::Raw(bytes),
            (None, Some(uri)) => Content::Url(uri),
            _ => return Err(de::Error::custom("must have exactly one of bytes, uri")),
        };
        Ok(Self {
            content,
            name: members.name,
            media_type: members.mime_type,
        })
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor)
    }
}

/// Recognized member of a part. Names of older versions are accepted where they are unambiguous.
#[derive(Clone, Copy)]
enum PartField {
    Text,
    Raw,
    Url,
    Data,
    V03File,
    Metadata,
    Filename,
    MediaType,
    Other,
}

impl PartField {
    fn from_name(name: &str) -> Self {
        match name {
            "text" => Self::Text,
            "raw" => Self::Raw,
            "url" => Self::Url,
            "data" => Self::Data,
            "file" => Self::V03File,
            "metadata" => Self::Metadata,
            "filename" | "name" => Self::Filename,
            "mediaType" | "media_type" | "mimeType" | "mime_type" => Self::MediaType,
            _ => Self::Other,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Raw => "raw",
            Self::Url => "url",
            Self::Data => "data",
            Self::V03File => "file",
            Self::Metadata => "metadata",
            Self::Filename => "filename",
            Self::MediaType => "mediaType",
            Self::Other => "",
        }
    }
}

/// Bit set of the members read, including `null` ones. Duplicates are rejected, because parsers
/// disagree on which one counts (S84).
#[derive(Default)]
struct PartFieldSet(u16);

impl PartFieldSet {
    fn insert_once<E: de::Error>(&mut self, name: PartField) -> Result<(), E> {
        let bit = 1 << name as u16;
        if self.0 & bit != 0 && !matches!(name, PartField::Other) {
            return Err(E::duplicate_field(name.as_str()));
        }
        self.0 |= bit;
        Ok(())
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
        let mut members = PartMembers::default();
        let mut seen = PartFieldSet::default();
        while let Some(PartKey(name)) = map.next_key()? {
            seen.insert_once(name)?;
            match name {
                PartField::Text => members.text = map.next_value()?,
                PartField::Raw => members.raw = map.next_value()?,
                PartField::Url => members.url = map.next_value()?,
                // `null` means absent for every other member.
                PartField::Data => members.data = Some(map.next_value()?),
                PartField::V03File => members.file = map.next_value()?,
                PartField::Metadata => members.metadata = map.next_value()?,
                PartField::Filename => members.filename = map.next_value()?,
                PartField::MediaType => members.media_type = map.next_value()?,
                PartField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        members.into_part()
    }
}

/// Member name, matched without allocation.
struct PartKey(PartField);

impl<'de> Deserialize<'de> for PartKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = PartKey;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, name: &str) -> Result<PartKey, E> {
                Ok(PartKey(PartField::from_name(name)))
            }
        }
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

/// Whether parts of a dialect contain their kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KindMember {
    /// As `kind`, or in 0.1 as `type`.
    Expected,
    /// Absent; the content member determines it.
    Absent,
}

/// Kind that a 0.x part names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedKind {
    /// None.
    Absent,
    /// `tool-use` or `tool-result`.
    Tool,
    /// Any other.
    Other,
}

/// Creates a 0.x part from its members. `kind` selects the content; without it the members do.
pub(crate) fn read_legacy_part<E: de::Error>(
    members: Vec<(Cow<'_, str>, Json)>,
    kind: KindMember,
) -> Result<(Part, NamedKind), E> {
    if kind == KindMember::Absent {
        let part = read_known_kind(members).map(unwrap_data)?;
        return Ok((part, NamedKind::Absent));
    }
    match find_kind(&members)? {
        None => Ok((read_known_kind(members)?, NamedKind::Absent)),
        Some((_, kind)) if matches!(kind.as_str(), "text" | "file" | "data") => {
            let part = read_known_kind(members).map(unwrap_data)?;
            Ok((part, NamedKind::Other))
        }
        Some((name, kind)) => {
            let named = if is_tool_kind(&kind) {
                NamedKind::Tool
            } else {
                NamedKind::Other
            };
            Ok((read_unknown_kind(name, &kind, members)?, named))
        }
    }
}

/// Returns the kind and the name of the member that contains it.
fn find_kind<E: de::Error>(
    members: &[(Cow<'_, str>, Json)],
) -> Result<Option<(&'static str, String)>, E> {
    for name in ["kind", "type"] {
        let mut values = members
            .iter()
            .filter(|(member, _)| member == name)
            .map(|(_, value)| value);
        if let Some(kind) = values.next() {
            if values.next().is_some() {
                return Err(de::Error::duplicate_field(name));
            }
            if !kind.is_null() {
                return kind
                    .read()
                    .map(|kind| Some((name, kind)))
                    .map_err(|_| field_error(name, "must be a string"));
            }
        }
    }
    Ok(None)
}

fn read_known_kind<E: de::Error>(members: Vec<(Cow<'_, str>, Json)>) -> Result<Part, E> {
    let mut read = PartMembers::default();
    let mut seen = PartFieldSet::default();
    for (name, value) in members {
        let name = PartField::from_name(&name);
        seen.insert_once(name)?;
        match name {
            PartField::Text => read.text = read_member(name, &value)?,
            PartField::Raw => read.raw = read_member(name, &value)?,
            PartField::Url => read.url = read_member(name, &value)?,
            PartField::Data => read.data = Some(value),
            PartField::V03File => read.file = read_member(name, &value)?,
            PartField::Metadata => read.metadata = read_member(name, &value)?,
            PartField::Filename => read.filename = read_member(name, &value)?,
            PartField::MediaType => read.media_type = read_member(name, &value)?,
            PartField::Other => {}
        }
    }
    // 0.x writes absent members as `null`. Only a part without other content can be the value
    // `null`.
    let other =
        read.text.is_some() || read.raw.is_some() || read.url.is_some() || read.file.is_some();
    read.data = read.data.filter(|data| !(other && data.is_null()));
    read.into_part()
}

fn read_member<E: de::Error, T: for<'a> Deserialize<'a>>(
    name: PartField,
    value: &Json,
) -> Result<Option<T>, E> {
    super::json::read(value.get())
        .map_err(|error| super::json::nested_field_error(name.as_str(), &error))
}

/// Metadata key that marks wrapped data. Data must be an object in 0.3, and both official SDKs wrap
/// other values in this way.
pub(crate) const WRAPPED_DATA_KEY: &str = "data_part_compat";

fn unwrap_data(part: Part) -> Part {
    let Content::Data(data) = &part.content else {
        return part;
    };
    let Some(mut metadata) = part.metadata().cloned() else {
        return part;
    };
    if metadata
        .get(WRAPPED_DATA_KEY)
        .is_none_or(|mark| mark.get() != "true")
    {
        return part;
    }
    let Some(value) = Object::try_from(data.clone())
        .ok()
        .and_then(|object| object.get("value"))
    else {
        return part;
    };
    metadata.remove(WRAPPED_DATA_KEY);
    let mut members = PartMembers {
        data: Some(value),
        ..PartMembers::default()
    };
    members.metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
    members.filename = part.filename().map(str::to_owned);
    members.media_type = part.media_type().map(str::to_owned);
    members.into_part::<de::value::Error>().unwrap_or(part)
}

/// Converts a part of unknown kind to a data part. The metadata keep the kind.
fn read_unknown_kind<E: de::Error>(
    kind_member: &str,
    kind: &str,
    members: Vec<(Cow<'_, str>, Json)>,
) -> Result<Part, E> {
    let mut metadata = Object::new();
    let mut seen = PartFieldSet::default();
    let mut data = Vec::with_capacity(members.len());
    for (name, value) in members {
        seen.insert_once::<E>(PartField::from_name(&name))?;
        match &*name {
            name if name == kind_member => {}
            "metadata" => {
                metadata =
                    read_member::<E, Object>(PartField::Metadata, &value)?.unwrap_or_default();
            }
            _ => data.push((name, value)),
        }
    }
    metadata.insert(KIND_KEY, serde_json::Value::from(kind));
    Ok(Part::data(data.into_iter().collect::<Object>()).with_metadata(metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::read;

    #[test]
    fn v1_part_is_read_by_its_content_member() {
        for (text, part) in [
            (r#"{"text":""}"#, Part::text("")),
            (
                r#"{"text":"x","kind":"whatever","raw":null}"#,
                Part::text("x"),
            ),
            (r#"{"data":null}"#, Part::data(Json::null())),
            (
                r#"{"url":"u","media_type":"a/b","filename":""}"#,
                Part::url("u").with_media_type("a/b"),
            ),
            (
                r#"{"raw":"_-8"}"#,
                Content::Raw(Base64::encode([0xff, 0xef])).into(),
            ),
            (
                r#"{"type":"file","file":{"fileWithUri":"u","name":"n"}}"#,
                Part::url("u").with_filename("n"),
            ),
            (
                r#"{"url":"u","mimeType":"a/b","name":"n"}"#,
                Part::url("u").with_media_type("a/b").with_filename("n"),
            ),
        ] {
            assert_eq!(read::<Part>(text).unwrap(), part, "{text}");
        }
    }

    #[test]
    fn part_without_exactly_one_content_is_rejected() {
        for text in [
            "{}",
            r#"{"text":null}"#,
            r#"{"text":"a","data":null}"#,
            r#"{"text":"a","url":"b"}"#,
        ] {
            let error = read::<Part>(text).unwrap_err();
            assert_eq!(
                error.violations()[0].description(),
                "must have exactly one of text, raw, url, data",
                "{text}"
            );
        }
        for (text, field) in [
            (r#"{"text":"a","text":"b"}"#, "text"),
            (r#"{"data":null,"data":null}"#, "data"),
            (r#"{"url":"a","mediaType":"b","mimeType":"c"}"#, "mediaType"),
            (r#"{"raw":"!"}"#, "raw"),
            (r#"{"file":{"bytes":"","uri":""}}"#, "file"),
            (r#"{"file":{"bytes":5}}"#, "file.bytes"),
        ] {
            assert_eq!(
                read::<Part>(text).unwrap_err().violations()[0].field(),
                field,
                "{text}"
            );
        }
    }
}
