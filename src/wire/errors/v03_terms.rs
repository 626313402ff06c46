//! Names of 0.x in error texts. The model validates requests in the names of 1.0.

use std::borrow::Cow;

use crate::model::{Binding, Error, ErrorKind, Operation, Version};
use crate::wire::json::prefix_field;

/// Name of 1.0 and the name that the caller uses instead.
type Term = (&'static str, &'static str);

/// Names of 0.x JSON.
const JSON_TERMS: [Term; 6] = [
    ("taskPushNotificationConfig", "pushNotificationConfig"),
    ("authentication.scheme", "authentication.schemes"),
    ("ROLE_USER or ROLE_AGENT", "user or agent"),
    ("TASK_STATE_WORKING", "working"),
    ("one of text, raw, url, data", "one of text, file, data"),
    ("mediaType", "file.mimeType"),
];

/// Names of REST and gRPC of 0.3. The enums of its protobuf file are those of 1.0, and `parts` is an
/// accepted name of its member `content`.
const PROTO_TERMS: [Term; 4] = [
    ("taskPushNotificationConfig", "pushNotification"),
    ("authentication.scheme", "authentication.schemes"),
    ("one of text, raw, url, data", "one of text, file, data"),
    ("mediaType", "file.mimeType"),
];

/// Names that a 0.x caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum V03Terms {
    /// Names of JSON-RPC.
    Json,
    /// Names of REST and gRPC.
    Proto,
}

impl V03Terms {
    /// Returns the message of an error in these names.
    pub(crate) fn message(self, error: &Error) -> Cow<'_, str> {
        let default = ErrorKind::ExtendedAgentCardNotConfigured;
        if error.kind() == default && error.message() == default.message() {
            return Cow::Borrowed("Authenticated Extended Card is not configured");
        }
        self.translate(error.message())
    }

    /// Replaces the names of 1.0 in a text.
    pub(crate) fn translate(self, text: &str) -> Cow<'_, str> {
        let terms: &[Term] = match self {
            Self::Json => &JSON_TERMS,
            Self::Proto => &PROTO_TERMS,
        };
        let mut translated = Cow::Borrowed(text);
        for (name, own) in terms {
            if let Some(replaced) = replace_word(&translated, name, own) {
                translated = Cow::Owned(replaced);
            }
        }
        translated
    }
}

/// Members of a push configuration. In 1.0 they are members of the request itself.
const PUSH_CONFIG_MEMBERS: [&str; 5] = ["url", "token", "id", "authentication", "headers"];

/// Names the member of a refused push configuration as the caller has written it: 0.3 nests the
/// configuration in its request.
#[must_use]
pub fn with_caller_path(
    error: Error,
    operation: Operation,
    version: Version,
    binding: Binding,
) -> Error {
    if operation != Operation::CreatePushConfig || version != Version::V03 {
        return error;
    }
    let field = error
        .violations()
        .first()
        .map(|violation| violation.field());
    let member = field.and_then(|field| field.split(['.', '[']).next());
    if !member.is_some_and(|member| PUSH_CONFIG_MEMBERS.contains(&member)) {
        return error;
    }
    let path = match binding {
        Binding::JsonRpc | Binding::HttpJson => "pushNotificationConfig",
        Binding::Grpc => "config.pushNotificationConfig",
    };
    prefix_field(path, error)
}

/// Replaces the occurrences of a name that are not part of a longer word; `None` if there are none.
fn replace_word(text: &str, name: &str, own: &str) -> Option<String> {
    let mut replaced = None;
    let mut copied = 0;
    for (start, _) in text.match_indices(name) {
        let end = start + name.len();
        let is_word_byte = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let before = start.checked_sub(1).and_then(|at| text.as_bytes().get(at));
        let is_longer = before
            .into_iter()
            .chain(text.as_bytes().get(end))
            .any(is_word_byte);
        if !is_longer {
            let out = replaced.get_or_insert_with(String::new);
            out.push_str(&text[copied..start]);
            out.push_str(own);
            copied = end;
        }
    }
    replaced.map(|out| out + &text[copied..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_1_42_members_of_a_push_config_have_the_path_of_the_caller() {
        let path = |field: &str, operation, version, binding| {
            let error = with_caller_path(Error::invalid(field, "x"), operation, version, binding);
            error.violations()[0].field().to_owned()
        };
        let create = Operation::CreatePushConfig;
        for (field, version, binding, expected) in [
            (
                "url",
                Version::V03,
                Binding::JsonRpc,
                "pushNotificationConfig.url",
            ),
            (
                "authentication.scheme",
                Version::V03,
                Binding::HttpJson,
                "pushNotificationConfig.authentication.scheme",
            ),
            (
                "headers[X-A]",
                Version::V03,
                Binding::Grpc,
                "config.pushNotificationConfig.headers[X-A]",
            ),
            ("taskId", Version::V03, Binding::JsonRpc, "taskId"),
            (
                "pushNotificationConfig.url",
                Version::V03,
                Binding::JsonRpc,
                "pushNotificationConfig.url",
            ),
            ("url", Version::V1, Binding::JsonRpc, "url"),
        ] {
            assert_eq!(path(field, create, version, binding), expected);
        }
        let send = Operation::SendMessage;
        assert_eq!(path("id", send, Version::V03, Binding::JsonRpc), "id");
    }

    #[test]
    fn seed_1_42_names_are_those_of_the_caller() {
        for (text, json, proto) in [
            (
                "message.role must be ROLE_USER or ROLE_AGENT",
                "message.role must be user or agent",
                "message.role must be ROLE_USER or ROLE_AGENT",
            ),
            (
                "configuration.taskPushNotificationConfig.url must not be empty",
                "configuration.pushNotificationConfig.url must not be empty",
                "configuration.pushNotification.url must not be empty",
            ),
            (
                "message.parts[0] must have exactly one of text, raw, url, data",
                "message.parts[0] must have exactly one of text, file, data",
                "message.parts[0] must have exactly one of text, file, data",
            ),
            (
                "message.parts[2].mediaType is not a supported input mode",
                "message.parts[2].file.mimeType is not a supported input mode",
                "message.parts[2].file.mimeType is not a supported input mode",
            ),
            (
                "authentication.schemes and myMediaType stay, ROLE_USER too",
                "authentication.schemes and myMediaType stay, ROLE_USER too",
                "authentication.schemes and myMediaType stay, ROLE_USER too",
            ),
        ] {
            assert_eq!(V03Terms::Json.translate(text), json);
            assert_eq!(V03Terms::Proto.translate(text), proto);
        }
    }
}
