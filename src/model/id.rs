//! Identifiers: opaque, case-sensitive strings behind an `Arc`, so that clones are cheap.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use uuid::{Builder, Uuid};

use super::{Timestamp, Violation};

/// Maximum length of an accepted id, in bytes.
pub(super) const MAX_ID_BYTES: usize = 256;

/// Returns a new UUID version 7 as text: the time in milliseconds, then 74 random bits (S12).
///
/// The time makes indexes over ids cheap to extend. No counter: it would make an id predictable from another. A time before
/// 1970 counts as 1970.
pub(crate) fn random_id(time: Timestamp) -> Arc<str> {
    let millis = u64::try_from(time.as_millis()).unwrap_or_default();
    // Version 4 has its fixed bits where version 7 has them.
    let [_, _, _, _, _, _, random @ ..] = Uuid::new_v4().into_bytes();
    let id = Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    Arc::from(&*id.as_hyphenated().encode_lower(&mut text))
}

/// Returns the time of the machine.
fn current_time() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Generates an id: a UUID version 7 with 74 random bits.
            #[must_use]
            pub fn random() -> Self {
                Self(random_id(current_time()))
            }

            /// Returns the id as sent on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the id is empty. Only an id that a peer omitted is empty.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Rejects an id that is empty, longer than 256 bytes, or contains control characters.
            /// `field` is the JSON path for the error.
            ///
            /// # Errors
            /// A violation that names `field`.
            pub fn check(&self, field: &str) -> Result<(), Violation> {
                check_id(&self.0, field)
            }
        }

        impl Default for $name {
            /// Returns the empty id, which represents an omitted one.
            fn default() -> Self {
                Self(Arc::default())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(ArcStrVisitor).map(Self)
            }
        }
    };
}

id! {
    /// Id of a task. The server generates it.
    TaskId
}
id! {
    /// Id of a context (conversation): groups tasks and messages.
    ContextId
}
id! {
    /// Id of a message. The sender generates it.
    MessageId
}
id! {
    /// Id of an artifact, unique within its task.
    ArtifactId
}
id! {
    /// Id of a push configuration, unique within its task.
    PushConfigId
}

/// Deserializes a string into an `Arc<str>` with one copy.
struct ArcStrVisitor;

impl Visitor<'_> for ArcStrVisitor {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(Arc::from(text))
    }
}

fn check_id(id: &str, field: &str) -> Result<(), Violation> {
    if id.is_empty() {
        return Err(Violation::new(field, "must not be empty"));
    }
    if id.len() > MAX_ID_BYTES {
        return Err(Violation::new(
            field,
            format!("must be at most {MAX_ID_BYTES} bytes long"),
        ));
    }
    // Branch-free ASCII check first; the loop vectorizes, and nearly every id passes.
    let is_plain = id
        .bytes()
        .fold(true, |plain, byte| plain & (0x20..0x7f).contains(&byte));
    if !is_plain && id.chars().any(char::is_control) {
        return Err(Violation::new(field, "must not contain control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many ids: no duplicates, no order within a millisecond, evenly distributed random bits.
    #[test]
    fn s12_ids_have_74_unguessable_bits() {
        const NUMBER: usize = 200_000;
        let mut ids = Vec::with_capacity(NUMBER);
        let mut ones = [0_usize; 128];
        for _ in 0..NUMBER {
            let id = TaskId::random();
            let uuid = Uuid::parse_str(id.as_str()).unwrap();
            assert_eq!(
                (uuid.get_version_num(), uuid.get_variant()),
                (7, uuid::Variant::RFC4122)
            );
            let bits = uuid.as_u128();
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += usize::from(bits >> bit & 1 == 1);
            }
            ids.push(bits);
        }
        let is_random = |count: &usize| (NUMBER * 49 / 100..NUMBER * 51 / 100).contains(count);
        assert!(ones[..62].iter().all(is_random), "{ones:?}");
        assert!(ones[64..76].iter().all(is_random), "{ones:?}");
        // A counter would make each id of a millisecond larger than its predecessor.
        let same_time: Vec<_> = ids
            .windows(2)
            .filter(|pair| pair[0] >> 80 == pair[1] >> 80)
            .collect();
        let rising = same_time.iter().filter(|pair| pair[0] < pair[1]).count();
        assert!(
            same_time.len() > 1_000
                && (same_time.len() * 40 / 100..same_time.len() * 60 / 100).contains(&rising),
            "{rising} of {} ids are larger than their predecessor",
            same_time.len()
        );
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), NUMBER);
    }

    #[test]
    fn ids_begin_with_the_time_in_milliseconds() {
        let id = TaskId::random();
        let uuid = Uuid::parse_str(id.as_str()).unwrap();
        let now = uuid::Timestamp::now(uuid::NoContext).to_unix();
        let (seconds, _) = uuid.get_timestamp().unwrap().to_unix();
        assert!((now.0 - 60..=now.0).contains(&seconds), "{id}");
    }

    #[test]
    fn ids_are_limited_in_length_and_characters() {
        let field = |id: &str| {
            TaskId::from(id)
                .check("id")
                .map_err(|v| v.description().to_owned())
        };
        assert_eq!(field("a:b/ü"), Ok(()));
        assert_eq!(field(&"x".repeat(256)), Ok(()));
        assert_eq!(
            field(&"x".repeat(257)),
            Err("must be at most 256 bytes long".to_owned())
        );
        assert_eq!(field(""), Err("must not be empty".to_owned()));
        assert_eq!(
            field("a\nb"),
            Err("must not contain control characters".to_owned())
        );
    }
}
