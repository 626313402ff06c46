//! Admin API `/api/v1`: routes with path parameters, roles and bounded bodies.
//!
//! `docs/internals/admin-api.md` has the JSON of every endpoint.

mod error;
mod request;
mod server;
mod session;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use hyper::body::Body as HttpBody;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use super::audit::AuditOutcome;
use super::operator::Operator;
use super::state::AdminState;
use crate::auth::OperatorRole;
use crate::server::reply::Reply;
pub(super) use error::{ApiError, ApiResult};
use request::ApiRequest;

/// Prefix of all paths.
pub(super) const PREFIX: &str = "/api/v1";
/// Maximum duration of a call until its reply begins.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

type ApiFuture = Pin<Box<dyn Future<Output = ApiResult> + Send>>;
type ApiHandler = Box<dyn Fn(Arc<AdminState>, ApiRequest) -> ApiFuture + Send + Sync>;

/// Operators who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteAccess {
    /// Everyone, before sign-in.
    Public,
    /// Every operator.
    Any,
    /// Viewers, operators and admins.
    View,
    /// Admins.
    Admin,
}

impl RouteAccess {
    fn allows(self, role: OperatorRole) -> bool {
        match self {
            Self::Public | Self::Any => true,
            Self::View => role.can_view(),
            Self::Admin => role == OperatorRole::Admin,
        }
    }

    /// Returns the required role, for the error.
    fn required(self) -> &'static str {
        match self {
            Self::Public | Self::Any | Self::View => "viewer",
            Self::Admin => "admin",
        }
    }
}

/// Endpoint of the API.
struct ApiRoute {
    method: Method,
    /// Path below [`PREFIX`], with placeholders such as `{id}`.
    path: &'static str,
    access: RouteAccess,
    /// Name in the audit log. `None`: the call changes nothing.
    action: Option<&'static str>,
    handler: ApiHandler,
}

/// Endpoints of the API.
pub(super) struct ApiRoutes(Vec<ApiRoute>);

impl ApiRoutes {
    pub(super) fn new() -> Self {
        let mut routes = Self(Vec::new());
        session::add_routes(&mut routes);
        server::add_routes(&mut routes);
        routes
    }

    /// Adds an endpoint that changes nothing.
    fn get<F>(
        &mut self,
        path: &'static str,
        access: RouteAccess,
        handler: impl Fn(Arc<AdminState>, ApiRequest) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ApiResult> + Send + 'static,
    {
        self.add(Method::GET, path, access, None, handler);
    }

    /// Adds an endpoint that is recorded in the audit log as `action`.
    fn post<F>(
        &mut self,
        path: &'static str,
        access: RouteAccess,
        action: &'static str,
        handler: impl Fn(Arc<AdminState>, ApiRequest) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ApiResult> + Send + 'static,
    {
        self.add(Method::POST, path, access, Some(action), handler);
    }

    fn add<F>(
        &mut self,
        method: Method,
        path: &'static str,
        access: RouteAccess,
        action: Option<&'static str>,
        handler: impl Fn(Arc<AdminState>, ApiRequest) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ApiResult> + Send + 'static,
    {
        self.0.push(ApiRoute {
            method,
            path,
            access,
            action,
            handler: Box::new(move |state, request| Box::pin(handler(state, request))),
        });
    }

    /// Handles a request below [`PREFIX`]. `operator` is `None` before sign-in.
    pub(super) async fn handle<B>(
        &self,
        state: &Arc<AdminState>,
        request: Request<B>,
        caller: ApiCaller,
    ) -> Reply
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.call(state, request, caller).await {
            Ok(reply) => reply,
            Err(error) => error.into_reply(),
        }
    }

    async fn call<B>(
        &self,
        state: &Arc<AdminState>,
        request: Request<B>,
        caller: ApiCaller,
    ) -> ApiResult
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path();
        let path = path.strip_prefix(PREFIX).unwrap_or_default();
        let (route, parameters) = self.find(request.method(), path, &caller)?;
        let target = parameters
            .iter()
            .map(|(_, value)| value.as_str())
            .collect::<Vec<_>>()
            .join("/");
        let operator = caller.operator.clone();
        let called = async {
            route.check(state, operator.as_ref())?;
            let (parts, body) = request.into_parts();
            let request = ApiRequest::read(parts, body, caller).await?;
            (route.handler)(state.clone(), request).await
        };
        let result = timeout(CALL_TIMEOUT, called)
            .await
            .unwrap_or_else(|_| Err(ApiError::timed_out()));
        if let Some(action) = route.action {
            let (outcome, detail) = match &result {
                Ok(_) => (AuditOutcome::Ok, ""),
                Err(error) if error.is_refusal() => (AuditOutcome::Refused, error.code()),
                Err(error) => (AuditOutcome::Failed, error.code()),
            };
            state.audit(operator.as_ref(), action, &target, outcome, detail);
        }
        result
    }

    /// Finds the route of a path, and the values of its placeholders.
    fn find(
        &self,
        method: &Method,
        path: &str,
        caller: &ApiCaller,
    ) -> ApiResult<(&ApiRoute, Vec<(&'static str, String)>)> {
        let mut allowed = Vec::new();
        for route in &self.0 {
            let Some(parameters) = match_path(route.path, path) else {
                continue;
            };
            if route.method == method {
                return Ok((route, parameters));
            }
            allowed.push(&route.method);
        }
        // Paths are no secret, and a client without a credential should learn that first.
        if caller.operator.is_none() {
            return Err(ApiError::unauthenticated());
        }
        if allowed.is_empty() {
            let message = format!("there is no endpoint {PREFIX}{path}");
            return Err(ApiError::not_found(message));
        }
        Err(ApiError::method(&allowed))
    }
}

impl ApiRoute {
    /// Checks the role of the operator.
    fn check(&self, state: &AdminState, operator: Option<&Operator>) -> ApiResult<()> {
        if self.access == RouteAccess::Public {
            return Ok(());
        }
        let operator = operator.ok_or_else(ApiError::unauthenticated)?;
        if !self.access.allows(operator.role) {
            return Err(ApiError::role(self.access.required(), operator.role));
        }
        if state.console.is_read_only && self.action.is_some_and(changes_tasks) {
            return Err(ApiError::read_only());
        }
        Ok(())
    }
}

/// Whether an action changes more than the session of its operator.
fn changes_tasks(action: &str) -> bool {
    !action.starts_with("session.")
}

/// Client of a request.
#[derive(Clone)]
pub(super) struct ApiCaller {
    /// `None` before sign-in.
    pub(super) operator: Option<Operator>,
    /// Address of a TCP client.
    pub(super) address: Option<std::net::IpAddr>,
}

/// Matches a path with a pattern, and returns the decoded values of its placeholders.
fn match_path(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut values = Vec::new();
    let mut segments = path.split('/');
    for expected in pattern.split('/') {
        let segment = segments.next()?;
        match expected
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'))
        {
            Some(_) if segment.is_empty() => return None,
            Some(name) => {
                let value = percent_decode_str(segment).decode_utf8().ok()?;
                values.push((name, value.into_owned()));
            }
            None if expected == segment => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_their_patterns() {
        let pattern = "/tasks/{id}/events/{seq}";
        let values = match_path(pattern, "/tasks/a%2Fb/events/14").unwrap();
        assert_eq!(values, [("id", "a/b".to_owned()), ("seq", "14".to_owned())]);
        for other in [
            "/tasks//events/14",
            "/tasks/a/events",
            "/tasks/a/events/14/",
            "/tasks/a/events/14/wire",
            "/task/a/events/14",
            "/tasks/%ff/events/14",
        ] {
            assert_eq!(match_path(pattern, other), None, "{other}");
        }
    }
}
