//! Redaction of credentials in all output, `--debug` included. It cannot be switched off.

mod by_name;

use std::sync::{Arc, RwLock};

use attache::model::Secret;

use crate::settings::Settings;
use crate::sync;
pub(crate) use by_name::is_credential;

/// Set of secrets to redact. Clones share the set, so a secret added later is redacted everywhere.
#[derive(Debug, Default, Clone)]
pub(crate) struct Redactor(Arc<RwLock<Vec<Secret>>>);

/// Minimum length of a redacted secret, in bytes. Shorter secrets would redact ordinary text.
const MIN_SECRET_BYTES: usize = 4;

impl Redactor {
    /// Collects the credentials of the settings.
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        let redactor = Self::default();
        let params = settings
            .service_params
            .iter()
            .filter(|(name, _)| is_credential(name))
            .map(|(_, it)| it);
        settings
            .bearer
            .iter()
            .chain(&settings.api_key)
            .chain(params)
            .for_each(|secret| redactor.add(secret));
        // A password in the URL of an agent is refused; the error must not repeat it.
        let urls = settings
            .agent
            .iter()
            .chain(&settings.endpoint)
            .filter_map(|url| user_info(url));
        urls.for_each(|info| redactor.add(&Secret::from(info)));
        redactor
    }

    /// Adds a secret in all its encodings.
    pub(crate) fn add(&self, secret: &Secret) {
        // Each word of a value such as `Bearer abc` is redacted too.
        let words = secret.expose().split_whitespace().chain([secret.expose()]);
        let words = words
            .filter(|word| word.len() >= MIN_SECRET_BYTES)
            .flat_map(spellings);
        let mut all = sync::write(&self.0);
        for word in words {
            if !all.iter().any(|known| known.expose() == word) {
                all.push(Secret::from(word));
            }
        }
        all.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
    }

    /// Replaces every secret of the set by `***`.
    pub(crate) fn redact(&self, text: &str) -> String {
        let all = sync::read(&self.0);
        all.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.expose(), "***")
        })
    }

    /// Redacts the set, and values whose JSON member, parameter or URL position marks them as credentials.
    pub(crate) fn redact_wire(&self, text: &str) -> String {
        by_name::redact(&self.redact(text))
    }
}

/// Returns a word verbatim, percent-encoded, form-encoded and JSON-escaped.
fn spellings(word: &str) -> Vec<String> {
    let json = serde_json::to_string(word).unwrap_or_default();
    let mut all = vec![
        word.to_owned(),
        word.bytes().map(|byte| percent(byte, b"-._~")).collect(),
        word.bytes()
            .map(|byte| percent(byte, b"*-._"))
            .collect::<String>()
            .replace("%20", "+"),
        json.trim_matches('"').to_owned(),
    ];
    all.retain(|spelling| spelling.len() >= MIN_SECRET_BYTES);
    all.dedup();
    all
}

fn percent(byte: u8, plain: &[u8]) -> String {
    match byte {
        byte if byte.is_ascii_alphanumeric() || plain.contains(&byte) => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    }
}

/// Returns the user info of a URL: the part before `@`.
fn user_info(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#'])
        .next()?
        .rsplit_once('@')
        .map(|(info, _)| info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_004_credentials_are_hidden_in_every_place_and_spelling() {
        let redactor = Redactor::default();
        redactor.add(&Secret::from("Bearer s3cret/x"));
        assert_eq!(
            redactor.redact("GET /?k=s3cret%2Fx Authorization: Bearer s3cret/x"),
            "GET /?k=*** Authorization: ***"
        );
        redactor.add(&Secret::from("pass \"word\"~1"));
        assert_eq!(
            redactor.redact("a=pass+%22word%22%7E1&b=pass%20%22word%22~1"),
            "a=***&b=***"
        );
        assert_eq!(
            redactor.redact(r#"{"said":"pass \"word\"~1"}"#),
            r#"{"said":"***"}"#
        );
    }

    #[test]
    fn auth_004_secrets_added_later_are_redacted_by_all_clones() {
        let redactor = Redactor::default();
        let other = redactor.clone();
        redactor.add(&Secret::from("renewed-token"));
        assert_eq!(other.redact("it is renewed-token"), "it is ***");
    }

    #[test]
    fn auth_004_a_password_in_an_address_is_not_repeated() {
        let agent = Some("https://me:hunter22@agent.example/x".to_owned());
        let redactor = Redactor::from_settings(&Settings {
            agent,
            ..Settings::default()
        });
        assert_eq!(
            redactor.redact("cannot use https://me:hunter22@agent.example/x"),
            "cannot use https://***@agent.example/x"
        );
    }
}
