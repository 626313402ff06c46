//! Delegation: calls that a trusted server makes on behalf of another caller.

use crate::model::{Error, ErrorKind, Json, LINEAGE, Request, Result};
use crate::telemetry::metrics;

/// Delegation claim of a call.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    not(feature = "jws"),
    expect(dead_code, reason = "delegation tokens need signatures")
)]
pub(crate) enum DelegationClaim {
    /// Direct call: the caller is the principal. Its lineage metadata is not trusted.
    Direct,
    /// Call of a trusted server without a delegation token.
    Missing,
    /// Call of a trusted server with a verified token, and the signed lineage.
    Signed(Option<Json>),
}

impl DelegationClaim {
    /// Applies the claim to a message: the signed lineage replaces that of the message.
    ///
    /// A trusted server sends no messages of its own, so its permissions are never used directly.
    ///
    /// # Errors
    /// Permission denied: a trusted server sends a message without a delegation token.
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
                    "Permission denied: a trusted server must send a signed attache-delegation header",
                ))
            }
            Self::Signed(Some(lineage)) => {
                let metadata = request.message.metadata.get_or_insert_default();
                metadata.insert(LINEAGE, lineage.clone());
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
