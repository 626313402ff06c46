//! Servers of ours that call for somebody else: whose word is believed, and how far.

use crate::metrics;
use crate::model::{Error, ErrorKind, Json, LINEAGE, Request, Result};

/// What is known of a call beside who makes it.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    not(feature = "jws"),
    expect(dead_code, reason = "nobody is believed where nothing can be signed")
)]
pub(crate) enum Word {
    /// Somebody calls for themselves, and says of other things what they like.
    Own,
    /// A node calls, and does not say for whom.
    Missing,
    /// A node has signed for whom it calls, and whose work it is part of.
    Signed(Option<Json>),
}

impl Word {
    /// Holds a message to it. What a node has signed of its line counts, in place of what the message says; a node has no
    /// messages of its own, so that nobody is served with its rights.
    ///
    /// # Errors
    /// Permission denied: a node does not say for whom it speaks.
    pub(crate) fn hold(&self, request: &mut Request) -> Result<()> {
        let (Request::SendMessage(request) | Request::SendStreamingMessage(request)) = request
        else {
            return Ok(());
        };
        match self {
            Self::Own => Ok(()),
            Self::Missing => {
                metrics::auth_failed("node");
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

    use super::Word;
    use crate::auth::{Access, Credentials, Identity};
    use crate::jws::{Delegation, PublishedKeys};
    use crate::metrics;
    use crate::model::{Error, ErrorKind, Json, Result};

    /// Whose calls are for others, and the keys that they sign with.
    #[derive(Clone, Default)]
    pub(in crate::auth) struct Nodes(Vec<(String, Arc<PublishedKeys>)>);

    impl Nodes {
        /// The keys of this caller; none if it is no node.
        pub(in crate::auth) fn of(&self, caller: &Identity) -> Vec<Arc<PublishedKeys>> {
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
        pub fn node(mut self, name: &str, keys: PublishedKeys) -> Self {
            self.nodes.0.push((name.to_owned(), Arc::new(keys)));
            self
        }

        /// Whose call it is that a node makes.
        ///
        /// # Errors
        /// Unauthenticated: what says so is not good. Permission denied: they are not known here. Unavailable: the keys of the
        /// node cannot be had now.
        pub(in crate::auth) async fn behind(
            &self,
            node: Identity,
            credentials: &Credentials<'_>,
        ) -> Result<(Identity, Word)> {
            let not_good = || {
                metrics::auth_failed("node");
                Error::from(ErrorKind::Unauthenticated)
            };
            let Some(token) = credentials
                .header(Delegation::HEADER)
                .map_err(|_| not_good())?
            else {
                return Ok((node, Word::Missing));
            };
            for keys in self.nodes.of(&node) {
                let claims = keys.claims(token).await;
                let claims = claims
                    .map_err(|error| Error::new(ErrorKind::Unavailable).with_source(error))?;
                if let Some(Delegation { caller, lineage }) = claims.and_then(Delegation::read) {
                    let known = self.known(&caller).ok_or_else(|| {
                        metrics::auth_failed("forbidden");
                        ErrorKind::PermissionDenied
                    })?;
                    tracing::debug!(
                        node = node.caller().name(),
                        caller,
                        "a node calls for somebody"
                    );
                    let lineage = lineage.and_then(|lineage| Json::of(&lineage).ok());
                    return Ok((node.together(known), Word::Signed(lineage)));
                }
            }
            tracing::info!(
                node = node.caller().name(),
                "what a node has signed is not good"
            );
            Err(not_good())
        }
    }
}

#[cfg(feature = "jws")]
pub(super) use signed::Nodes;
