//! Redaction of unknown credentials, recognized by the names of headers, members and parameters.

/// JSON members that contain credentials, in lower case.
const MEMBERS: &[&str] = &[
    "token",
    "credentials",
    "access_token",
    "accesstoken",
    "refresh_token",
    "refreshtoken",
    "id_token",
    "client_secret",
    "clientsecret",
    "device_code",
    "code_verifier",
    "authorization",
    "password",
    "secret",
    "apikey",
    "api_key",
];

/// URL and form parameters that contain credentials, in addition to the names of [`is_credential`].
const PARAMETERS: &[&str] = &[
    "code",
    "device_code",
    "code_verifier",
    "assertion",
    "client_assertion",
    "sig",
];

/// Whether a header or parameter of this name contains a credential.
pub(crate) fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = [
        "auth",
        "token",
        "key",
        "secret",
        "cookie",
        "password",
        "credential",
        "session",
        "signature",
    ];
    let harmless = ["idempotency-key", "pagetoken", "page_token"];
    words.iter().any(|word| name.contains(word)) && !harmless.contains(&name.as_str())
}

/// Redacts JSON members, parameters and user info of URLs.
pub(super) fn redact(text: &str) -> String {
    let text = MEMBERS
        .iter()
        .fold(text.to_owned(), |text, member| redact_member(&text, member));
    redact_parameters(&redact_user_info(&text))
}

/// Redacts the string behind `"member":`.
fn redact_member(text: &str, member: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let quoted = format!("\"{member}\"");
    let mut redacted = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = lower[at..].find(&quoted) {
        let end = at + found + quoted.len();
        redacted.push_str(&text[at..end]);
        at = end;
        if let Some((skip, length)) = json_string(&text[end..]) {
            redacted.push_str(&text[end..end + skip]);
            redacted.push_str("***");
            at = end + skip + length;
        }
    }
    redacted.push_str(&text[at..]);
    redacted
}

/// Offset and length of the JSON string behind a member name.
fn json_string(behind: &str) -> Option<(usize, usize)> {
    let colon = behind
        .find(':')
        .filter(|at| behind[..*at].trim().is_empty())?;
    let open = colon + 1 + behind[colon + 1..].find(|c: char| !c.is_whitespace())?;
    if !behind[open..].starts_with('"') {
        return None;
    }
    let inside = &behind[open + 1..];
    let mut escaped = false;
    let length = inside.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    Some((open + 1, length.unwrap_or(inside.len())))
}

/// Redacts the values of `name=value` in URLs and forms.
fn redact_parameters(text: &str) -> String {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "-_.%".contains(c);
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('=') {
        let before = &rest[..at];
        let behind = &rest[at + 1..];
        let name = &before[before.rfind(|c| !in_name(c)).map_or(0, |end| {
            end + before[end..].chars().next().map_or(1, char::len_utf8)
        })..];
        redacted.push_str(&rest[..=at]);
        rest = behind;
        let lower = name.to_ascii_lowercase();
        if !name.is_empty() && (is_credential(name) || PARAMETERS.contains(&lower.as_str())) {
            let end = behind.find(|c: char| "&#\"'<>;,".contains(c) || c.is_whitespace());
            let end = end.unwrap_or(behind.len());
            if end > 0 {
                redacted.push_str("***");
                rest = &behind[end..];
            }
        }
    }
    redacted.push_str(rest);
    redacted
}

/// Redacts the user info of URLs: the text between `://` and `@`.
fn redact_user_info(text: &str) -> String {
    let mut pieces = text.split("://");
    let mut redacted = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        redacted.push_str("://");
        let end = piece
            .find(|c: char| "/?#\"'<>".contains(c) || c.is_whitespace())
            .unwrap_or(piece.len());
        match piece[..end].rfind('@') {
            Some(at) => {
                redacted.push_str("***");
                redacted.push_str(&piece[at..]);
            }
            None => redacted.push_str(piece),
        }
    }
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_004_json_members_are_redacted_by_name() {
        let body = r#"{"url":"u","token" : "a\"b","authentication":{"credentials":"c"},"accessToken":"d"}"#;
        let hidden = r#"{"url":"u","token" : "***","authentication":{"credentials":"***"},"accessToken":"***"}"#;
        assert_eq!(redact(body), hidden);
        let harmless = r#"{"nextPageToken":"n","token":7,"code":"TaskNotFoundError"}"#;
        assert_eq!(redact(harmless), harmless);
        assert_eq!(redact(r#"{"token":"cut off"#), r#"{"token":"***"#);
    }

    #[test]
    fn auth_004_forms_and_queries_are_redacted_by_name() {
        assert_eq!(
            redact(
                "grant_type=refresh_token&refresh_token=abc%2Fd&client_id=me&code=x&code_verifier=y"
            ),
            "grant_type=refresh_token&refresh_token=***&client_id=me&code=***&code_verifier=***"
        );
        assert_eq!(
            redact("https://a/x?api_key=abc&x=1#f"),
            "https://a/x?api_key=***&x=1#f"
        );
        assert_eq!(
            redact(r#"{"url":"https://a/?X-Amz-Signature=ab"}"#),
            r#"{"url":"https://a/?X-Amz-Signature=***"}"#
        );
        for harmless in ["/tasks?pageToken=abc&pageSize=2", "a == b = c", "x=", "é=1"] {
            assert_eq!(redact(harmless), harmless);
        }
    }

    #[test]
    fn auth_004_user_info_of_urls_is_redacted() {
        assert_eq!(
            redact("see https://me:pw@x.example/a@b and b"),
            "see https://***@x.example/a@b and b"
        );
        assert_eq!(redact("mail me@x.example"), "mail me@x.example");
    }
}
