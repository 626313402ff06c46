//! Deserialization of 0.3 parts, and of objects that may be plain text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::model::{Json, Object, Part};
use crate::wire::part::{KindMember, NamedKind, read_legacy_part};

/// Part of 0.1 to 0.3. `PROTO` selects the ProtoJSON of 0.3 REST.
pub(super) struct V03Part<const PROTO: bool> {
    pub(super) part: Part,
    pub(super) kind: NamedKind,
}

impl<'de, const PROTO: bool> Deserialize<'de> for V03Part<PROTO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = deserializer.deserialize_map(PartMembersVisitor)?;
        if PROTO {
            unnest_data(&mut members);
        }
        let kind_member = if PROTO {
            KindMember::Absent
        } else {
            KindMember::Expected
        };
        let (part, kind) = read_legacy_part(members, kind_member)?;
        Ok(Self { part, kind })
    }
}

/// Unwraps `{"data": {"data": {…}}}` of ProtoJSON to `{"data": {…}}`. Leaves other data unchanged.
fn unnest_data(members: &mut [(Cow<'_, str>, Json)]) {
    let Some((_, data)) = members.iter_mut().find(|(name, _)| name == "data") else {
        return;
    };
    if let Some(nested) = Object::try_from(data.clone())
        .ok()
        .and_then(|object| object.get("data"))
    {
        *data = nested;
    }
}

struct PartMembersVisitor;

impl<'de> Visitor<'de> for PartMembersVisitor {
    type Value = Vec<(Cow<'de, str>, Json)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(4);
        while let Some((name, value)) = map.next_entry::<Cow<'de, str>, Json>()? {
            members.push((name, value));
        }
        Ok(members)
    }
}

/// Object, or a text in its place.
pub(super) struct ObjectOrText<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + From<String>> Deserialize<'de> for ObjectOrText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(ObjectOrTextVisitor(PhantomData))
            .map(Self)
    }
}

struct ObjectOrTextVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + From<String>> Visitor<'de> for ObjectOrTextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        Ok(T::from(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(map))
    }
}
