//! Servers of ours that call for somebody else: whose word is believed, and how far.

use crate::model::{Error, ErrorKind, Json, LINEAGE, Request, Result};
use crate::telemetry::metrics;

/// What is known of a call beside who makes it.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    not(feature = "jws"),
    expect(dead_code, reason = "nobody is believed where nothing can be signed")
)]
pub(crate) enum DelegationClaim {
    /// Somebody calls for themselves, and says of other things what they like.
    Direct,
    /// A node calls, and does not say for whom.
    Missing,
    /// A node has signed for whom it calls, and whose work it is part of.
    Signed(Option<Json>),
}

impl DelegationClaim {
    /// Holds a message to it. What a node has signed of its line counts, in place of what the message says; a node has no
    /// messages of its own, so that nobody is served with its rights.
    ///
    /// # Errors
    /// Permission denied: a node does not say for whom it speaks.
    pub(crate) fn apply_to(&self, request: &mut Request) -> Result<()> {
        let (Request::SendMessage(request) | Request::SendStreamingMessage(request)) = request
        else {
            return Ok(());
        };
        match self {
            Self::Direct => Ok(()),
            Self::Missing => {
                metrics::record_auth_failure("delegation");
                Err(Error::new(ErrorKind::PermissionDenied).with_message(
                    "Permission denied: a server of ours must sign for whom it calls",
                ))
            }
            Self::Signed(Some(lineage)) => {
                request
                    .message
                    .metadata
                    .get_or_insert_default()
                    .insert(LINEAGE, lineage.clone());
                Ok(())
            }
            Self::Signed(None) => {
                if let Some(metadata) = &mut request.message.metadata {
                    metadata.remove(LINEAGE);
                }
                Ok(())
            }
        }
    }
}

#[cfg(feature = "jws")]
mod signed {
    use std::sync::Arc;

    use super::DelegationClaim;
    use crate::auth::{Access, Identity, RequestCredentials};
    use crate::jws::{Delegation, PublishedKeys};
    use crate::model::{Error, ErrorKind, Json, Result};
    use crate::telemetry::metrics;

    /// Whose calls are for others, and the keys that they sign with.
    #[derive(Clone, Default)]
    pub(in crate::auth) struct TrustedDelegators(Vec<(String, Arc<PublishedKeys>)>);

    impl TrustedDelegators {
        /// The keys of this caller; none if it is no node.
        pub(in crate::auth) fn keys_for(&self, caller: &Identity) -> Vec<Arc<PublishedKeys>> {
            let own = self
                .0
                .iter()
                .filter(|(name, _)| name == caller.caller().name());
            own.map(|(_, keys)| keys.clone()).collect()
        }
    }

    impl Access {
        /// Believes a caller of this name, such as `key:broker`, about whom it calls for: another server of ours, which signs
        /// that with one of these keys ([`Delegation`]). Its calls are those of whoever they are for, as far as both may make
        /// them; messages that are for nobody are refused. What anybody else says of it counts for nothing.
        #[must_use]
        pub fn trust_delegation(mut self, name: &str, keys: PublishedKeys) -> Self {
            self.trusted_delegators
                .0
                .push((name.to_owned(), Arc::new(keys)));
            self
        }

        /// Whose call it is that a node makes.
        ///
        /// # Errors
        /// Unauthenticated: what says so is not good. Permission denied: they are not known here. Unavailable: the keys of the
        /// node cannot be had now.
        pub(in crate::auth) async fn resolve_delegation(
            &self,
            delegator: Identity,
            credentials: &RequestCredentials<'_>,
        ) -> Result<(Identity, DelegationClaim)> {
            let invalid = || {
                metrics::record_auth_failure("delegation");
                Error::from(ErrorKind::Unauthenticated)
            };
            let Some(token) = credentials
                .header(Delegation::HEADER)
                .map_err(|_| invalid())?
            else {
                return Ok((delegator, DelegationClaim::Missing));
            };
            for keys in self.trusted_delegators.keys_for(&delegator) {
                let claims = keys.verify_claims(token).await;
                let claims = claims
                    .map_err(|error| Error::new(ErrorKind::Unavailable).with_source(error))?;
                if let Some(Delegation { caller, lineage }) =
                    claims.and_then(Delegation::from_claims)
                {
                    let known = self.find_identity(&caller).ok_or_else(|| {
                        metrics::record_auth_failure("forbidden");
                        ErrorKind::PermissionDenied
                    })?;
                    tracing::debug!(
                        delegator = delegator.caller().name(),
                        caller,
                        "a node calls for somebody"
                    );
                    let lineage = lineage.and_then(|lineage| Json::from_serialize(&lineage).ok());
                    return Ok((delegator.intersect(known), DelegationClaim::Signed(lineage)));
                }
            }
            tracing::info!(
                delegator = delegator.caller().name(),
                "what a node has signed is not good"
            );
            Err(invalid())
        }
    }
}

#[cfg(feature = "jws")]
pub(super) use signed::TrustedDelegators;
