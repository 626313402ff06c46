//! Authentication by TLS client certificate.

use async_trait::async_trait;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use super::{AuthError, Authenticator, Identity, RequestCredentials, SchemeInfo};
use crate::model::{MutualTlsSecurityScheme, SecurityScheme, Timestamp};

/// Authenticates callers by TLS client certificate. The handshake has verified the chain; the subject alternative name (SAN)
/// identifies the caller. The common name is ignored.
///
/// The caller name is `cert:{name}`.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    /// Allowed names; empty: every certificate that the authority has signed.
    subjects: Vec<(String, Identity)>,
}

impl Certificates {
    /// Accepts every certificate that the authority has signed. The first URI, DNS name or e-mail address of the SAN is the name.
    #[must_use]
    pub fn any_subject() -> Self {
        Self::default()
    }

    /// Accepts only certificates with this name. [`subject`](Self::subject) adds others.
    #[must_use]
    pub fn with_subject(name: &str, with: impl FnOnce(Identity) -> Identity) -> Self {
        Self::default().subject(name, with)
    }

    /// Accepts certificates with this name in the SAN, such as `spiffe://example.com/ci`; `with` grants permissions.
    #[must_use]
    pub fn subject(mut self, name: &str, with: impl FnOnce(Identity) -> Identity) -> Self {
        self.subjects.push((name.to_owned(), with(identity(name))));
        self
    }

    fn find_subject(&self, names: &[String]) -> Option<Identity> {
        if self.subjects.is_empty() {
            return names.first().map(|name| identity(name));
        }
        let mut found = self
            .subjects
            .iter()
            .filter(|(name, _)| names.contains(name));
        // A certificate that matches two names is ambiguous and refused.
        found
            .next()
            .filter(|_| found.next().is_none())
            .map(|(_, identity)| identity.clone())
    }
}

fn identity(name: &str) -> Identity {
    Identity::named(&format!("cert:{name}"))
}

#[async_trait]
impl Authenticator for Certificates {
    async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> Result<Option<Identity>, AuthError> {
        let Some(certificate) = credentials.certificate() else {
            return Ok(None);
        };
        let (_, certificate) =
            X509Certificate::from_der(certificate).map_err(|_| AuthError::InvalidCredential)?;
        let identity = self
            .find_subject(&subject_alt_names(&certificate))
            .ok_or(AuthError::InvalidCredential)?;
        let expiry = certificate.validity().not_after.timestamp();
        Ok(Some(
            match Timestamp::from_millis(expiry.saturating_mul(1000)) {
                Some(expiry) => identity.valid_until(expiry),
                None => identity,
            },
        ))
    }

    fn find_identity(&self, name: &str) -> Option<Identity> {
        self.find_subject(&[name.strip_prefix("cert:")?.to_owned()])
    }

    fn schemes(&self) -> Vec<SchemeInfo> {
        vec![SchemeInfo {
            name: "mtls".to_owned(),
            scheme: SecurityScheme::MutualTls(MutualTlsSecurityScheme::default()),
            challenge: "Mutual realm=\"attache\"".to_owned(),
            has_scopes: false,
        }]
    }
}

/// Names of the SAN: URIs first, then DNS names, then e-mail addresses.
fn subject_alt_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let named = certificate.extensions().iter().filter_map(|extension| {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(named) => Some(&named.general_names),
            _ => None,
        }
    });
    let mut names: Vec<_> = named
        .flatten()
        .filter_map(|name| match name {
            GeneralName::URI(text) => Some((0, *text)),
            GeneralName::DNSName(text) => Some((1, *text)),
            GeneralName::RFC822Name(text) => Some((2, *text)),
            _ => None,
        })
        .collect();
    names.sort_by_key(|(rank, _)| *rank);
    names.into_iter().map(|(_, name)| name.to_owned()).collect()
}
