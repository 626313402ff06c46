//! Ids: opaque, case-sensitive, cheap to share.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::Violation;

/// The longest id we accept, in bytes.
pub(super) const MAX_ID_BYTES: usize = 256;

/// A fresh id of 122 random bits, of whatever it is going to be.
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
            /// Makes a fresh id of 122 random bits.
            #[must_use]
            pub fn random() -> Self {
                Self(random_id())
            }

            /// The id as it stands on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the id was left out; only what a peer sent can be empty.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Refuses an id that is empty, longer than 256 bytes, or has control characters; `field` names the place.
            ///
            /// # Errors
            /// The violation that names `field`.
            pub fn check(&self, field: &str) -> Result<(), Violation> {
                check_id(&self.0, field)
            }
        }

        impl Default for $name {
            /// The empty id, which stands for one that was left out.
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
    /// Names a task; made by the server.
    TaskId
}
id! {
    /// Names a conversation: the tasks and messages that belong together.
    ContextId
}
id! {
    /// Names a message; made by its sender.
    MessageId
}
id! {
    /// Names an artifact within its task.
    ArtifactId
}
id! {
    /// Names a push configuration within its task.
    PushConfigId
}

/// Reads a string straight into its shared place, with one copy.
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
    // Most ids are of plain letters, which is quickly seen when all of them are looked at together.
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

    /// A million of them: no two alike, in no order, and none like the next in how it begins.
    #[test]
    fn s12_random_ids_are_version_4_and_neither_repeat_nor_follow_each_other() {
        const NUMBER: usize = 1_000_000;
        let mut begins = Vec::with_capacity(NUMBER);
        let mut by_digit = [0_usize; 16];
        for _ in 0..NUMBER {
            let id = TaskId::random();
            let (high, low) = uuid::Uuid::parse_str(id.as_str()).unwrap().as_u64_pair();
            assert_eq!(
                (high >> 12 & 0xf, low >> 62),
                (4, 0b10),
                "122 bits are random, the others say so"
            );
            by_digit[(high >> 60) as usize] += 1;
            begins.push(high);
        }
        let rising = begins.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(
            (NUMBER * 49 / 100..NUMBER * 51 / 100).contains(&rising),
            "{rising} are larger than the one before"
        );
        assert!(
            by_digit
                .iter()
                .all(|count| (60_000..65_000).contains(count)),
            "{by_digit:?}"
        );
        begins.sort_unstable();
        begins.dedup();
        assert_eq!(begins.len(), NUMBER);
    }

    #[test]
    fn ids_are_checked_by_length_and_characters() {
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
