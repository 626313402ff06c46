//! Lenient parsing of enums and timestamps: accepts every spelling that peers use (02 §1). Writing
//! uses only the spelling of the negotiated version.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::model::{Role, TaskState, Timestamp};

/// Returns the name of a state in the JSON of 0.2 and 0.3.
pub(crate) fn v03_state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unknown",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::InputRequired => "input-required",
        TaskState::Rejected => "rejected",
        TaskState::AuthRequired => "auth-required",
    }
}

/// Returns the name of a role in the JSON of 0.2 and 0.3.
pub(crate) fn v03_role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        // Never unspecified in 0.3 (08 §3).
        Role::Agent | Role::Unspecified => "agent",
    }
}

/// Parses a state in any spelling and case.
pub(crate) fn parse_state(name: &str) -> Option<TaskState> {
    // Exact match first; only other spellings allocate.
    if let Some(state) = TaskState::ALL
        .into_iter()
        .find(|state| state.as_str() == name)
    {
        return Some(state);
    }
    let lower = name.to_ascii_lowercase().replace('_', "-");
    match lower.strip_prefix("task-state-").unwrap_or(&lower) {
        "unspecified" | "unknown" => Some(TaskState::Unspecified),
        "submitted" | "pending" => Some(TaskState::Submitted),
        "working" | "started" => Some(TaskState::Working),
        "completed" => Some(TaskState::Completed),
        "failed" => Some(TaskState::Failed),
        "canceled" | "cancelled" => Some(TaskState::Canceled),
        "input-required" => Some(TaskState::InputRequired),
        "rejected" => Some(TaskState::Rejected),
        "auth-required" => Some(TaskState::AuthRequired),
        _ => None,
    }
}

/// Returns the state with a protobuf number. Both protobuf packages use the same numbers.
pub(crate) fn state_from_number(number: i64) -> Option<TaskState> {
    const BY_NUMBER: [TaskState; 9] = [
        TaskState::Unspecified,
        TaskState::Submitted,
        TaskState::Working,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::InputRequired,
        TaskState::Rejected,
        TaskState::AuthRequired,
    ];
    usize::try_from(number)
        .ok()
        .and_then(|number| BY_NUMBER.get(number).copied())
}

/// Parses a role in any spelling and case.
pub(crate) fn parse_role(name: &str) -> Option<Role> {
    match name {
        "ROLE_USER" | "user" => return Some(Role::User),
        "ROLE_AGENT" | "agent" => return Some(Role::Agent),
        _ => {}
    }
    let lower = name.to_ascii_lowercase();
    match lower.strip_prefix("role_").unwrap_or(&lower) {
        "unspecified" => Some(Role::Unspecified),
        "user" => Some(Role::User),
        "agent" => Some(Role::Agent),
        _ => None,
    }
}

/// Returns the role with a protobuf number.
pub(crate) fn role_from_number(number: i64) -> Option<Role> {
    match number {
        0 => Some(Role::Unspecified),
        1 => Some(Role::User),
        2 => Some(Role::Agent),
        _ => None,
    }
}

/// Deserializes an enum by name or, as in ProtoJSON, by number.
struct EnumVisitor<T> {
    expected: &'static str,
    by_name: fn(&str) -> Option<T>,
    by_number: fn(i64) -> Option<T>,
}

impl<T> Visitor<'_> for EnumVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
        (self.by_name)(name).ok_or_else(|| E::invalid_value(de::Unexpected::Other("name"), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        (self.by_number)(number)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl<'de> Deserialize<'de> for TaskState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EnumVisitor {
            expected: "a task state such as TASK_STATE_WORKING",
            by_name: parse_state,
            by_number: state_from_number,
        })
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EnumVisitor {
            expected: "ROLE_USER or ROLE_AGENT",
            by_name: parse_role,
            by_number: role_from_number,
        })
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse_lenient(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_parsed_in_every_spelling() {
        for state in TaskState::ALL {
            assert_eq!(parse_state(state.as_str()), Some(state));
            assert_eq!(parse_state(v03_state_name(state)), Some(state));
            assert_eq!(
                parse_state(&v03_state_name(state).replace('-', "_").to_uppercase()),
                Some(state)
            );
        }
        for (name, state) in [
            ("cancelled", TaskState::Canceled),
            ("TASK_STATE_CANCELLED", TaskState::Canceled),
            ("started", TaskState::Working),
            ("pending", TaskState::Submitted),
            ("unknown", TaskState::Unspecified),
            ("Input_Required", TaskState::InputRequired),
        ] {
            assert_eq!(parse_state(name), Some(state), "{name}");
        }
        assert_eq!(parse_state("done"), None);
        assert_eq!(
            serde_json::from_str::<TaskState>("6").unwrap(),
            TaskState::InputRequired
        );
        assert!(serde_json::from_str::<TaskState>("9").is_err());
        assert!(serde_json::from_str::<TaskState>("-1").is_err());
        assert!(serde_json::from_str::<TaskState>("true").is_err());
    }

    #[test]
    fn roles_are_parsed_in_every_spelling() {
        for (text, role) in [
            ("\"ROLE_USER\"", Role::User),
            ("\"Agent\"", Role::Agent),
            ("1", Role::User),
        ] {
            assert_eq!(serde_json::from_str::<Role>(text).unwrap(), role);
        }
        assert!(serde_json::from_str::<Role>("\"system\"").is_err());
        assert!(serde_json::from_str::<Role>("3").is_err());
    }
}
