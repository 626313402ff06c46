//! Private keys that sign cards and tokens.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::jose_header::JoseHeader;
use super::{card_payload, pem};
use crate::model::{AgentCard, AgentCardSignature, Error, Result};

/// A private key that signs cards and tokens: EC (P-256, P-384), Ed25519 or RSA.
#[derive(Clone)]
pub struct Signer {
    pub(super) key: Arc<PrivateKey>,
    kid: String,
    jku: Option<String>,
}

pub(super) enum PrivateKey {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Signer {
    /// Reads a private key from PEM. `kid` is the id under which the public key is published.
    ///
    /// # Errors
    /// Invalid parameters: the file has no private key, or one of an unsupported type.
    pub fn from_pem(pem: &str, kid: impl Into<String>) -> Result<Self> {
        let invalid = || {
            Error::invalid(
                "key",
                "must be a PEM file with one EC, Ed25519 or RSA private key",
            )
        };
        let der = pem::private_key(pem).ok_or_else(invalid)?;
        let key = PrivateKey::parse(&der).ok_or_else(invalid)?;
        Ok(Self {
            key: Arc::new(key),
            kid: kid.into(),
            jku: None,
        })
    }

    /// Reads a private key from PEM and uses its thumbprint (RFC 7638) as key id.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pem_with_thumbprint(pem: &str) -> Result<Self> {
        let signer = Self::from_pem(pem, "")?;
        let key = signer.public_key();
        let members = ["crv", "e", "kty", "n", "x", "y"];
        let members = members.iter().filter(|name| key.get(**name).is_some());
        let members: Vec<_> = members
            .map(|name| format!("\"{name}\":{}", key[*name]))
            .collect();
        let text = format!("{{{}}}", members.join(","));
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        Ok(Self {
            kid: URL_SAFE_NO_PAD.encode(digest),
            ..signer
        })
    }

    /// Names the URL of the key set in signatures (`jku`).
    #[must_use]
    pub fn key_set_url(self, url: impl Into<String>) -> Self {
        Self {
            jku: Some(url.into()),
            ..self
        }
    }

    /// The public key as JWK (RFC 7517).
    #[must_use]
    pub fn public_key(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let point = |curve: &str, pair: &EcdsaKeyPair| {
            let bytes = &pair.public_key().as_ref()[1..];
            let (x, y) = bytes.split_at(bytes.len() / 2);
            json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y)})
        };
        let mut key = match &*self.key {
            PrivateKey::P256(pair) => point("P-256", pair),
            PrivateKey::P384(pair) => point("P-384", pair),
            PrivateKey::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref())})
            }
            PrivateKey::Rsa(pair) => json!({
                "kty": "RSA",
                "n": text(pair.public_key().modulus().big_endian_without_leading_zero()),
                "e": text(pair.public_key().exponent().big_endian_without_leading_zero()),
            }),
        };
        key["kid"] = json!(self.kid);
        key["use"] = json!("sig");
        key["alg"] = json!(self.key.alg());
        key
    }

    /// Signs a card. Adds one signature per payload form, where verifiers disagree on the form.
    ///
    /// # Errors
    /// Invalid parameters: a required member of the card is empty.
    pub fn sign(&self, card: &mut AgentCard) -> Result<()> {
        check_required_fields(card)?;
        let payloads = card_payload::payloads(card, None);
        if payloads.is_empty() {
            return Err(Error::invalid(
                "card",
                "must contain only numbers that JSON represents exactly",
            ));
        }
        let protected =
            URL_SAFE_NO_PAD.encode(serde_json::to_vec(&self.header()).map_err(Error::internal)?);
        for payload in payloads {
            let input = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload));
            let signature = URL_SAFE_NO_PAD.encode(self.key.sign(input.as_bytes())?);
            card.signatures.push(AgentCardSignature {
                protected: protected.clone(),
                signature,
                header: None,
            });
        }
        Ok(())
    }

    pub(super) fn header(&self) -> JoseHeader {
        JoseHeader {
            alg: self.key.alg().to_owned(),
            jku: self.jku.clone(),
            kid: self.kid.clone(),
            typ: Some("JOSE".to_owned()),
            crit: None,
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

impl PrivateKey {
    fn parse(der: &[u8]) -> Option<Self> {
        let curve = |algorithm| EcdsaKeyPair::from_private_key_der(algorithm, der);
        if let Ok(pair) = curve(&ECDSA_P256_SHA256_FIXED_SIGNING) {
            return Some(Self::P256(pair));
        }
        if let Ok(pair) = curve(&ECDSA_P384_SHA384_FIXED_SIGNING) {
            return Some(Self::P384(pair));
        }
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Some(Self::Ed25519(pair));
        }
        RsaKeyPair::from_pkcs8(der)
            .or_else(|_| RsaKeyPair::from_der(der))
            .ok()
            .map(Self::Rsa)
    }

    fn alg(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::P384(_) => "ES384",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    pub(super) fn sign(&self, input: &[u8]) -> Result<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::P256(pair) | Self::P384(pair) => pair
                .sign(&random, input)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(Error::internal),
            Self::Ed25519(pair) => Ok(pair.sign(input).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, input, &mut signature)
                    .map_err(Error::internal)?;
                Ok(signature)
            }
        }
    }
}

/// Checks that no required member is empty: verifiers disagree on whether an empty member is part of the payload.
fn check_required_fields(card: &AgentCard) -> Result<()> {
    let skills = card
        .skills
        .iter()
        .flat_map(|skill| [&skill.id, &skill.name, &skill.description]);
    let interfaces = card
        .supported_interfaces
        .iter()
        .flat_map(|one| [&one.url, &one.protocol_binding]);
    let members = [
        ("name", card.name.is_empty()),
        ("description", card.description.is_empty()),
        ("version", card.version.is_empty()),
        ("supportedInterfaces", card.supported_interfaces.is_empty()),
        (
            "supportedInterfaces",
            interfaces.into_iter().any(String::is_empty),
        ),
        ("defaultInputModes", card.default_input_modes.is_empty()),
        ("defaultOutputModes", card.default_output_modes.is_empty()),
        ("skills", card.skills.is_empty()),
        ("skills", skills.into_iter().any(String::is_empty)),
    ];
    match members.iter().find(|(_, empty)| *empty) {
        Some((name, _)) => Err(Error::invalid(*name, "must not be empty in a signed card")),
        None => Ok(()),
    }
}
