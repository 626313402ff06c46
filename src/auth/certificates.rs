//! Callers who show a certificate.

use async_trait::async_trait;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use super::{AuthError, Authenticator, Identity, RequestCredentials, SchemeInfo};
use crate::model::{MutualTlsSecurityScheme, SecurityScheme};

/// Callers who show a client certificate: the TLS handshake has verified that an authority vouches for it, and its subject
/// alternative name says who it is. The common name says nothing.
///
/// A caller is `cert:{name}`.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    /// Empty: everybody for whom the authority vouches.
    subjects: Vec<(String, Identity)>,
}

impl Certificates {
    /// Everybody for whom the authority vouches, by the first URI, DNS name or address of mail of their certificate.
    #[must_use]
    pub fn any_subject() -> Self {
        Self::default()
    }

    /// Only those whom [`subject`](Self::subject) adds.
    #[must_use]
    pub fn with_subject(name: &str, with: impl FnOnce(Identity) -> Identity) -> Self {
        Self::default().subject(name, with)
    }

    /// Somebody with this name in their certificate, such as `spiffe://example.com/ci`, and what they may do.
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
        // One certificate is of one caller.
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
        self.find_subject(&subject_alt_names(&certificate))
            .map(Some)
            .ok_or(AuthError::InvalidCredential)
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

/// The names in a certificate: URIs first, then DNS names, then addresses of mail.
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
