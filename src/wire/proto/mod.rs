//! Helpers shared by the conversions of both protobuf packages: well-known types, enum numbers, and
//! errors with a field path.
//!
//! Encoding never fails. Decoding returns invalid parameters with the JSON path of the field.
//! Required fields are checked later, by `validate` of the model.

mod shared;
mod time;
mod value;

use attache_proto::v1;

use super::lenient::{role_from_number, state_from_number};
use crate::model::{Content, Error, Object, Part, Result, Role, TaskState};

pub(crate) use shared::{impl_card_conversions, impl_flow_conversions, impl_task_conversions};

/// Converts the member `name`; prefixes the path of an error.
pub(crate) fn read<P, T: TryFrom<P, Error = Error>>(name: &str, proto: P) -> Result<T> {
    T::try_from(proto).map_err(|error| prefix_field(name, error))
}

/// Converts an optional member.
pub(crate) fn read_option<P, T: TryFrom<P, Error = Error>>(
    name: &str,
    proto: Option<P>,
) -> Result<Option<T>> {
    proto.map(|proto| read(name, proto)).transpose()
}

/// Converts an optional member; absent means the default.
pub(crate) fn read_or_default<P, T>(name: &str, proto: Option<P>) -> Result<T>
where
    T: TryFrom<P, Error = Error> + Default,
{
    read_option(name, proto).map(Option::unwrap_or_default)
}

/// Converts a repeated member.
pub(crate) fn read_list<P, T: TryFrom<P, Error = Error>>(
    name: &str,
    protos: Vec<P>,
) -> Result<Vec<T>> {
    let items = protos.into_iter().enumerate();
    items
        .map(|(at, proto)| {
            T::try_from(proto).map_err(|error| prefix_field(&format!("{name}[{at}]"), error))
        })
        .collect()
}

/// Prefixes the path of the invalid field with `name`.
pub(crate) fn prefix_field(name: &str, error: Error) -> Error {
    match error.violations() {
        [] => error,
        [violation, ..] => Error::invalid(
            join_path(name, violation.field()),
            violation.description().to_owned(),
        ),
    }
}

fn join_path(name: &str, rest: &str) -> String {
    let whole = if rest.is_empty() || rest.starts_with('[') {
        format!("{name}{rest}")
    } else {
        format!("{name}.{rest}")
    };
    crate::wire::json::printable_path(&whole)
}

/// Converts a list for encoding.
pub(crate) fn write_list<'a, T: 'a, P: From<&'a T>>(
    items: impl IntoIterator<Item = &'a T>,
) -> Vec<P> {
    items.into_iter().map(P::from).collect()
}

/// Decodes a string without presence: empty means absent.
pub(crate) fn non_empty<T: From<String>>(text: String) -> Option<T> {
    (!text.is_empty()).then(|| text.into())
}

/// Encodes a string without presence: absent means empty.
pub(crate) fn or_empty<T: AsRef<str>>(text: Option<&T>) -> String {
    text.map(T::as_ref).unwrap_or_default().to_owned()
}

/// Converts ids to strings.
pub(crate) fn to_strings<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// Creates a part. An empty file name or media type means absent.
pub(crate) fn build_part(
    content: Content,
    metadata: Option<Object>,
    filename: String,
    media_type: String,
) -> Part {
    let mut part = Part::from(content);
    if let Some(metadata) = metadata {
        part = part.with_metadata(metadata);
    }
    if !filename.is_empty() {
        part = part.with_filename(filename);
    }
    if !media_type.is_empty() {
        part = part.with_media_type(media_type);
    }
    part
}

/// Returns the number of a state, which is the same in both packages.
pub(crate) fn state_number(state: TaskState) -> i32 {
    let state = match state {
        TaskState::Unspecified => v1::TaskState::Unspecified,
        TaskState::Submitted => v1::TaskState::Submitted,
        TaskState::Working => v1::TaskState::Working,
        TaskState::Completed => v1::TaskState::Completed,
        TaskState::Failed => v1::TaskState::Failed,
        TaskState::Canceled => v1::TaskState::Canceled,
        TaskState::InputRequired => v1::TaskState::InputRequired,
        TaskState::Rejected => v1::TaskState::Rejected,
        TaskState::AuthRequired => v1::TaskState::AuthRequired,
    };
    state.into()
}

/// Converts the number of a state.
pub(crate) fn read_state(name: &str, number: i32) -> Result<TaskState> {
    state_from_number(number.into())
        .ok_or_else(|| Error::invalid(name, "must be a task state such as TASK_STATE_WORKING"))
}

/// Returns the number of a role, which is the same in both packages.
pub(crate) fn role_number(role: Role) -> i32 {
    let role = match role {
        Role::Unspecified => v1::Role::Unspecified,
        Role::User => v1::Role::User,
        Role::Agent => v1::Role::Agent,
    };
    role.into()
}

/// Converts the number of a role.
pub(crate) fn read_role(name: &str, number: i32) -> Result<Role> {
    role_from_number(number.into())
        .ok_or_else(|| Error::invalid(name, "must be ROLE_USER or ROLE_AGENT"))
}

#[cfg(test)]
mod tests {
    use attache_proto::v03;

    use super::*;

    #[test]
    fn enum_numbers_agree_in_both_packages() {
        for state_of in TaskState::ALL {
            assert_eq!(read_state("s", state_number(state_of)), Ok(state_of));
        }
        for role_of in [Role::Unspecified, Role::User, Role::Agent] {
            assert_eq!(read_role("r", role_number(role_of)), Ok(role_of));
        }
        assert_eq!(
            state_number(TaskState::Canceled),
            i32::from(v03::TaskState::Cancelled)
        );
        assert_eq!(
            state_number(TaskState::AuthRequired),
            i32::from(v03::TaskState::AuthRequired)
        );
        assert_eq!(role_number(Role::Agent), i32::from(v03::Role::Agent));
        for bad in [-1, 9, i32::MAX] {
            assert_eq!(
                read_state("status.state", bad).unwrap_err().violations()[0].field(),
                "status.state"
            );
            assert_eq!(
                read_role("role", bad).unwrap_err().violations()[0].field(),
                "role"
            );
        }
    }
}
