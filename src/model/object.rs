//! JSON objects of the application, such as metadata.
//!
//! Every access parses the text once. Its time is linear in the size of the object, whatever the number of members.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::json::{InvalidJson, Json, contains_byte};

/// JSON object, such as metadata. Members keep their order.
#[derive(Clone, PartialEq)]
pub struct Object(Json);

impl Object {
    /// Creates an empty object.
    #[must_use]
    pub fn new() -> Self {
        Self::from_members(&[])
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns the object as a JSON value.
    #[must_use]
    pub fn as_json(&self) -> &Json {
        &self.0
    }

    /// Returns a member by name. Of duplicate names, the last value counts. Time is linear in the size of the object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Json> {
        if !self.may_contain(name) {
            return None;
        }
        // `Object` always contains the text of a valid object.
        let mut deserializer = serde_json::Deserializer::from_str(self.as_str());
        let found = deserializer.deserialize_map(MemberFinder(name)).ok()?;
        found.map(|value| Json(value.to_owned()))
    }

    /// Whether the object has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_str() == "{}" || self.members().is_empty()
    }

    /// Sets a member. Keeps the position of an existing one.
    pub fn insert(&mut self, name: &str, value: impl Into<Json>) {
        let value = value.into();
        *self = self.merged([(Cow::Borrowed(name), &*value.0)]);
    }

    /// Removes a member and returns it. Time is linear in the size of the object.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        if !self.may_contain(name) {
            return None;
        }
        let mut rest = self.members();
        let at = rest.iter().position(|(key, _)| key == name)?;
        let (_, removed) = rest.remove(at);
        let removed = Json(removed.to_owned());
        *self = Self::from_members(&rest);
        Some(removed)
    }

    /// Removes all members whose names start with `prefix`. Time is linear in the size of the object.
    pub fn remove_prefixed(&mut self, prefix: &str) {
        self.remove_prefixed_except(prefix, &[]);
    }

    /// Removes all members whose names start with `prefix` and are not in `kept`.
    pub(super) fn remove_prefixed_except(&mut self, prefix: &str, kept: &[&str]) {
        if !self.may_contain(prefix) {
            return;
        }
        let mut rest = self.members();
        let count = rest.len();
        rest.retain(|(name, _)| !name.starts_with(prefix) || kept.contains(&&**name));
        if rest.len() < count {
            *self = Self::from_members(&rest);
        }
    }

    /// Whether a member's name starts with `prefix` and is not in `kept`.
    pub(super) fn has_prefixed_except(&self, prefix: &str, kept: &[&str]) -> bool {
        let is_prefixed =
            |name: &Cow<'_, str>| name.starts_with(prefix) && !kept.contains(&&**name);
        self.may_contain(prefix) && self.all_members().iter().any(|(name, _)| is_prefixed(name))
    }

    /// Merges `other` into the object. Its members replace those with the same name.
    pub fn merge(&mut self, other: &Self) {
        *self = self.merged(other.all_members());
    }

    /// Iterates over the members in order. Of duplicate names, the last value counts.
    pub fn iter(&self) -> impl Iterator<Item = (String, Json)> + '_ {
        self.members()
            .into_iter()
            .map(|(name, value)| (name.into_owned(), Json(value.to_owned())))
    }

    /// Whether a member name may contain `text`, by a search without parsing. A name with an escape may be anything.
    fn may_contain(&self, text: &str) -> bool {
        let object = self.as_str();
        object.contains(text) || contains_byte(object, |byte| byte == b'\\')
    }

    /// Returns the members with unique names.
    fn members(&self) -> Members<'_> {
        dedup_members(self.all_members())
    }

    /// Returns the members, including duplicate names.
    fn all_members(&self) -> Members<'_> {
        // `Object` always contains the text of a valid object.
        serde_json::from_str::<ObjectMembers<'_>>(self.as_str())
            .map(|members| members.0)
            .unwrap_or_default()
    }

    fn merged<'a>(&'a self, more: impl IntoIterator<Item = (Cow<'a, str>, &'a RawValue)>) -> Self {
        let mut members = self.all_members();
        members.extend(more);
        Self::from_members(&dedup_members(members))
    }

    fn from_members(members: &[(Cow<'_, str>, &RawValue)]) -> Self {
        Self(Json::from_serialize(&MembersWriter(members)).unwrap_or_default())
    }
}

impl Default for Object {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl TryFrom<Json> for Object {
    type Error = InvalidJson;

    fn try_from(json: Json) -> Result<Self, InvalidJson> {
        if json.is_object() {
            Ok(Self(json))
        } else {
            Err(InvalidJson("must be an object"))
        }
    }
}

impl<K: Into<String>, V: Into<Json>> FromIterator<(K, V)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Self {
        let members: Vec<(String, Json)> = members
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Self::from_members(&dedup_members(
            members
                .iter()
                .map(|(name, value)| (Cow::Borrowed(&**name), &*value.0))
                .collect(),
        ))
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Json::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

struct ObjectMembers<'a>(Members<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor).map(Self)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members::new();
        while let Some((MemberName(name), value)) = map.next_entry()? {
            count_visit();
            members.push((name, value));
        }
        Ok(members)
    }
}

/// Finds the last member with a name.
struct MemberFinder<'n>(&'n str);

impl<'de> Visitor<'de> for MemberFinder<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(MemberName(name)) = map.next_key()? {
            count_visit();
            if name == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<de::IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Counts a visit of a member. Tests compare the work of requests by it.
fn count_visit() {
    #[cfg(test)]
    MEMBER_VISITS.with(|visits| visits.set(visits.get() + 1));
}

#[cfg(test)]
thread_local! {
    /// Number of members that this thread has visited.
    pub(crate) static MEMBER_VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Member name, borrowed if it contains no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

struct MembersWriter<'a>(&'a [(Cow<'a, str>, &'a RawValue)]);

impl Serialize for MembersWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Removes duplicate names: the last value wins and takes the position of the first.
fn dedup_members(members: Members<'_>) -> Members<'_> {
    let mut indices = HashMap::with_capacity(members.len());
    let mut unique = Members::with_capacity(members.len());
    for (name, value) in members {
        match indices.get(&name) {
            Some(&index) => unique[index] = (name, value),
            None => {
                indices.insert(name.clone(), unique.len());
                unique.push((name, value));
            }
        }
    }
    unique
}

impl From<Object> for Json {
    fn from(object: Object) -> Self {
        object.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_position_when_changed() {
        let mut object: Object =
            serde_json::from_str(r#"{"a":1.0,"b":{"x":[]},"a":2.50}"#).unwrap();
        assert_eq!(object.get("a").unwrap().get(), "2.50");
        object.insert("c", serde_json::json!("é\n"));
        object.merge(&[("b", serde_json::json!(null))].into_iter().collect());
        assert_eq!(object.as_str(), r#"{"a":2.50,"b":null,"c":"é\n"}"#);
        assert_eq!(object.remove("a").unwrap().get(), "2.50");
        assert_eq!(object.get("a"), None);
        assert!(!object.is_empty() && Object::new().is_empty());
        assert!(Object::try_from(Json::null()).is_err());
    }

    /// Returns the number of member visits of one access to an object with this many members.
    fn visits(members: usize, access: impl FnOnce(&mut Object)) -> usize {
        let mut object: Object = (0..members)
            .map(|number| (format!("key {number}"), Json::null()))
            .collect();
        object.insert("attache.x", Json::null());
        let before = MEMBER_VISITS.get();
        access(&mut object);
        MEMBER_VISITS.get() - before
    }

    #[test]
    fn d07_every_access_visits_a_member_at_most_once() {
        const MEMBERS: usize = 10_000;
        let accesses: [fn(&mut Object); 7] = [
            |object| drop(object.get("key 9999")),
            |object| drop(object.get("absent")),
            |object| drop(object.remove("key 0")),
            |object| object.remove_prefixed("attache."),
            |object| object.insert("key 5000", Json::null()),
            |object| object.merge(&Object::new()),
            |object| object.iter().for_each(drop),
        ];
        for (number, access) in accesses.into_iter().enumerate() {
            let visits = visits(MEMBERS, access);
            assert!(visits <= MEMBERS + 1, "access {number}: {visits} visits");
        }
        assert_eq!(visits(MEMBERS, |object| drop(object.get("absent"))), 0);
    }

    #[test]
    fn escaped_names_are_found_and_the_last_duplicate_counts() {
        let mut object: Object =
            serde_json::from_str(r#"{"\u0061ttache.x":1,"b":2,"b":3}"#).unwrap();
        assert_eq!(object.get("attache.x").unwrap().get(), "1");
        assert_eq!(object.get("b").unwrap().get(), "3");
        assert_eq!(object.clone().remove("b").unwrap().get(), "3");
        object.remove_prefixed("attache.");
        assert_eq!(object.as_str(), r#"{"b":3}"#);
    }
}
