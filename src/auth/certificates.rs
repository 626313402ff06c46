//! Callers who show a certificate.

use async_trait::async_trait;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use super::{Authenticator, Credentials, Identity, Refused, Way};
use crate::model::{MutualTlsSecurityScheme, SecurityScheme};

/// Callers who show a client certificate: the TLS handshake has verified that an authority vouches for it, and its subject
/// alternative name says who it is. The common name says nothing.
///
/// A caller is `cert:{name}`.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    /// Empty: everybody for whom the authority vouches.
    known: Vec<(String, Identity)>,
}

impl Certificates {
    /// Everybody for whom the authority vouches, by the first URI, DNS name or address of mail of their certificate.
    #[must_use]
    pub fn of_everybody() -> Self {
        Self::default()
    }

    /// Only those whom [`name`](Self::name) adds.
    #[must_use]
    pub fn of(name: &str, with: impl FnOnce(Identity) -> Identity) -> Self {
        Self::default().name(name, with)
    }

    /// Somebody with this name in their certificate, such as `spiffe://example.com/ci`, and what they may do.
    #[must_use]
    pub fn name(mut self, name: &str, with: impl FnOnce(Identity) -> Identity) -> Self {
        self.known.push((name.to_owned(), with(identity(name))));
        self
    }

    fn find(&self, names: &[String]) -> Option<Identity> {
        if self.known.is_empty() {
            return names.first().map(|name| identity(name));
        }
        let mut found = self.known.iter().filter(|(name, _)| names.contains(name));
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
        credentials: &Credentials<'_>,
    ) -> Result<Option<Identity>, Refused> {
        let Some(certificate) = credentials.certificate() else {
            return Ok(None);
        };
        let (_, certificate) =
            X509Certificate::from_der(certificate).map_err(|_| Refused::NotGood)?;
        self.find(&names(&certificate))
            .map(Some)
            .ok_or(Refused::NotGood)
    }

    fn known(&self, name: &str) -> Option<Identity> {
        self.find(&[name.strip_prefix("cert:")?.to_owned()])
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way {
            name: "mtls".to_owned(),
            scheme: SecurityScheme::MutualTls(MutualTlsSecurityScheme::default()),
            challenge: "Mutual realm=\"attache\"".to_owned(),
            has_scopes: false,
        }]
    }
}

/// The names in a certificate: URIs first, then DNS names, then addresses of mail.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
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
