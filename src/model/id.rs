//! Identifiers: opaque, case-sensitive strings behind an `Arc`, so that clones are cheap.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::Violation;

/// Maximum length of an accepted id, in bytes.
pub(super) const MAX_ID_BYTES: usize = 256;

/// Returns a random UUID version 4 as text: 122 unguessable bits (S12).
pub(crate) fn random_id() -> Arc<str> {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    Arc::from(&*uuid::Uuid::new_v4().as_hyphenated().encode_lower(&mut text))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Generates an id with 122 random bits.
            #[must_use]
            pub fn random() -> Self {
                Self(random_id())
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

    /// One million ids: no duplicates, no order, evenly distributed first digits.
    #[test]
    fn s12_random_ids_are_unique_and_unordered() {
        const NUMBER: usize = 1_000_000;
        let mut high_halves = Vec::with_capacity(NUMBER);
        let mut by_digit = [0_usize; 16];
        for _ in 0..NUMBER {
            let id = TaskId::random();
            let (high, low) = uuid::Uuid::parse_str(id.as_str()).unwrap().as_u64_pair();
            assert_eq!(
                (high >> 12 & 0xf, low >> 62),
                (4, 0b10),
                "version 4, variant 1: the other 122 bits are random"
            );
            by_digit[(high >> 60) as usize] += 1;
            high_halves.push(high);
        }
        let rising = high_halves
            .windows(2)
            .filter(|pair| pair[0] < pair[1])
            .count();
        assert!(
            (NUMBER * 49 / 100..NUMBER * 51 / 100).contains(&rising),
            "{rising} ids are larger than their predecessor"
        );
        assert!(
            by_digit
                .iter()
                .all(|count| (60_000..65_000).contains(count)),
            "{by_digit:?}"
        );
        high_halves.sort_unstable();
        high_halves.dedup();
        assert_eq!(high_halves.len(), NUMBER);
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
