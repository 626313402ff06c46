//! Authentication by API key.
//!
//! A key is looked up by the SHA-256 of the presented secret. Digests are compared in constant time.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use subtle::ConstantTimeEq;

use super::api_key::{CALLER_PREFIX, now_ms, secret_digest};
use super::{
    ApiKey, AuthError, Authenticator, Identity, KeyLocation, RequestCredentials, Revocation,
    SchemeInfo,
};
use crate::model::{Caller, Error, Result, Secret};
use crate::rt::{read_lock, write_lock};

/// Minimum length of a key that was not generated, in bytes: short secrets can be guessed from their digest.
const MIN_KEY_BYTES: usize = 20;

/// In-memory set of API keys. Clones share the set; changes take effect while a server runs.
#[derive(Clone)]
pub struct ApiKeys {
    table: Arc<RwLock<KeyTable>>,
    locations: Vec<KeyLocation>,
}

#[derive(Default)]
struct KeyTable {
    /// Keys by the first 64 bits of their digest.
    entries: HashMap<u64, Vec<ApiKeyEntry>>,
    /// Callers with a key.
    callers: HashSet<Caller>,
}

struct ApiKeyEntry {
    digest: [u8; 32],
    name: String,
    expires_ms: Option<i64>,
    identity: Identity,
    revocation: Revocation,
}

impl ApiKeyEntry {
    fn is_expired(&self) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms())
    }
}

impl Default for ApiKeys {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiKeys {
    /// An empty set. Keys are read from `Authorization: Bearer` and from the header `X-API-Key`.
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

    /// Sets the locations from which keys are read.
    #[must_use]
    pub fn locations(mut self, locations: impl IntoIterator<Item = KeyLocation>) -> Self {
        self.locations = locations.into_iter().collect();
        self
    }

    /// Generates a key for a caller; `with` grants permissions. Returns the secret.
    pub fn issue(&self, name: &str, with: impl FnOnce(Identity) -> Identity) -> Secret {
        let (secret, key) = ApiKey::generate(name);
        self.insert(&key, with(key.identity()));
        secret
    }

    /// Adds an existing secret as the key of a caller; `with` grants permissions.
    ///
    /// # Errors
    /// Invalid: the secret is shorter than 20 bytes and could be guessed.
    pub fn add(
        &self,
        name: &str,
        secret: &Secret,
        with: impl FnOnce(Identity) -> Identity,
    ) -> Result<()> {
        if secret.expose().len() < MIN_KEY_BYTES {
            return Err(Error::invalid(
                "key",
                format!("must have at least {MIN_KEY_BYTES} random characters"),
            ));
        }
        let key = ApiKey::from_secret(name, secret.expose());
        self.insert(&key, with(key.identity()));
        Ok(())
    }

    /// Replaces all keys at once. Streams that were opened with a key that is not among the new ones end.
    pub fn replace<'a>(&self, keys: impl IntoIterator<Item = &'a ApiKey>) {
        let mut table = write_lock(&self.table);
        let old = std::mem::take(&mut *table);
        let mut revocations: HashMap<_, _> = old
            .entries
            .into_values()
            .flatten()
            .map(|entry| (entry.digest, entry.revocation))
            .collect();
        for key in keys {
            let revocation = key.digest().and_then(|digest| revocations.remove(&digest));
            insert(
                &mut table,
                key,
                key.identity(),
                revocation.unwrap_or_default(),
            );
        }
        // Unlocked first: a stream that ends may be opened again at once, with the new keys.
        drop(table);
        for revocation in revocations.into_values() {
            revocation.revoke();
        }
    }

    fn insert(&self, key: &ApiKey, identity: Identity) {
        insert(
            &mut write_lock(&self.table),
            key,
            identity,
            Revocation::new(),
        );
    }

    /// Returns the identity of a key that was not sent as a credential of a request.
    pub(crate) fn identify(&self, secret: &str) -> Option<Identity> {
        self.find(secret, None).ok()
    }

    fn find(&self, secret: &str, user: Option<&str>) -> std::result::Result<Identity, AuthError> {
        let digest = secret_digest(secret);
        let table = read_lock(&self.table);
        // The bucket lookup may leak bits of the digest, which reveal nothing of the secret. The comparison is constant-time.
        let mut entries = table.entries.get(&bucket(&digest)).into_iter().flatten();
        let entry = entries
            .find(|entry| entry.digest.ct_eq(&digest).into())
            .ok_or(AuthError::InvalidCredential)?;
        let is_other_user = user.is_some_and(|user| user != entry.name);
        if entry.is_expired() || is_other_user {
            return Err(AuthError::InvalidCredential);
        }
        Ok(entry.identity.clone())
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys")
            .field("locations", &self.locations)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Authenticator for ApiKeys {
    /// Keys at several locations must belong to the same identity.
    async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> std::result::Result<Option<Identity>, AuthError> {
        let mut found: Option<Identity> = None;
        for location in &self.locations {
            let Some(key) = location.read(credentials)? else {
                continue;
            };
            let identity = self.find(&key.secret, key.user.as_deref())?;
            if found.as_ref().is_some_and(|other| *other != identity) {
                return Err(AuthError::InvalidCredential);
            }
            found = Some(identity);
        }
        Ok(found)
    }

    /// The permissions that all valid keys of the caller have in common.
    fn find_identity(&self, name: &str) -> Option<Identity> {
        let table = read_lock(&self.table);
        let identities = table
            .entries
            .values()
            .flatten()
            .filter(|entry| !entry.is_expired())
            .map(|entry| &entry.identity)
            .filter(|identity| identity.caller().name() == name);
        identities.cloned().reduce(|all, one| all.intersect(one))
    }

    /// Webhooks of a caller end when its last key is revoked. During a rotation the caller has two.
    fn has_credential(&self, name: &str) -> Option<bool> {
        name.starts_with(CALLER_PREFIX)
            .then(|| read_lock(&self.table).callers.contains(&Caller::new(name)))
    }

    fn schemes(&self) -> Vec<SchemeInfo> {
        self.locations
            .iter()
            .map(KeyLocation::scheme_info)
            .collect()
    }
}

/// Inserts a key. A key with a malformed digest is ignored.
fn insert(table: &mut KeyTable, key: &ApiKey, identity: Identity, revocation: Revocation) {
    let Some(digest) = key.digest() else {
        return;
    };
    let identity = identity.revoked_by(&revocation);
    let identity = match key.expires() {
        Some(expiry) => identity.valid_until(expiry),
        None => identity,
    };
    let entry = ApiKeyEntry {
        digest,
        name: key.name.clone(),
        expires_ms: key.expires_ms,
        identity,
        revocation,
    };
    table.callers.insert(entry.identity.caller().clone());
    let bucket = table.entries.entry(bucket(&digest));
    bucket.or_default().push(entry);
}

/// The first 64 bits of a digest.
fn bucket(digest: &[u8; 32]) -> u64 {
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::super::api_key::now_ms;
    use super::*;
    use crate::model::Base64;
    use http::HeaderMap;
    use std::net::Ipv4Addr;

    /// Name of the authenticated caller; empty without a credential, `None` if it is refused.
    async fn caller_name(keys: &ApiKeys, name: &'static str, value: &str) -> Option<String> {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        let credentials = RequestCredentials::new(&headers, None, Ipv4Addr::LOCALHOST.into(), None);
        let authenticated = keys.authenticate(&credentials).await;
        let name = |identity: Identity| identity.caller().name().to_owned();
        authenticated
            .ok()
            .map(|identity| identity.map(name).unwrap_or_default())
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
    async fn revoked_and_expired_keys_are_refused() {
        let keys = ApiKeys::new();
        let (secret, mut key) = ApiKey::generate("ann");
        keys.replace([&key]);
        assert!(
            caller_name(&keys, "x-api-key", secret.expose())
                .await
                .is_some()
        );
        key.expires_ms = Some(now_ms() - 1);
        keys.replace([&key]);
        assert_eq!(caller_name(&keys, "x-api-key", secret.expose()).await, None);
        keys.replace([]);
        assert_eq!(caller_name(&keys, "x-api-key", secret.expose()).await, None);
    }

    #[test]
    fn d18_r48_keys_that_stay_are_not_revoked() {
        let keys = ApiKeys::new();
        let (_, old) = ApiKey::generate("ann");
        let (_, new) = ApiKey::generate("ann");
        let revocation = |key: &ApiKey| {
            let digest = key.digest().unwrap();
            let table = read_lock(&keys.table);
            table.entries[&bucket(&digest)][0].revocation.clone()
        };
        keys.replace([&old]);
        let of_old = revocation(&old);
        keys.replace([&old, &new]);
        let of_new = revocation(&new);
        assert!(!of_old.is_revoked());
        keys.replace([&new]);
        assert!(of_old.is_revoked() && !of_new.is_revoked());
        // Rotated: the caller still has a key.
        assert_eq!(keys.has_credential("key:ann"), Some(true));
        keys.replace([]);
        assert!(of_new.is_revoked());
        assert_eq!(keys.has_credential("key:ann"), Some(false));
        assert_eq!(keys.has_credential("jwt:ann"), None);
    }

    #[test]
    fn s41_short_keys_are_refused() {
        let error = ApiKeys::new()
            .add("ann", &"hunter2".into(), |ann| ann)
            .unwrap_err();
        assert!(!error.message().contains("hunter2"), "{error}");
        ApiKeys::new()
            .add("ann", &"a-text-that-is-long-enough".into(), |ann| ann)
            .unwrap();
    }
}
