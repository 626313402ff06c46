//! Public keys, as key sets have them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use crate::model::{Error, Result};

/// More keys than anybody signs with are not looked at.
const MAX_KEYS: usize = 100;

/// Public keys (RFC 7517) to check signatures with. Those of kinds that we do not know are left out; a key for
/// encryption, of a secret, or past its `exp` is never used.
#[derive(Debug, Clone, Default)]
pub struct KeySet(Vec<PublicKey>);

impl KeySet {
    /// Reads a key set, `{"keys": […]}`, or a single key.
    ///
    /// # Errors
    /// Invalid parameters: it is neither, or has more than 100 keys.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let wrong = || Error::invalid("keys", "must be a JSON Web Key Set of at most 100 keys");
        let value: Value = serde_json::from_slice(json).map_err(|_| wrong())?;
        let keys = match value.get("keys") {
            Some(Value::Array(keys)) => keys.clone(),
            None if value.get("kty").is_some() => vec![value],
            _ => return Err(wrong()),
        };
        if keys.len() > MAX_KEYS {
            return Err(wrong());
        }
        Ok(Self(
            keys.into_iter().filter_map(PublicKey::parse).collect(),
        ))
    }

    /// Adds the keys of another set.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether there is no key to check anything with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn find<'a>(&'a self, kid: &'a str) -> impl Iterator<Item = &'a PublicKey> {
        let now = jiff::Timestamp::now().as_second();
        self.0
            .iter()
            .filter(move |key| key.kid == kid && key.expires.is_none_or(|expires| expires > now))
    }
}

#[derive(Debug, Clone)]
pub(super) struct PublicKey {
    kid: String,
    /// The one algorithm it is for, where that is said.
    alg: Option<String>,
    expires: Option<i64>,
    public: PublicKeyMaterial,
}

#[derive(Debug, Clone)]
enum PublicKeyMaterial {
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: String,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    exp: Option<i64>,
    revoked: Option<Value>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl PublicKey {
    fn parse(jwk: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(jwk).ok()?;
        if jwk.purpose.is_some_and(|purpose| purpose != "sig") || jwk.revoked.is_some() {
            return None;
        }
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = || {
            let (x, y) = (number(&jwk.x)?, number(&jwk.y)?);
            Some([vec![4], x, y].concat())
        };
        // A key's numbers begin with what counts.
        let whole = |text| {
            Some(
                number(text)?
                    .into_iter()
                    .skip_while(|byte| *byte == 0)
                    .collect(),
            )
        };
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("EC", Some("P-256")) => PublicKeyMaterial::P256(point()?),
            ("EC", Some("P-384")) => PublicKeyMaterial::P384(point()?),
            ("OKP", Some("Ed25519")) => PublicKeyMaterial::Ed25519(number(&jwk.x)?),
            ("RSA", _) => PublicKeyMaterial::Rsa {
                n: whole(&jwk.n)?,
                e: whole(&jwk.e)?,
            },
            _ => return None,
        };
        Some(Self {
            kid: jwk.kid,
            alg: jwk.alg,
            expires: jwk.exp,
            public,
        })
    }

    /// Whether this key made the signature. The key says what it may be used for, not whoever signed.
    pub(super) fn verifies(&self, alg: &str, input: &[u8], signature: &[u8]) -> bool {
        if self.alg.as_deref().is_some_and(|only| only != alg) {
            return false;
        }
        let verify = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key)
                .verify(input, signature)
                .is_ok()
        };
        match (&self.public, alg) {
            (PublicKeyMaterial::P256(key), "ES256") => verify(&ECDSA_P256_SHA256_FIXED, key),
            (PublicKeyMaterial::P384(key), "ES384") => verify(&ECDSA_P384_SHA384_FIXED, key),
            (PublicKeyMaterial::Ed25519(key), "EdDSA" | "Ed25519") => verify(&ED25519, key),
            (PublicKeyMaterial::Rsa { n, e }, "RS256") => RsaPublicKeyComponents { n, e }
                .verify(&RSA_PKCS1_2048_8192_SHA256, input, signature)
                .is_ok(),
            (PublicKeyMaterial::Rsa { n, e }, "PS256") => RsaPublicKeyComponents { n, e }
                .verify(&RSA_PSS_2048_8192_SHA256, input, signature)
                .is_ok(),
            _ => false,
        }
    }
}
