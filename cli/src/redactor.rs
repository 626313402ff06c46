//! Credentials never show, whatever is printed and however it is asked for.

mod by_name;

use std::sync::{Arc, PoisonError, RwLock};

use attache::model::Secret;

use crate::settings::Settings;
pub(crate) use by_name::is_credential;

/// What must not be seen. Clones share it: what comes up on the way is hidden from then on, everywhere.
#[derive(Debug, Default, Clone)]
pub(crate) struct Redactor(Arc<RwLock<Vec<Secret>>>);

/// Shorter ones would blank out half of the text, and protect nothing.
const SHORTEST: usize = 4;

impl Redactor {
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
        // Who writes a password into the address of an agent has it refused, and not repeated.
        let places = settings
            .agent
            .iter()
            .chain(&settings.endpoint)
            .filter_map(|place| user_info(place));
        places.for_each(|info| redactor.add(&Secret::from(info)));
        redactor
    }

    pub(crate) fn add(&self, secret: &Secret) {
        // A value such as `Bearer abc` hides its second word as well.
        let words = secret.expose().split_whitespace().chain([secret.expose()]);
        let words = words
            .filter(|word| word.len() >= SHORTEST)
            .flat_map(spellings);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for word in words {
            if !all.iter().any(|known| known.expose() == word) {
                all.push(Secret::from(word));
            }
        }
        all.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
    }

    /// The text without any of them.
    pub(crate) fn redact(&self, text: &str) -> String {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.expose(), "***")
        })
    }

    /// What passes on the wire without them, and without what its own names say are credentials.
    pub(crate) fn redact_wire(&self, text: &str) -> String {
        by_name::redact(&self.redact(text))
    }
}

/// As it stands, and as it stands in a url, in a form and in JSON.
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
    all.retain(|spelling| spelling.len() >= SHORTEST);
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

/// What stands before the host of a url.
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
    fn auth_004_what_is_learned_on_the_way_is_hidden_by_everybody() {
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
