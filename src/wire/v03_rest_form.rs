//! Form of 0.3 REST replies to requests without a form of their own.

use serde::{Deserialize, Serialize};

use super::Dialect;
use crate::model::Request;

/// Form of 0.3 REST replies to requests whose body does not select one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum V03RestForm {
    /// ProtoJSON of the protobuf file, which the SDKs read.
    ProtoJson,
    /// Bare objects with `kind`, as in JSON-RPC.
    Kind,
}

impl V03RestForm {
    /// Returns the dialect of the reply to a decoded request. The body of a send selects its own.
    #[must_use]
    pub fn dialect(self, decoded: Dialect, request: &Request) -> Dialect {
        let is_send = matches!(
            request,
            Request::SendMessage(_) | Request::SendStreamingMessage(_)
        );
        match self {
            Self::Kind if decoded == Dialect::V03Rest && !is_send => Dialect::V03,
            Self::Kind | Self::ProtoJson => decoded,
        }
    }
}
