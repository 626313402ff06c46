//! Which of the credentials an agent is shown.

use ::http::Uri;

use super::{CredentialProvider, CredentialSet, is_secure, origin, unauthenticated};
use crate::model::{AgentCard, Error, Result, SecurityRequirement, SecurityScheme};

/// Credentials for one scheme of a card; for none, where the card wants nothing.
pub(super) struct SelectedCredential<'a> {
    pub(super) credentials: &'a dyn CredentialProvider,
    pub(super) scheme: Option<&'a SecurityScheme>,
    pub(super) scopes: &'a [String],
}

impl CredentialSet {
    /// What goes along to this url.
    ///
    /// # Errors
    /// Unauthenticated: the card wants more, or they may not go there. Nothing is said against going without any.
    pub(super) fn select<'a>(
        &'a self,
        url: &Uri,
        card: Option<&'a AgentCard>,
    ) -> Result<Vec<SelectedCredential<'a>>> {
        let location = origin(url);
        let available: Vec<&dyn CredentialProvider> = self
            .entries
            .iter()
            .filter(|entry| entry.origin == location)
            .map(|entry| &*entry.credentials)
            .collect();
        let required = card.map_or(&[][..], |card| &card.security_requirements);
        if available.is_empty() {
            return self.select_none(&location, required);
        }
        if !self.plain_http && !is_secure(url) {
            return Err(Error::invalid(
                "url",
                "must begin with https://: credentials are not sent in the clear",
            ));
        }
        let Some(card) = card.filter(|_| !required.is_empty()) else {
            let unasked = |credentials| SelectedCredential {
                credentials,
                scheme: None,
                scopes: &[],
            };
            return Ok(available.into_iter().map(unasked).collect());
        };
        let mut satisfied = required
            .iter()
            .filter_map(|one| satisfy(one, card, &available));
        // "Nothing" may be among what suffices; who has credentials wants to be known.
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

    /// There is nothing for this place. That is an error where something is wanted and we have it for elsewhere.
    fn select_none(
        &self,
        location: &str,
        required: &[SecurityRequirement],
    ) -> Result<Vec<SelectedCredential<'_>>> {
        let is_required =
            !required.is_empty() && required.iter().all(|one| !one.schemes.is_empty());
        match self.entries.first() {
            Some(entry) if is_required => Err(unauthenticated(format_args!(
                "the credentials for {} are not sent to {location}, where the card leads; give them for that origin \
                 too if it is trusted",
                entry.origin
            ))),
            _ => Ok(Vec::new()),
        }
    }
}

/// For each scheme of a requirement the credentials that fit; `None` if one has none.
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

/// Everything that would do, in words.
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
