//! TLS on the main port: same responses, and no cleartext.

use std::sync::Arc;

use attache::auth::{Access, ApiKeys, Certificates};
use attache::{ErrorKind, Outcome, Tls};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{
    Answer, Echo, Running, SteppedAgent, message, request, start_with, with_deadline,
};

struct Issued {
    certificate: String,
    key: String,
    der: CertificateDer<'static>,
}

fn issue() -> Issued {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Issued {
        certificate: issued.cert.pem(),
        key: issued.signing_key.serialize_pem(),
        der: issued.cert.der().clone(),
    }
}

async fn connect(server: &Running, issued: &Issued, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(issued.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    with_deadline(TlsConnector::from(Arc::new(config)).connect(name, stream))
        .await
        .unwrap()
}

#[tokio::test]
async fn calls_are_answered_within_tls_and_not_without() {
    let issued = issue();
    let tls = Tls::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap();
    let server = start_with(Echo, |server| server.tls(tls)).await;
    let mut stream = connect(&server, &issued, b"http/1.1").await;
    let body = request("SendMessage", &json!({"message": message("hi", json!({}))}));
    let length = body.len();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    with_deadline(stream.read_to_string(&mut answer))
        .await
        .unwrap();
    let answer = Answer::read(&answer).json();
    assert_eq!(
        answer["result"]["task"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );

    let mut bare = server
        .begin("GET /.well-known/agent-card.json HTTP/1.1", b"")
        .await;
    let mut read = Vec::new();
    // The server refuses with an alert or closes the connection.
    let _ = with_deadline(bare.read_to_end(&mut read)).await;
    assert!(!read.starts_with(b"HTTP"), "{read:?}");
}

#[tokio::test]
async fn http_2_is_chosen_in_the_handshake_and_the_card_says_https() {
    let issued = issue();
    let tls = Tls::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap();
    let server = start_with(Echo, |server| server.tls(tls)).await;
    let stream = connect(&server, &issued, b"h2").await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut stream = connect(&server, &issued, b"http/1.1").await;
    let head =
        "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    with_deadline(stream.read_to_string(&mut answer))
        .await
        .unwrap();
    assert_eq!(
        Answer::read(&answer).json()["url"],
        format!("https://{}", server.address)
    );
}

#[test]
fn what_is_no_certificate_is_refused_by_name() {
    let one = issue();
    let other = issue();
    for (certificate, key, field) in [
        ("", one.key.as_str(), "certificate"),
        ("-----BEGIN", one.key.as_str(), "certificate"),
        (one.certificate.as_str(), "", "key"),
        (one.certificate.as_str(), one.certificate.as_str(), "key"),
        (one.certificate.as_str(), other.key.as_str(), "key"),
    ] {
        let error = Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(
            (error.kind(), error.violations()[0].field()),
            (ErrorKind::InvalidParams, field)
        );
    }
}

/// A certificate authority.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: rcgen::Issuer::new(params, key),
            pem,
        }
    }

    /// Issues a client certificate with these names, valid until the given year.
    fn vouch(
        &self,
        names: &[&str],
        until: i32,
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = rcgen::CertificateParams::default();
        for name in names {
            let name = (*name).try_into().unwrap();
            params.subject_alt_names.push(rcgen::SanType::URI(name));
        }
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "spiffe://example.com/ci");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (
            certificate.der().clone(),
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
    }
}

/// Gets an unknown task with or without a client certificate; `None` if the handshake fails.
async fn ask(
    server: &Running,
    issued: &Issued,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Option<u16> {
    let mut roots = RootCertStore::empty();
    roots.add(issued.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match own {
        Some((certificate, key)) => builder
            .with_client_auth_cert(vec![certificate], key)
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = with_deadline(TlsConnector::from(Arc::new(config)).connect(name, stream))
        .await
        .ok()?;
    let head = "GET /tasks/none HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    let _ = with_deadline(stream.read_to_string(&mut answer)).await;
    (!answer.is_empty()).then(|| Answer::read(&answer).status)
}

#[tokio::test]
async fn s39_a_certificate_is_of_whom_its_alternative_name_says() {
    let issued = issue();
    let authority = Authority::new();
    let stranger = Authority::new();
    let known = Certificates::with_subject("spiffe://example.com/ci", |ci| ci);
    for (required, anonymous) in [(true, None), (false, Some(401))] {
        let tls = Tls::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap();
        let tls = tls
            .verify_clients(authority.pem.as_bytes(), required)
            .unwrap();
        let access = Access::new(known.clone());
        let server = start_with(Echo, |server| server.tls(tls).access(access)).await;
        for (own, expected) in [
            (
                Some(authority.vouch(&["spiffe://example.com/ci"], 2999)),
                Some(404),
            ),
            // All have the same common name, which is ignored.
            (
                Some(authority.vouch(&["spiffe://example.com/other"], 2999)),
                Some(401),
            ),
            (Some(authority.vouch(&[], 2999)), Some(401)),
            (
                Some(authority.vouch(&["spiffe://example.com/ci"], 2001)),
                None,
            ),
            (
                Some(stranger.vouch(&["spiffe://example.com/ci"], 2999)),
                None,
            ),
            (None, anonymous),
        ] {
            assert_eq!(ask(&server, &issued, own).await, expected, "{required}");
        }
    }
}

/// R48: an open stream continues while certificates and keys are rotated. It ends when its key is revoked.
#[tokio::test]
async fn r48_certificates_and_keys_are_renewed_and_no_stream_is_cut() {
    let old = issue();
    let new = issue();
    let tls = Tls::from_pem(old.certificate.as_bytes(), old.key.as_bytes()).unwrap();
    let keys = ApiKeys::new();
    let (puppet, mut strings) = SteppedAgent::new();
    let first = keys.issue("ann", |ann| ann);
    let access = Access::new(keys.clone());
    let own = tls.clone();
    let server = start_with(puppet, |server| server.tls(own).access(access)).await;
    let mut stream = connect(&server, &old, b"http/1.1").await;
    let body = request(
        "SendStreamingMessage",
        &json!({"message": message("hi", json!({}))}),
    );
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {}\r\nContent-Length: {}\r\n\r\n",
        first.expose(),
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    strings.next_task().await;
    assert!(
        tls.renew(new.certificate.as_bytes(), old.key.as_bytes())
            .is_err()
    );
    assert_eq!(
        ask(&server, &old, None).await,
        Some(401),
        "a mismatched certificate and key change nothing"
    );
    tls.renew(new.certificate.as_bytes(), new.key.as_bytes())
        .unwrap();
    assert_eq!(ask(&server, &new, None).await, Some(401));
    assert_eq!(ask(&server, &old, None).await, None);
    // Both keys of one caller are valid during the rotation.
    let second = keys.issue("ann", |ann| ann);
    for key in [&first, &second] {
        assert_eq!(with_key(&server, &new, key.expose()).await, 404);
    }
    strings.say("still here").await;
    let mut read = String::new();
    read_until(&mut stream, &mut read, "still here").await;
    // D18: a revoked key ends its stream, with the reason.
    keys.replace([]);
    assert_eq!(with_key(&server, &new, first.expose()).await, 401);
    read_until(&mut stream, &mut read, "the credential was revoked").await;
    assert!(!read.contains("TASK_STATE_COMPLETED"), "{read}");
    strings.end(Outcome::Completed).await;
}

/// Reads a stream until it contains a text.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), read: &mut String, text: &str) {
    while !read.contains(text) {
        let mut bytes = [0; 4096];
        let length = with_deadline(stream.read(&mut bytes)).await.unwrap();
        assert!(length > 0, "the stream was cut: {read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
}

/// Returns the status of a get for an unknown task with the given key.
async fn with_key(server: &Running, issued: &Issued, key: &str) -> u16 {
    let mut stream = connect(server, issued, b"http/1.1").await;
    let head = format!(
        "GET /tasks/none HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    with_deadline(stream.read_to_string(&mut answer))
        .await
        .unwrap();
    Answer::read(&answer).status
}
