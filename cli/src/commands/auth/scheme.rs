//! Selection of a security scheme of the card, and discovery of its OAuth endpoints.

use attache::AuthorizationServer;
use attache::model::{OAuthFlows, SecurityScheme};

use super::{LoginFlow, login_error};
use crate::error::{CliError, CliResult};
use crate::reference::{self, ResolvedCard};
use crate::settings::Settings;
use crate::wire_log;

/// OAuth endpoints of a security scheme.
pub(super) struct SchemeEndpoints {
    pub(super) server: AuthorizationServer,
    /// The flow of the scheme; `None` if the endpoints come from a metadata document.
    flow: Option<LoginFlow>,
    pub(super) scopes: Vec<String>,
}

impl SchemeEndpoints {
    pub(super) async fn from_scheme(
        scheme: &SecurityScheme,
        settings: &Settings,
    ) -> CliResult<Self> {
        let tls = crate::tls::client_tls(settings)?;
        let prepare = |server: AuthorizationServer| {
            wire_log::add_debug_log_to_authorization_server(server.tls(&tls), settings)
        };
        let metadata_url = match scheme {
            SecurityScheme::OpenIdConnect(oidc) => Some(&oidc.open_id_connect_url),
            SecurityScheme::OAuth2(oauth) => {
                let named = oauth.flows.as_ref().and_then(flow);
                if let (Some((flow, scopes)), Some(server)) =
                    (named, AuthorizationServer::from_scheme(scheme))
                {
                    return Ok(Self {
                        server: prepare(server),
                        flow: Some(flow),
                        scopes,
                    });
                }
                oauth.oauth2_metadata_url.as_ref()
            }
            _ => None,
        };
        let url = metadata_url.ok_or_else(|| {
            CliError::usage(
                "the scheme has no supported flow: device code, authorization code or client credentials",
            )
            .hint("get a token in another way, and set A2ACLI_BEARER")
        })?;
        let found = prepare(AuthorizationServer::new(""))
            .load_metadata(url)
            .await
            .map_err(|error| login_error(&error))?;
        Ok(Self {
            server: found,
            flow: None,
            scopes: Vec::new(),
        })
    }

    /// The default flow: the one of the scheme, else client credentials if there is a secret, else by the endpoints.
    pub(super) fn flow(&self, has_secret: bool) -> LoginFlow {
        match self.flow {
            Some(flow) => flow,
            None if has_secret => LoginFlow::Client,
            None if self.server.device_url().is_none()
                && self.server.authorization_url().is_some() =>
            {
                LoginFlow::Code
            }
            None => LoginFlow::Device,
        }
    }
}

fn flow(flows: &OAuthFlows) -> Option<(LoginFlow, Vec<String>)> {
    let (flow, scopes) = match flows {
        OAuthFlows::DeviceCode(flow) => (LoginFlow::Device, &flow.scopes),
        OAuthFlows::ClientCredentials(flow) => (LoginFlow::Client, &flow.scopes),
        OAuthFlows::AuthorizationCode(flow) => (LoginFlow::Code, &flow.scopes),
        OAuthFlows::Implicit(_) | OAuthFlows::Password(_) => return None,
    };
    Some((flow, scopes.keys().cloned().collect()))
}

/// Selects the scheme to log in to: the named one, else the first that supports a login.
pub(super) fn select_scheme<'a>(
    found: &'a ResolvedCard,
    named: Option<&str>,
) -> CliResult<(&'a str, &'a SecurityScheme)> {
    let all = &found.card.security_schemes;
    let supports_login = |scheme: &SecurityScheme| {
        matches!(
            scheme,
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_)
        )
    };
    let chosen = match named {
        Some(name) => all.iter().find(|(one, _)| *one == name),
        None => all.iter().find(|(_, scheme)| supports_login(scheme)),
    };
    let names = || {
        all.keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match chosen {
        Some((name, scheme)) if supports_login(scheme) => Ok((name, scheme)),
        Some((name, _)) => Err(CliError::usage(format!(
            "the scheme {name} does not support a login"
        ))
        .hint(
            "only OAuth 2 and OpenID Connect do; for others set A2ACLI_BEARER or A2ACLI_API_KEY",
        )),
        None => Err(CliError::usage(if all.is_empty() {
            "the card declares no security schemes".to_owned()
        } else {
            format!(
                "the card declares no such scheme with a login, only {}",
                names()
            )
        })
        .hint("attache card get shows the schemes of the agent")),
    }
}

/// Refuses to send the client secret to another host than the card's, unless `--allow-host` names it.
pub(super) fn check_secret_target(
    found: &ResolvedCard,
    token_url: &str,
    settings: &Settings,
) -> CliResult {
    let to = reference::url_host(token_url);
    if settings.allows_host(&to) || found.trusted_host().is_none_or(|host| host == to) {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "the token endpoint is on {to}, another host than the card's: the client secret is not sent"
    ))
    .hint(crate::resume::rerun_with(&format!("--allow-host {to}"))))
}
