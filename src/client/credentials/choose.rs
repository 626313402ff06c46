//! Which of the credentials an agent is shown.

use ::http::Uri;

use super::{Credentials, Wallet, is_private, origin, unauthenticated};
use crate::model::{AgentCard, Error, Result, SecurityRequirement, SecurityScheme};

/// Credentials for one scheme of a card; for none, where the card wants nothing.
pub(super) struct Choice<'a> {
    pub(super) credentials: &'a dyn Credentials,
    pub(super) scheme: Option<&'a SecurityScheme>,
    pub(super) scopes: &'a [String],
}

impl Wallet {
    /// What goes along to this url.
    ///
    /// # Errors
    /// Unauthenticated: the card wants more, or they may not go there. Nothing is said against going without any.
    pub(super) fn choose<'a>(
        &'a self,
        url: &Uri,
        card: Option<&'a AgentCard>,
    ) -> Result<Vec<Choice<'a>>> {
        let place = origin(url);
        let ours: Vec<&dyn Credentials> = self
            .kept
            .iter()
            .filter(|kept| kept.origin == place)
            .map(|kept| &*kept.credentials)
            .collect();
        let wanted = card.map_or(&[][..], |card| &card.security_requirements);
        if ours.is_empty() {
            return self.without(&place, wanted);
        }
        if !self.plain_http && !is_private(url) {
            return Err(Error::invalid(
                "url",
                "must begin with https://: credentials are not sent in the clear",
            ));
        }
        let Some(card) = card.filter(|_| !wanted.is_empty()) else {
            let unasked = |credentials| Choice {
                credentials,
                scheme: None,
                scopes: &[],
            };
            return Ok(ours.into_iter().map(unasked).collect());
        };
        let mut satisfied = wanted.iter().filter_map(|one| satisfy(one, card, &ours));
        // "Nothing" may be among what suffices; who has credentials wants to be known.
        let found = satisfied
            .clone()
            .find(|choice| !choice.is_empty())
            .or_else(|| satisfied.next());
        found.ok_or_else(|| {
            let given: Vec<_> = ours.iter().map(|one| one.name()).collect();
            unauthenticated(format_args!(
                "the agent wants {}; given: {}",
                all(wanted, card),
                given.join(", ")
            ))
        })
    }

    /// There is nothing for this place. That is an error where something is wanted and we have it for elsewhere.
    fn without(&self, place: &str, wanted: &[SecurityRequirement]) -> Result<Vec<Choice<'_>>> {
        let asked = !wanted.is_empty() && wanted.iter().all(|one| !one.schemes.is_empty());
        match self.kept.first() {
            Some(kept) if asked => Err(unauthenticated(format_args!(
                "the credentials for {} are not sent to {place}, where the card leads; give them for that origin \
                 too if it is trusted",
                kept.origin
            ))),
            _ => Ok(Vec::new()),
        }
    }
}

/// For each scheme of a requirement the credentials that fit; `None` if one has none.
fn satisfy<'a>(
    requirement: &'a SecurityRequirement,
    card: &'a AgentCard,
    ours: &[&'a dyn Credentials],
) -> Option<Vec<Choice<'a>>> {
    let mut choices = Vec::new();
    for (name, scopes) in &requirement.schemes {
        let scheme = card.security_schemes.get(name)?;
        let credentials = *ours.iter().find(|one| one.fit(scheme))?;
        choices.push(Choice {
            credentials,
            scheme: Some(scheme),
            scopes,
        });
    }
    Some(choices)
}

/// Everything that would do, in words.
fn all(wanted: &[SecurityRequirement], card: &AgentCard) -> String {
    let one = |requirement: &SecurityRequirement| {
        let schemes = requirement.schemes.keys().map(|name| {
            let kind = card
                .security_schemes
                .get(name)
                .map_or("which the card does not define", kind);
            format!("{name:?} ({kind})")
        });
        schemes.collect::<Vec<_>>().join(" and ")
    };
    wanted.iter().map(one).collect::<Vec<_>>().join(", or ")
}

fn kind(scheme: &SecurityScheme) -> &'static str {
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
