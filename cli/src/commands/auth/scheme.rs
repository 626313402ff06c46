//! Which scheme of a card to log in to, and where its tokens come from.

use attache::AuthorizationServer;
use attache::model::{OAuthFlows, SecurityScheme};

use super::{LoginFlow, refused};
use crate::error::{CliError, CliResult};
use crate::reference::{self, ResolvedCard};
use crate::settings::Settings;
use crate::wire_log;

/// Where tokens come from, as a scheme says.
pub(super) struct SchemeEndpoints {
    pub(super) endpoints: AuthorizationServer,
    /// The only flow it names.
    flow: Option<LoginFlow>,
    pub(super) scopes: Vec<String>,
}

impl SchemeEndpoints {
    pub(super) async fn from_scheme(
        scheme: &SecurityScheme,
        settings: &Settings,
    ) -> CliResult<Self> {
        let tls = crate::tls::client_tls(settings)?;
        let ready = |endpoints: AuthorizationServer| {
            wire_log::watch_endpoints(endpoints.tls(&tls), settings)
        };
        let described = match scheme {
            SecurityScheme::OpenIdConnect(oidc) => Some(&oidc.open_id_connect_url),
            SecurityScheme::OAuth2(oauth) => {
                let named = oauth.flows.as_ref().and_then(flow);
                if let (Some((flow, scopes)), Some(endpoints)) =
                    (named, AuthorizationServer::from_scheme(scheme))
                {
                    return Ok(Self {
                        endpoints: ready(endpoints),
                        flow: Some(flow),
                        scopes,
                    });
                }
                oauth.oauth2_metadata_url.as_ref()
            }
            _ => None,
        };
        let url = described.ok_or_else(|| {
            CliError::usage(
                "the scheme names no flow that we know: not a device code, a browser or a client's secret",
            )
            .hint("get a token by other means, and set A2ACLI_BEARER")
        })?;
        let found = ready(AuthorizationServer::new(""))
            .load_metadata(url)
            .await
            .map_err(|error| refused(&error))?;
        Ok(Self {
            endpoints: found,
            flow: None,
            scopes: Vec::new(),
        })
    }

    /// The flow to take where none was asked for: by what the scheme names, by what the user has, by what is offered.
    pub(super) fn flow(&self, has_secret: bool) -> LoginFlow {
        match self.flow {
            Some(flow) => flow,
            None if has_secret => LoginFlow::Client,
            None if self.endpoints.device_url().is_none()
                && self.endpoints.authorization_url().is_some() =>
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

/// The scheme to log in to: the one that is named, or the first that is logged in to at all.
pub(super) fn select_scheme<'a>(
    found: &'a ResolvedCard,
    named: Option<&str>,
) -> CliResult<(&'a str, &'a SecurityScheme)> {
    let all = &found.card.security_schemes;
    let takes = |scheme: &SecurityScheme| {
        matches!(
            scheme,
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_)
        )
    };
    let chosen = match named {
        Some(name) => all.iter().find(|(one, _)| *one == name),
        None => all.iter().find(|(_, scheme)| takes(scheme)),
    };
    let names = || {
        all.keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match chosen {
        Some((name, scheme)) if takes(scheme) => Ok((name, scheme)),
        Some((name, _)) => Err(CliError::usage(format!("{name} is no scheme to log in to"))
            .hint("only OAuth 2 and OpenID Connect are; for others set A2ACLI_BEARER or A2ACLI_API_KEY")),
        None => Err(CliError::usage(match all.is_empty() {
            true => "the card declares no security schemes".to_owned(),
            false => format!("the card declares no such scheme to log in to, only {}", names()),
        })
        .hint("attache card get says what the agent takes")),
    }
}

/// A card may name any place; a secret goes to the host of the card, and to hosts that the user allows.
pub(super) fn check_secret_target(
    found: &ResolvedCard,
    token_url: &str,
    settings: &Settings,
) -> CliResult {
    let to = reference::url_host(token_url);
    match settings.allows_host(&to) || found.trusted_host().is_none_or(|host| host == to) {
        true => Ok(()),
        false => Err(CliError::usage(format!(
            "the card wants the secret of the client to go to {to}, which is another host than its own"
        ))
        .hint(crate::resume::rerun_with(&format!("--allow-host {to}")))),
    }
}
