//! Keys: long random texts, each of one caller. Only their digests are kept.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::{AuthError, Authenticator, Identity, RequestCredentials, SchemeInfo};
use crate::model::{
    ApiKeySecurityScheme, Base64, Error, HttpAuthSecurityScheme, Result, Secret, SecurityScheme,
    Timestamp,
};

/// What our keys begin with, so that people and scanners know what they have found.
const PREFIX: &str = "att_";
/// A text that somebody chose is no shorter than this: digests of short ones can be guessed.
const MIN_LENGTH: usize = 20;

/// A key, as it is kept: whose it is and what they may do, and of the key itself only its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ApiKey {
    /// Names this one key; not secret.
    pub id: String,
    /// Whose it is. Several keys of one name are one caller, so that a key can be replaced without a gap.
    pub name: String,
    /// SHA-256 of the key, in hexadecimal. The keys are random and long: there is nothing to guess.
    digest: String,
    /// The scopes it gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The agents it is for; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The tenants it is for; `*`: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// When it ends, in milliseconds since 1970; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
}

impl ApiKey {
    /// A fresh key of this name, and what is kept of it. The first is shown once and to nobody else.
    #[must_use]
    pub fn generate(name: &str) -> (Secret, Self) {
        let secret = format!(
            "{PREFIX}{}{}",
            Uuid::new_v4().simple(),
            Uuid::new_v4().simple()
        );
        let key = Self::from_secret(name, &secret);
        (secret.into(), key)
    }

    fn from_secret(name: &str, secret: &str) -> Self {
        let id: String = Uuid::new_v4()
            .simple()
            .to_string()
            .chars()
            .take(8)
            .collect();
        Self {
            id,
            name: name.to_owned(),
            digest: hex(&digest(secret)),
            scopes: Vec::new(),
            agents: None,
            tenants: Vec::new(),
            created_ms: now(),
            expires_ms: None,
        }
    }

    /// Whether its time is over.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.expires_ms.is_some_and(|end| end <= now())
    }

    fn identity(&self) -> Identity {
        let identity = Identity::named(&format!("key:{}", self.name))
            .scopes(&self.scopes)
            .tenants(&self.tenants);
        match &self.agents {
            Some(agents) => identity.agents(agents),
            None => identity,
        }
    }
}

/// Where a request may carry a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyLocation {
    /// `Authorization: Bearer`.
    Bearer,
    /// `Authorization: Basic`: the name of the caller as the user, the key as the password.
    Basic,
    /// A header of this name.
    Header(String),
    /// A parameter of the query. Proxies write it into their logs: better one of the others.
    Query(String),
    /// A cookie of this name.
    Cookie(String),
}

/// Keys of callers, in memory. Clones are the same keys: what one is given, all have, also while a server runs.
#[derive(Clone)]
pub struct ApiKeys {
    table: Arc<RwLock<HashMap<u64, Vec<ApiKeyEntry>>>>,
    locations: Vec<KeyLocation>,
}

struct ApiKeyEntry {
    digest: [u8; 32],
    name: String,
    expires_ms: Option<i64>,
    identity: Identity,
}

impl Default for ApiKeys {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiKeys {
    /// No keys yet; they come as `Authorization: Bearer` or in the header `X-API-Key`.
    #[must_use]
    pub fn new() -> Self {
        let locations = vec![
            KeyLocation::Bearer,
            KeyLocation::Header("X-API-Key".to_owned()),
        ];
        Self {
            table: Arc::default(),
            locations,
        }
    }

    /// Looks for keys in these locations instead.
    #[must_use]
    pub fn locations(mut self, locations: impl IntoIterator<Item = KeyLocation>) -> Self {
        self.locations = locations.into_iter().collect();
        self
    }

    /// Makes a key for a caller of this name, with what `with` gives them.
    pub fn issue(&self, name: &str, with: impl FnOnce(Identity) -> Identity) -> Secret {
        let (secret, key) = ApiKey::generate(name);
        self.insert(&key, with(key.identity()));
        secret
    }

    /// Takes a text as the key of a caller of this name, with what `with` gives them.
    ///
    /// # Errors
    /// Invalid: it is shorter than 20 bytes, and so could be guessed.
    pub fn add(
        &self,
        name: &str,
        secret: &Secret,
        with: impl FnOnce(Identity) -> Identity,
    ) -> Result<()> {
        if secret.expose().len() < MIN_LENGTH {
            return Err(Error::invalid(
                "key",
                format!("must have at least {MIN_LENGTH} random characters"),
            ));
        }
        let key = ApiKey::from_secret(name, secret.expose());
        self.insert(&key, with(key.identity()));
        Ok(())
    }

    /// Has these keys and no others from now on.
    pub fn replace<'a>(&self, keys: impl IntoIterator<Item = &'a ApiKey>) {
        let fresh = Self::new();
        for key in keys {
            fresh.insert(key, key.identity());
        }
        let table =
            std::mem::take(&mut *fresh.table.write().unwrap_or_else(PoisonError::into_inner));
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    fn insert(&self, key: &ApiKey, identity: Identity) {
        let Some(digest) = from_hex(&key.digest) else {
            return;
        };
        let known = ApiKeyEntry {
            digest,
            name: key.name.clone(),
            expires_ms: key.expires_ms,
            identity,
        };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.entry(bucket(&digest)).or_default().push(known);
    }

    fn find(&self, secret: &str, user: Option<&str>) -> std::result::Result<Identity, AuthError> {
        let digest = digest(secret);
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        // The shelf tells of the digest, which tells nothing of the key; the rest takes the same time for all.
        let mut known = table.get(&bucket(&digest)).into_iter().flatten();
        let found = known
            .find(|known| known.digest.ct_eq(&digest).into())
            .ok_or(AuthError::InvalidCredential)?;
        let expired = found.expires_ms.is_some_and(|end| end <= now());
        let wrong_user = user.is_some_and(|user| user != found.name);
        if expired || wrong_user {
            Err(AuthError::InvalidCredential)
        } else {
            Ok(found.identity.clone())
        }
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("locations", &self.locations)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Authenticator for ApiKeys {
    async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> std::result::Result<Option<Identity>, AuthError> {
        let mut found = None;
        for location in &self.locations {
            let Some((secret, user)) = location.read(credentials)? else {
                continue;
            };
            let identity = self.find(&secret, user.as_deref())?;
            // Two keys are of one caller, or of nobody.
            if found
                .as_ref()
                .is_some_and(|other: &Identity| *other != identity)
            {
                return Err(AuthError::InvalidCredential);
            }
            found = Some(identity);
        }
        Ok(found)
    }

    /// By any of their keys: what all of them are good for.
    fn find_identity(&self, name: &str) -> Option<Identity> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let good = table
            .values()
            .flatten()
            .filter(|known| known.expires_ms.is_none_or(|end| end > now()));
        let identities = good
            .map(|known| &known.identity)
            .filter(|known| known.caller().name() == name);
        identities.cloned().reduce(|all, one| all.intersect(one))
    }

    fn schemes(&self) -> Vec<SchemeInfo> {
        self.locations
            .iter()
            .map(KeyLocation::scheme_info)
            .collect()
    }
}

impl KeyLocation {
    /// The key that is there, and whose it is said to be.
    fn read<'a>(
        &self,
        credentials: &RequestCredentials<'a>,
    ) -> std::result::Result<Option<PresentedKey<'a>>, AuthError> {
        let alone = |text: Cow<'a, str>| (text, None);
        Ok(match self {
            Self::Bearer => credentials
                .authorization("Bearer")?
                .map(|text| alone(text.into())),
            Self::Header(name) => credentials.header(name)?.map(|text| alone(text.into())),
            Self::Query(name) => credentials.query(name)?.map(alone),
            Self::Cookie(name) => credentials.cookie(name)?.map(|text| alone(text.into())),
            Self::Basic => match credentials.authorization("Basic")? {
                Some(text) => Some(parse_basic(text).ok_or(AuthError::InvalidCredential)?),
                None => None,
            },
        })
    }

    fn scheme_info(&self) -> SchemeInfo {
        let http = |name: &str, scheme: &str, challenge: &str| SchemeInfo {
            name: name.to_owned(),
            scheme: SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
                scheme: scheme.to_owned(),
                ..HttpAuthSecurityScheme::default()
            }),
            challenge: challenge.to_owned(),
            has_scopes: false,
        };
        let key = |location: &str, name: &str| SchemeInfo {
            name: format!("{location}Key"),
            scheme: SecurityScheme::ApiKey(ApiKeySecurityScheme {
                location: location.to_owned(),
                name: name.to_owned(),
                ..ApiKeySecurityScheme::default()
            }),
            challenge: format!("ApiKey realm=\"attache\", in=\"{location}\", name=\"{name}\""),
            has_scopes: false,
        };
        match self {
            Self::Bearer => http("bearer", "Bearer", "Bearer realm=\"attache\""),
            Self::Basic => http(
                "basic",
                "Basic",
                "Basic realm=\"attache\", charset=\"UTF-8\"",
            ),
            Self::Header(name) => key("header", name),
            Self::Query(name) => key("query", name),
            Self::Cookie(name) => key("cookie", name),
        }
    }
}

type PresentedKey<'a> = (Cow<'a, str>, Option<String>);

fn parse_basic<'a>(text: &str) -> Option<PresentedKey<'a>> {
    let bytes = Base64::parse(text).ok()?.decode();
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((password.to_owned().into(), Some(user.to_owned())))
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

fn bucket(digest: &[u8; 32]) -> u64 {
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let pairs = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    pairs.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl ApiKey {
    /// When it was made.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        Timestamp::from_millis(self.created_ms).unwrap_or_default()
    }

    /// When it ends, if it does.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires_ms.and_then(Timestamp::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use std::net::Ipv4Addr;

    async fn caller_name(keys: &ApiKeys, name: &'static str, value: &str) -> Option<String> {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        let credentials = RequestCredentials::new(&headers, None, Ipv4Addr::LOCALHOST.into(), None);
        let known = keys.authenticate(&credentials).await;
        known
            .ok()
            .map(|known| known.map_or_else(String::new, |known| known.caller().name().to_owned()))
    }

    #[tokio::test]
    async fn s41_a_key_is_found_by_its_digest_alone() {
        let keys = ApiKeys::new().locations([
            KeyLocation::Bearer,
            KeyLocation::Basic,
            KeyLocation::Header("X-API-Key".to_owned()),
            KeyLocation::Cookie("key".to_owned()),
        ]);
        let key = keys.issue("ann", |identity| identity);
        let text = key.expose();
        let basic = |user: &str| {
            format!(
                "Basic {}",
                Base64::encode(format!("{user}:{text}")).as_str()
            )
        };
        let ann = Some("key:ann".to_owned());
        for (name, value, expected) in [
            ("authorization", format!("Bearer {text}"), ann.clone()),
            ("authorization", basic("ann"), ann.clone()),
            ("x-api-key", text.to_owned(), ann.clone()),
            ("cookie", format!("key={text}"), ann),
            ("authorization", basic("bob"), None),
            ("authorization", format!("Bearer {}x", text), None),
            ("authorization", "Bearer ".to_owned(), None),
            ("authorization", "Basic ?".to_owned(), None),
            (
                "authorization",
                format!("Negotiate {text}"),
                Some(String::new()),
            ),
            ("x-other", text.to_owned(), Some(String::new())),
        ] {
            assert_eq!(
                caller_name(&keys, name, &value).await,
                expected,
                "{name}: {value}"
            );
        }
        assert!(!format!("{keys:?}").contains(text));
    }

    #[tokio::test]
    async fn a_key_that_was_revoked_or_has_ended_is_no_key() {
        let keys = ApiKeys::new();
        let (secret, mut key) = ApiKey::generate("ann");
        keys.replace([&key]);
        assert!(
            caller_name(&keys, "x-api-key", secret.expose())
                .await
                .is_some()
        );
        key.expires_ms = Some(now() - 1);
        keys.replace([&key]);
        assert_eq!(caller_name(&keys, "x-api-key", secret.expose()).await, None);
        keys.replace([]);
        assert_eq!(caller_name(&keys, "x-api-key", secret.expose()).await, None);
    }

    #[test]
    fn s41_what_can_be_guessed_is_no_key() {
        let error = ApiKeys::new()
            .add("ann", &"hunter2".into(), |ann| ann)
            .unwrap_err();
        assert!(!error.message().contains("hunter2"), "{error}");
        ApiKeys::new()
            .add("ann", &"a-text-that-is-long-enough".into(), |ann| ann)
            .unwrap();
    }
}
