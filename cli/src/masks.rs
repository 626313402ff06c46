//! Credentials never show, whatever is printed and however it is asked for.

use attache::model::Secret;

use crate::settings::Settings;

/// What must not be seen.
#[derive(Debug, Default, Clone)]
pub(crate) struct Masks(Vec<Secret>);

/// Shorter ones would blank out half of the text, and protect nothing.
const SHORTEST: usize = 4;

/// Members of bodies that hold credentials, wherever they are.
const MEMBERS: &[&str] = &[
    "token",
    "credentials",
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "device_code",
    "password",
    "apikey",
    "api_key",
];

impl Masks {
    pub(crate) fn of(settings: &Settings) -> Self {
        let params = settings.service_params.iter().filter(|(name, _)| is_credential(name)).map(|(_, it)| it);
        let all = settings.bearer.iter().chain(&settings.api_key).chain(params);
        let mut masks = Self::default();
        all.for_each(|secret| masks.add(secret));
        masks
    }

    pub(crate) fn add(&mut self, secret: &Secret) {
        // A value such as `Bearer abc` hides its second word as well.
        let words = secret.expose().split_whitespace().chain([secret.expose()]);
        self.0.extend(words.filter(|word| word.len() >= SHORTEST).map(Secret::from));
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
    }

    /// The text without any of them.
    pub(crate) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| {
            let encoded: String = secret.expose().bytes().map(percent).collect();
            text.replace(secret.expose(), "***").replace(&encoded, "***")
        })
    }

    /// A body without them, and without what its members say are credentials.
    pub(crate) fn hide_body(&self, body: &str) -> String {
        let mut text = self.hide(body);
        for member in MEMBERS {
            text = hide_member(&text, member);
        }
        text
    }
}

/// As a query parameter has it.
fn percent(byte: u8) -> String {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    }
}

/// Blanks the string behind `"member":` and the value behind `member=`.
fn hide_member(text: &str, member: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let lower = text.to_ascii_lowercase();
    let mut at = 0;
    while let Some(found) = lower[at..].find(member) {
        let end = at + found + member.len();
        let before = lower[..at + found].chars().next_back();
        shown.push_str(&rest[..found + member.len()]);
        let behind = &text[end..];
        let value = match before {
            Some('"') => behind.strip_prefix('"').and_then(json_string),
            None | Some('&' | '?' | '\n' | ' ') => {
                behind.strip_prefix('=').map(|it| (1, it.find(['&', ' ', '\n', '"']).unwrap_or(it.len())))
            }
            Some(_) => None,
        };
        at = end;
        if let Some((skip, length)) = value {
            shown.push_str(&behind[..skip]);
            shown.push_str("***");
            at = end + skip + length;
        }
        rest = &text[at..];
    }
    shown.push_str(rest);
    shown
}

/// Where a JSON string begins behind the quote of its name, and how long it is.
fn json_string(behind: &str) -> Option<(usize, usize)> {
    let colon = behind.find(':').filter(|at| behind[..*at].trim().is_empty())?;
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
    // One for the quote that was stripped, one for the quote that opens.
    Some((open + 2, length.unwrap_or(inside.len())))
}

/// Whether a header of this name carries a credential.
pub(crate) fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words =
        ["auth", "token", "key", "secret", "cookie", "password", "credential", "session", "signature"];
    words.iter().any(|word| name.contains(word)) && name != "idempotency-key"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_004_credentials_are_hidden_in_every_place() {
        let mut masks = Masks::default();
        masks.add(&Secret::from("Bearer s3cret/x"));
        assert_eq!(
            masks.hide("GET /?k=s3cret%2Fx Authorization: Bearer s3cret/x"),
            "GET /?k=*** Authorization: ***"
        );
        let body = r#"{"url":"u","token" : "a\"b","authentication":{"credentials":"c"},"x":"s3cret/x"}"#;
        let hidden = r#"{"url":"u","token" : "***","authentication":{"credentials":"***"},"x":"***"}"#;
        assert_eq!(masks.hide_body(body), hidden);
        assert_eq!(masks.hide_body("client_secret=abc&x=1"), "client_secret=***&x=1");
        assert_eq!(
            masks.hide_body(r#"{"nextPageToken":"n","token":7}"#),
            r#"{"nextPageToken":"n","token":7}"#
        );
    }
}
