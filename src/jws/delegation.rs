//! What one of our servers tells another of a call that it makes for somebody: for whom, and whose work it is part of.

use std::time::Duration;

use serde_json::{Value, json};

use super::Signer;
use crate::model::Result;

/// What the token is for: one that was signed for something else is none.
const AUDIENCE: &str = "urn:attache:delegation";
/// The longest that one is good, in seconds.
const MAX_LIFETIME_SECONDS: i64 = 24 * 3600;
/// How much clocks may differ, in seconds.
#[cfg(feature = "server")]
const LEEWAY_SECONDS: i64 = 60;

/// For whom a call is made, and whose work it is part of. It travels signed, in the header [`HEADER`](Self::HEADER), and is
/// good for whoever makes the call and nobody else: [`Access::node`](crate::auth::Access::node) says who that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Delegation {
    /// For whom, by the name that authentication gave them.
    pub caller: String,
    /// What the message says under [`LINEAGE`](crate::model::LINEAGE), if it begins a piece of work.
    pub lineage: Option<Value>,
}

impl Delegation {
    /// Where it travels.
    pub const HEADER: &'static str = "attache-delegation";

    /// A token that says so. It is good as long as the call may take, a day at most.
    ///
    /// # Errors
    /// Internal: the key cannot sign.
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

    /// What claims say whose signature is good; `None` if they are no delegation, or not of now.
    #[cfg(feature = "server")]
    pub(crate) fn from_claims(mut claims: Value) -> Option<Self> {
        let now = jiff::Timestamp::now().as_second();
        let (since, until) = (claims["iat"].as_i64()?, claims["exp"].as_i64()?);
        let is_now = since <= now + LEEWAY_SECONDS && now < until.saturating_add(LEEWAY_SECONDS);
        if claims["aud"] != AUDIENCE
            || !is_now
            || until.saturating_sub(since) > MAX_LIFETIME_SECONDS
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
    fn s60_only_what_is_signed_for_this_and_of_now_is_a_delegation() {
        let now = jiff::Timestamp::now().as_second();
        let claims = |aud: &str, iat: i64, exp: i64, sub: &str| json!({"aud": aud, "iat": iat, "exp": exp, "sub": sub, "lineage": {"depth": 2}});
        let good = Delegation::from_claims(claims(AUDIENCE, now, now + 60, "key:ann")).unwrap();
        assert_eq!(
            good,
            Delegation {
                caller: "key:ann".to_owned(),
                lineage: Some(json!({"depth": 2}))
            }
        );
        for bad in [
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
            assert_eq!(Delegation::from_claims(bad.clone()), None, "{bad}");
        }
    }
}
