//! A public key of a JWK set (RFC 7517).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

/// A public key that verifies signatures.
#[derive(Debug, Clone)]
pub(super) struct PublicKey {
    pub(super) kid: String,
    /// The only algorithm that the key may be used with, if declared.
    alg: Option<String>,
    /// Unix seconds.
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
    /// Reads a JWK; `None` for an unknown key type, a key for encryption and a revoked key.
    pub(super) fn parse(jwk: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(jwk).ok()?;
        if jwk.purpose.is_some_and(|purpose| purpose != "sig") || jwk.revoked.is_some() {
            return None;
        }
        // Uncompressed point: 0x04, x, y.
        let point = || Some([vec![4], decode(&jwk.x)?, decode(&jwk.y)?].concat());
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("EC", Some("P-256")) => PublicKeyMaterial::P256(point()?),
            ("EC", Some("P-384")) => PublicKeyMaterial::P384(point()?),
            ("OKP", Some("Ed25519")) => PublicKeyMaterial::Ed25519(decode(&jwk.x)?),
            ("RSA", _) => PublicKeyMaterial::Rsa {
                n: decode_integer(&jwk.n)?,
                e: decode_integer(&jwk.e)?,
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

    /// Whether the key is valid at `now`, in Unix seconds.
    pub(super) fn is_valid_at(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }

    /// Whether this key made the signature. The key type decides which algorithms are allowed, not the signature's header (S43).
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

fn decode(text: &Option<String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.as_deref()?).ok()
}

/// Decodes an unsigned integer without leading zeros.
fn decode_integer(text: &Option<String>) -> Option<Vec<u8>> {
    let bytes = decode(text)?.into_iter();
    Some(bytes.skip_while(|byte| *byte == 0).collect())
}
