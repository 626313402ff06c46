//! Servers that are trusted to call on behalf of others, and verification of their delegation tokens.

use std::sync::Arc;

use super::Identity;
use crate::jws::{Delegation, PublishedKeys};
use crate::model::{Error, ErrorKind, Result};

/// Trusted servers by caller name, with the keys that sign their delegations. A server may have several key sets.
#[derive(Clone, Default)]
pub(super) struct TrustedDelegators(Vec<(String, Arc<PublishedKeys>)>);

impl TrustedDelegators {
    pub(super) fn add(&mut self, name: &str, keys: PublishedKeys) {
        self.0.push((name.to_owned(), Arc::new(keys)));
    }

    /// Whether the caller is a trusted server.
    pub(super) fn contains(&self, caller: &Identity) -> bool {
        self.keys_for(caller).next().is_some()
    }

    /// Verifies a delegation token of a trusted server; `None` if the token is invalid or expired.
    ///
    /// # Errors
    /// Unavailable: the keys cannot be fetched.
    pub(super) async fn verify(
        &self,
        delegator: &Identity,
        token: &str,
    ) -> Result<Option<Delegation>> {
        for keys in self.keys_for(delegator) {
            let verified = keys.verify_claims(token).await;
            let claims =
                verified.map_err(|error| Error::new(ErrorKind::Unavailable).with_source(error))?;
            if let Some(delegation) = claims.and_then(Delegation::from_claims) {
                return Ok(Some(delegation));
            }
        }
        Ok(None)
    }

    fn keys_for(&self, caller: &Identity) -> impl Iterator<Item = &PublishedKeys> {
        let name = caller.caller().name();
        let own = self.0.iter().filter(move |(own, _)| own == name);
        own.map(|(_, keys)| &**keys)
    }
}
