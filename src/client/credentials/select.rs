//! Selection of credentials for a request, by origin and by the security requirements of the card.

use ::http::Uri;

use super::{CredentialProvider, CredentialSet, is_secure, origin, unauthenticated};
use crate::model::{AgentCard, Error, Result, SecurityRequirement, SecurityScheme};

/// Credentials for one security scheme of a card; without a scheme if the card requires none.
pub(super) struct SelectedCredential<'a> {
    pub(super) credentials: &'a dyn CredentialProvider,
    pub(super) scheme: Option<&'a SecurityScheme>,
    pub(super) scopes: &'a [String],
}

impl CredentialSet {
    /// Returns the credentials to attach to a request for `url`.
    ///
    /// # Errors
    /// Unauthenticated if the card requires other credentials, or the credentials are bound to another origin. Invalid
    /// parameters for a plain HTTP URL. A request without any credentials is allowed.
    pub(super) fn select<'a>(
        &'a self,
        url: &Uri,
        card: Option<&'a AgentCard>,
    ) -> Result<Vec<SelectedCredential<'a>>> {
        let target = origin(url);
        let available: Vec<&dyn CredentialProvider> = self
            .entries
            .iter()
            .filter(|entry| entry.origin == target)
            .map(|entry| &*entry.credentials)
            .collect();
        let required = card.map_or(&[][..], |card| &card.security_requirements);
        if available.is_empty() {
            return self.select_none(&target, required);
        }
        if !self.plain_http && !is_secure(url) {
            return Err(Error::invalid(
                "url",
                "must begin with https://: credentials are not sent over plain HTTP",
            ));
        }
        let Some(card) = card.filter(|_| !required.is_empty()) else {
            let without_scheme = |credentials| SelectedCredential {
                credentials,
                scheme: None,
                scopes: &[],
            };
            return Ok(available.into_iter().map(without_scheme).collect());
        };
        let mut satisfied = required
            .iter()
            .filter_map(|one| satisfy(one, card, &available));
        // A requirement may be empty. Prefer one that uses the credentials: the caller wants to be authenticated.
        let found = satisfied
            .clone()
            .find(|selected| !selected.is_empty())
            .or_else(|| satisfied.next());
        found.ok_or_else(|| {
            let given: Vec<_> = available.iter().map(|one| one.name()).collect();
            unauthenticated(format_args!(
                "the agent wants {}; given: {}",
                describe_requirements(required, card),
                given.join(", ")
            ))
        })
    }

    /// Returns no credentials: none are bound to this origin.
    ///
    /// # Errors
    /// Unauthenticated if the card requires some, and the caller has some for another origin.
    fn select_none(
        &self,
        target: &str,
        required: &[SecurityRequirement],
    ) -> Result<Vec<SelectedCredential<'_>>> {
        let is_required =
            !required.is_empty() && required.iter().all(|one| !one.schemes.is_empty());
        match self.entries.first() {
            Some(entry) if is_required => Err(unauthenticated(format_args!(
                "the credentials for {} are not sent to {target}, where the card leads; if you trust that origin, \
                 add them with `with_credentials_for`",
                entry.origin
            ))),
            _ => Ok(Vec::new()),
        }
    }
}

/// Returns credentials for each scheme of a requirement; `None` if one scheme has none.
fn satisfy<'a>(
    requirement: &'a SecurityRequirement,
    card: &'a AgentCard,
    available: &[&'a dyn CredentialProvider],
) -> Option<Vec<SelectedCredential<'a>>> {
    let mut selected = Vec::new();
    for (name, scopes) in &requirement.schemes {
        let scheme = card.security_schemes.get(name)?;
        let credentials = *available.iter().find(|one| one.supports(scheme))?;
        selected.push(SelectedCredential {
            credentials,
            scheme: Some(scheme),
            scopes,
        });
    }
    Some(selected)
}

/// Describes all alternatives, for an error message.
fn describe_requirements(required: &[SecurityRequirement], card: &AgentCard) -> String {
    let one = |requirement: &SecurityRequirement| {
        let schemes = requirement.schemes.keys().map(|name| {
            let describe_scheme = card
                .security_schemes
                .get(name)
                .map_or("which the card does not define", describe_scheme);
            format!("{name:?} ({describe_scheme})")
        });
        schemes.collect::<Vec<_>>().join(" and ")
    };
    required.iter().map(one).collect::<Vec<_>>().join(", or ")
}

fn describe_scheme(scheme: &SecurityScheme) -> &'static str {
    match scheme {
        SecurityScheme::ApiKey(_) => "an API key",
        SecurityScheme::HttpAuth(http) if http.scheme.eq_ignore_ascii_case("basic") => {
            "a name and password"
        }
        SecurityScheme::HttpAuth(_) => "an HTTP token",
        SecurityScheme::OAuth2(_) => "OAuth 2",
        SecurityScheme::OpenIdConnect(_) => "OpenID Connect",
        SecurityScheme::MutualTls(_) => "a client certificate",
    }
}
