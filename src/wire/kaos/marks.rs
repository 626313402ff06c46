//! Recognition of KAOS clients, which use a method of 1.0 with messages of older versions.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Whether a body has a member name that KAOS clients use. Cheap test before `KaosMarks::read`.
#[must_use]
pub fn may_have_kaos_marks(body: &[u8]) -> bool {
    std::str::from_utf8(body)
        .is_ok_and(|text| text.contains(r#""type""#) || text.contains(r#""contextId""#))
}

/// Members of `SendMessage` params that distinguish KAOS clients from those of 1.0.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::wire) struct KaosMarks {
    has_context_id: bool,
    has_typed_parts: bool,
    has_old_role: bool,
}

impl KaosMarks {
    /// Reads the marks. Params that are not valid JSON have none.
    pub(in crate::wire) fn read(params: &str) -> Self {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(rename = "contextId")]
            context_id: Option<IgnoredAny>,
            #[serde(borrow)]
            message: Option<MessageMarks<'a>>,
        }
        #[derive(Deserialize)]
        struct MessageMarks<'a> {
            #[serde(borrow)]
            role: Option<Cow<'a, str>>,
            #[serde(default)]
            parts: Vec<PartMarks>,
        }
        #[derive(Deserialize)]
        struct PartMarks {
            #[serde(rename = "type")]
            kind: Option<IgnoredAny>,
        }
        let Ok(params) = serde_json::from_str::<Params<'_>>(params) else {
            return Self::default();
        };
        let message = params.message.as_ref();
        let role = message.and_then(|message| message.role.as_deref());
        Self {
            has_context_id: params.context_id.is_some(),
            has_typed_parts: message
                .is_some_and(|message| message.parts.iter().any(|part| part.kind.is_some())),
            has_old_role: role.is_some_and(|role| role == "user" || role == "agent"),
        }
    }

    /// Whether the message may lack an id (09, 0.5).
    pub(in crate::wire) fn permits_missing_id(self) -> bool {
        self.selects_dialect() || self.has_old_role
    }

    /// Whether the client reads the responses of KAOS.
    pub(in crate::wire) fn selects_dialect(self) -> bool {
        self.has_context_id || self.has_typed_parts
    }
}
