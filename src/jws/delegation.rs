//! Delegation tokens: a server names the caller on whose behalf it calls another server, and the lineage of the work.

use std::time::Duration;

use serde_json::{Value, json};

use super::Signer;
use crate::model::Result;

/// Audience of delegation tokens. Tokens for another audience are refused.
const AUDIENCE: &str = "urn:attache:delegation";
/// Longest lifetime of a token, in seconds.
const MAX_LIFETIME_SECONDS: i64 = 24 * 3600;
/// Tolerated clock skew, in seconds.
#[cfg(feature = "server")]
const LEEWAY_SECONDS: i64 = 60;

/// The caller on whose behalf a server calls another one, and the lineage of the work.
///
/// It is sent as a signed token in the header [`HEADER`](Self::HEADER). A receiver accepts it only from servers that it trusts:
/// [`Access::trust_delegation`](crate::auth::Access::trust_delegation).
#[derive(Debug, Clone, PartialEq)]
pub struct Delegation {
    /// Name of the caller, as authentication determined it.
    pub caller: String,
    /// The [`LINEAGE`](crate::model::LINEAGE) metadata of a message.
    pub lineage: Option<Value>,
}

impl Delegation {
    /// HTTP header of the token.
    pub const HEADER: &'static str = "attache-delegation";

    /// Signs a token. `lifetime` should cover the call; it is limited to one day.
    ///
    /// # Errors
    /// Internal: signing failed.
    pub fn sign(&self, signer: &Signer, lifetime: Duration) -> Result<String> {
        let now = jiff::Timestamp::now().as_second();
        let lifetime = i64::try_from(lifetime.as_secs())
            .unwrap_or(MAX_LIFETIME_SECONDS)
            .min(MAX_LIFETIME_SECONDS);
        let mut claims =
            json!({"aud": AUDIENCE, "sub": self.caller, "iat": now, "exp": now + lifetime});
        if let Some(lineage) = &self.lineage {
            claims["lineage"] = lineage.clone();
        }
        signer.sign_token(&claims)
    }

    /// Reads verified claims; `None` if they are not a delegation, or are not valid now.
    #[cfg(feature = "server")]
    pub(crate) fn from_claims(mut claims: Value) -> Option<Self> {
        let now = jiff::Timestamp::now().as_second();
        let issued = claims["iat"].as_i64()?;
        let expires = claims["exp"].as_i64()?;
        let is_current =
            issued <= now + LEEWAY_SECONDS && now < expires.saturating_add(LEEWAY_SECONDS);
        if claims["aud"] != AUDIENCE
            || !is_current
            || expires.saturating_sub(issued) > MAX_LIFETIME_SECONDS
        {
            return None;
        }
        let caller = claims["sub"]
            .as_str()
            .filter(|name| !name.is_empty())?
            .to_owned();
        Some(Self {
            caller,
            lineage: claims.get_mut("lineage").map(Value::take),
        })
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn s60_only_current_tokens_for_the_delegation_audience_are_accepted() {
        let now = jiff::Timestamp::now().as_second();
        let claims = |aud: &str, iat: i64, exp: i64, sub: &str| json!({"aud": aud, "iat": iat, "exp": exp, "sub": sub, "lineage": {"depth": 2}});
        let delegation =
            Delegation::from_claims(claims(AUDIENCE, now, now + 60, "key:ann")).unwrap();
        assert_eq!(
            delegation,
            Delegation {
                caller: "key:ann".to_owned(),
                lineage: Some(json!({"depth": 2}))
            }
        );
        for invalid in [
            claims(
                "https://receiver.example.com/hook",
                now,
                now + 60,
                "key:ann",
            ),
            claims(AUDIENCE, now - 600, now - 2 * LEEWAY_SECONDS, "key:ann"),
            claims(AUDIENCE, now + 2 * LEEWAY_SECONDS, now + 600, "key:ann"),
            claims(AUDIENCE, now, now + 2 * MAX_LIFETIME_SECONDS, "key:ann"),
            claims(AUDIENCE, now, now + 60, ""),
            json!({"aud": AUDIENCE, "sub": "key:ann"}),
        ] {
            assert_eq!(Delegation::from_claims(invalid.clone()), None, "{invalid}");
        }
    }
}
