//! Client over TLS: certificate authorities, bindings and client certificates.

use std::sync::Arc;

use attache::model::{
    Binding, ErrorKind, Message, SendMessageRequest, SendMessageResponse, TaskState, Version,
};
use attache::wire::card::GrpcOnCard;
use attache::{Client, ClientTls, ServerSettings, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::harness::{Echo, Running, start_with, with_deadline};

/// Certificate authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Certificate with its private key, in PEM.
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority of this test");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    pub(super) fn trusted(&self) -> ClientTls {
        ClientTls::new().authority(self.pem().as_bytes()).unwrap()
    }
}

async fn start(issued: &Issued) -> Running {
    let tls = Tls::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap();
    let mut settings = ServerSettings::default();
    settings.grpc_on_card = GrpcOnCard::All;
    start_with(Echo, |server| server.server_settings(settings).tls(tls)).await
}

fn client(server: &Running, binding: Binding) -> Client {
    Client::new(
        &format!("https://{}/", server.address),
        binding,
        Version::V1,
    )
    .unwrap()
}

async fn echo(client: &Client) -> Result<TaskState, attache::Error> {
    let request = SendMessageRequest::new(Message::user("hi"));
    match with_deadline(client.send_message(request)).await? {
        SendMessageResponse::Task(task) => Ok(task.status.state),
        SendMessageResponse::Message(message) => panic!("{message:?}"),
    }
}

#[tokio::test]
async fn every_binding_works_over_tls() {
    let authority = Authority::new();
    let server = start(&authority.issue("127.0.0.1")).await;
    let bindings = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];
    for binding in bindings
        .into_iter()
        .filter(|one| cfg!(feature = "grpc") || *one != Binding::Grpc)
    {
        let client = client(&server, binding).with_tls(&authority.trusted());
        assert_eq!(echo(&client).await, Ok(TaskState::Completed), "{binding:?}");
    }
}

#[cfg(feature = "grpc")]
#[tokio::test]
async fn card_over_tls_leads_to_grpc_over_tls() {
    let authority = Authority::new();
    let server = start(&authority.issue("127.0.0.1")).await;
    let builder = Client::builder()
        .bindings([Binding::Grpc])
        .tls(authority.trusted());
    let client = with_deadline(builder.discover(&format!("https://{}/", server.address)))
        .await
        .unwrap();
    assert_eq!(client.interface().binding(), Some(Binding::Grpc));
    assert_eq!(echo(&client).await, Ok(TaskState::Completed));
}

#[tokio::test]
async fn untrusted_certificate_is_refused_unless_insecure() {
    let authority = Authority::new();
    let server = start(&authority.issue("127.0.0.1")).await;
    let stranger = client(&server, Binding::JsonRpc).with_tls(&Authority::new().trusted());
    let error = echo(&stranger).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error
            .message()
            .contains("certificate of the agent is not trusted"),
        "{error}"
    );
    let insecure = client(&server, Binding::JsonRpc).with_tls(&ClientTls::new().insecure());
    assert_eq!(echo(&insecure).await, Ok(TaskState::Completed));
}

#[tokio::test]
async fn certificate_of_another_name_is_refused() {
    let authority = Authority::new();
    let server = start(&authority.issue("other.example")).await;
    let error = echo(&client(&server, Binding::JsonRpc).with_tls(&authority.trusted()))
        .await
        .unwrap_err();
    assert!(
        error
            .message()
            .contains("certificate of the agent is not trusted"),
        "{error}"
    );
}

#[tokio::test]
async fn client_certificate_is_presented_on_request() {
    let authority = Authority::new();
    let ours = authority.issue("caller");
    let theirs = authority.issue("127.0.0.1");
    let (address, mut certificates) = mutual_tls_server(&authority, &theirs).await;
    let client = Client::new(
        &format!("https://{address}/"),
        Binding::JsonRpc,
        Version::V1,
    )
    .unwrap();
    let with_certificate = authority
        .trusted()
        .certificate(ours.certificate.as_bytes(), ours.key.as_bytes())
        .unwrap();
    // The response is not A2A; only the certificate that the server received matters.
    let _ = echo(&client.clone().with_tls(&with_certificate)).await;
    let expected = CertificateDer::from_pem_slice(ours.certificate.as_bytes()).unwrap();
    assert_eq!(
        with_deadline(certificates.recv()).await.unwrap(),
        Some(expected)
    );
    let error = echo(&client.with_tls(&authority.trusted()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(with_deadline(certificates.recv()).await.unwrap(), None);
}

/// Client certificates that a server received; `None` for a refused handshake.
type ClientCertificates = tokio::sync::mpsc::Receiver<Option<CertificateDer<'static>>>;

/// Starts a server that requires a client certificate of the authority.
async fn mutual_tls_server(
    authority: &Authority,
    own: &Issued,
) -> (std::net::SocketAddr, ClientCertificates) {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = tokio::sync::mpsc::channel(4);
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the runtime of the test"
    )]
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                sender.send(None).await.unwrap();
                continue;
            };
            let certificates = stream.get_ref().1.peer_certificates().unwrap();
            sender
                .send(Some(certificates[0].clone().into_owned()))
                .await
                .unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream
                .write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
                .await;
            let _ = stream.shutdown().await;
        }
    });
    (address, received)
}

#[test]
fn invalid_certificates_are_refused_by_field() {
    let authority = Authority::new();
    let one = authority.issue("one");
    let other = authority.issue("other");
    let error = ClientTls::new().authority(b"nothing").unwrap_err();
    assert_eq!(error.violations()[0].field(), "authority");
    for (certificate, key, field) in [
        ("", one.key.as_str(), "certificate"),
        (one.certificate.as_str(), "", "key"),
        (one.certificate.as_str(), other.key.as_str(), "key"),
    ] {
        let error = ClientTls::new()
            .certificate(certificate.as_bytes(), key.as_bytes())
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.violations()[0].field()),
            (ErrorKind::InvalidParams, field)
        );
    }
    let tls = ClientTls::new()
        .certificate(one.certificate.as_bytes(), one.key.as_bytes())
        .unwrap();
    assert_eq!(
        format!("{tls:?}"),
        "ClientTls { authorities: 0, certificate: true, insecure: false }"
    );
}
