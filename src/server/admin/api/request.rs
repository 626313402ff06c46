//! Request to the admin API: path and query parameters, body, operator.

use std::collections::HashSet;
use std::net::IpAddr;

use bytes::Bytes;
use form_urlencoded::parse;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as HttpBody;
use serde::de::DeserializeOwned;

use super::ApiCaller;
use super::error::{ApiError, ApiResult};
use crate::server::admin::operator::Operator;

/// Maximum size of a body.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;
/// Default of `limit`.
const DEFAULT_PAGE_SIZE: usize = 50;
/// Maximum of `limit`.
pub(super) const MAX_PAGE_SIZE: usize = 500;

/// Request of an operator.
pub(in crate::server::admin) struct ApiRequest {
    caller: ApiCaller,
    query: Vec<(String, String)>,
    pub(super) parts: Parts,
    body: Bytes,
}

impl ApiRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// The body is too large, or is not JSON.
    pub(super) async fn read<B>(parts: Parts, body: B, caller: ApiCaller) -> ApiResult<Self>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = Limited::new(body, MAX_BODY_BYTES)
            .collect()
            .await
            .map_err(|_| ApiError::too_large(MAX_BODY_BYTES))?
            .to_bytes();
        if !body.is_empty() && !is_json(&parts) {
            return Err(ApiError::media_type());
        }
        let query = parts.uri.query().unwrap_or_default();
        let query = parse(query.as_bytes()).into_owned().collect();
        Ok(Self {
            caller,
            query,
            parts,
            body,
        })
    }

    /// Returns the operator.
    ///
    /// # Errors
    /// Unauthenticated: the route is public, and there is none.
    pub(super) fn operator(&self) -> ApiResult<&Operator> {
        let operator = self.caller.operator.as_ref();
        operator.ok_or_else(ApiError::unauthenticated)
    }

    /// Returns the address of a TCP client.
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.caller.address
    }

    /// Returns the first value of a parameter. An empty one counts as absent.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters(name).first().copied()
    }

    /// Returns all values of a parameter.
    pub(super) fn parameters(&self, name: &str) -> Vec<&str> {
        let named = self.query.iter().filter(|(own, _)| own == name);
        named
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
            .collect()
    }

    /// Checks that the query has no other parameters.
    ///
    /// # Errors
    /// A parameter is unknown.
    pub(super) fn allow_parameters(&self, known: &[&str]) -> ApiResult<()> {
        let mut names: HashSet<&str> = self.query.iter().map(|(name, _)| name.as_str()).collect();
        known.iter().for_each(|name| {
            names.remove(name);
        });
        match names.iter().min() {
            None => Ok(()),
            Some(name) => Err(ApiError::parameter(
                name,
                format!("unknown parameter; known are: {}", known.join(", ")),
            )),
        }
    }

    /// Returns a numeric parameter.
    ///
    /// # Errors
    /// It is not a number.
    pub(super) fn number(&self, name: &str) -> ApiResult<Option<u64>> {
        let parsed = self.parameter(name).map(str::parse).transpose();
        parsed.map_err(|_| ApiError::parameter(name, "must be a number"))
    }

    /// Returns a parameter that is `true` or `false`.
    ///
    /// # Errors
    /// It is neither.
    pub(super) fn flag(&self, name: &str) -> ApiResult<bool> {
        match self.parameter(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::parameter(name, "must be true or false")),
        }
    }

    /// Returns the size of a page.
    ///
    /// # Errors
    /// It is not from 1 to [`MAX_PAGE_SIZE`].
    pub(super) fn limit(&self) -> ApiResult<usize> {
        let Some(limit) = self.number("limit")? else {
            return Ok(DEFAULT_PAGE_SIZE);
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if (1..=MAX_PAGE_SIZE).contains(&limit) {
            return Ok(limit);
        }
        let message = format!("must be from 1 to {MAX_PAGE_SIZE}");
        Err(ApiError::parameter("limit", message))
    }

    /// Reads the body. An empty one counts as `{}`.
    ///
    /// # Errors
    /// It does not have this form.
    pub(super) fn json<T: DeserializeOwned>(&self) -> ApiResult<T> {
        let body: &[u8] = if self.body.is_empty() {
            b"{}"
        } else {
            &self.body
        };
        serde_json::from_slice(body).map_err(|error| ApiError::body(error.to_string()))
    }
}

fn is_json(parts: &Parts) -> bool {
    let media_type = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}
