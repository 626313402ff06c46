//! Endpoints of sessions: one-time links, sign-in, sign-out.

use std::sync::Arc;

use http::header::{COOKIE, HeaderValue, SET_COOKIE};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::error::{ApiError, ApiResult, json_reply, json_reply_with};
use super::request::ApiRequest;
use super::{ApiRoutes, RouteAccess};
use crate::auth::OperatorRole;
use crate::model::Timestamp;
use crate::server::admin::operator::Operator;
use crate::server::admin::session::{LINK_LIFETIME, LinkError, MAX_SESSION};
use crate::server::admin::state::{AdminState, ContentVisibility};
use crate::server::reply;

/// Features of this version of the API, for consoles of other versions.
const FEATURES: &[&str] = &[];

/// Reply of `POST /session/link`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct LinkReply {
    url: String,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    expires_at: Timestamp,
}

/// Body of `POST /session`: one of both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct SignIn {
    link: Option<String>,
    key: Option<String>,
}

/// Session of an operator.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct SessionReply {
    /// In the reply to `POST /session` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    csrf_token: Option<String>,
    operator: String,
    role: OperatorRole,
    agents: Option<Vec<String>>,
    tenants: Option<Vec<String>>,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    expires_at: Timestamp,
    server: SessionServer,
}

/// Server of a session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SessionServer {
    name: String,
    version: &'static str,
    content: ContentVisibility,
    read_only: bool,
    features: &'static [&'static str],
}

pub(super) fn add_routes(routes: &mut ApiRoutes) {
    routes.post(
        "/session/link",
        RouteAccess::Admin,
        "session.link",
        create_link,
    );
    routes.post("/session", RouteAccess::Public, "session.open", sign_in);
    routes.get("/session", RouteAccess::Any, current);
    routes.add(
        Method::DELETE,
        "/session",
        RouteAccess::Any,
        Some("session.close"),
        sign_out,
    );
}

async fn create_link(state: Arc<AdminState>, _: ApiRequest) -> ApiResult {
    let url = state.create_link().map_err(|error| match error {
        LinkError::TooMany => {
            ApiError::too_many("there are 16 open links; use one, or wait until they expire")
        }
        LinkError::Random(error) => ApiError::internal(error),
    })?;
    let Some(url) = url else {
        let message = "the admin API has no address; serve with --admin-listen 127.0.0.1:41242";
        return Err(ApiError::not_possible(message));
    };
    let link = LinkReply {
        url,
        expires_at: state.after(LINK_LIFETIME),
    };
    json_reply_with(StatusCode::CREATED, &link)
}

async fn sign_in(state: Arc<AdminState>, request: ApiRequest) -> ApiResult {
    let operator = match request.json()? {
        SignIn {
            link: Some(link),
            key: None,
        } => {
            if !state.sessions.use_link(&link) {
                tracing::warn!("one-time link refused: used, expired or unknown");
                return Err(refuse(&state, &request, ApiError::invalid_link()));
            }
            Operator::link()
        }
        SignIn {
            link: None,
            key: Some(key),
        } => match state.identify(&key) {
            Some(identity) => Operator::with_key(&identity),
            None => return Err(refuse(&state, &request, ApiError::invalid_key())),
        },
        _ => return Err(ApiError::body("give either `link` or `key`")),
    };
    let tokens = state
        .sessions
        .open(operator.clone())
        .map_err(ApiError::internal)?;
    let mut session = session_reply(&state, &operator);
    session.csrf_token = Some(tokens.csrf_token);
    let mut reply = json_reply_with(StatusCode::CREATED, &session)?;
    let cookie = state.session_cookie(&tokens.cookie);
    let cookie = HeaderValue::try_from(cookie).map_err(ApiError::internal)?;
    reply.headers_mut().insert(SET_COOKIE, cookie);
    Ok(reply)
}

/// Counts a failed sign-in. Too many of them lock the address out.
fn refuse(state: &AdminState, request: &ApiRequest, error: ApiError) -> ApiError {
    match request
        .client()
        .map(|address| state.record_failure(address))
    {
        Some(Err(locked_out)) => ApiError::locked_out(&locked_out),
        Some(Ok(())) | None => error,
    }
}

async fn current(state: Arc<AdminState>, request: ApiRequest) -> ApiResult {
    json_reply(&session_reply(&state, request.operator()?))
}

async fn sign_out(state: Arc<AdminState>, request: ApiRequest) -> ApiResult {
    if request.flag("all")? {
        state.sessions.close_all(&request.operator()?.name);
    }
    let cookies = request.parts.headers.get_all(COOKIE).iter();
    if let Some(cookie) = state.read_cookie(cookies.filter_map(|value| value.to_str().ok())) {
        state.sessions.close(cookie);
    }
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

fn session_reply(state: &AdminState, operator: &Operator) -> SessionReply {
    SessionReply {
        csrf_token: None,
        operator: operator.name.to_string(),
        role: operator.role,
        agents: operator.agents.as_deref().map(<[_]>::to_vec),
        tenants: operator.tenants.as_deref().map(<[_]>::to_vec),
        expires_at: state.after(MAX_SESSION),
        server: SessionServer {
            name: state.console.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            content: state.content(),
            read_only: state.console.is_read_only,
            features: FEATURES,
        },
    }
}
