//! TLS on the one port: the same answers, and nothing without it.

use std::sync::Arc;

use attache::{ErrorKind, Tls};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{Answer, Echo, Running, message, request, soon, start_with};

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
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    soon(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap()
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
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let answer = Answer::read(&answer).json();
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");

    let mut bare = server.begin("GET /.well-known/agent-card.json HTTP/1.1", b"").await;
    let mut read = Vec::new();
    // The refusal is an alert, or just the end.
    let _ = soon(bare.read_to_end(&mut read)).await;
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
    let head = "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(Answer::read(&answer).json()["url"], format!("https://{}/", server.address));
}

#[test]
fn what_is_no_certificate_is_refused_by_name() {
    let (one, other) = (issue(), issue());
    for (certificate, key, field) in [
        ("", one.key.as_str(), "certificate"),
        ("-----BEGIN", one.key.as_str(), "certificate"),
        (one.certificate.as_str(), "", "key"),
        (one.certificate.as_str(), one.certificate.as_str(), "key"),
        (one.certificate.as_str(), other.key.as_str(), "key"),
    ] {
        let error = Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!((error.kind(), error.violations()[0].field()), (ErrorKind::InvalidParams, field));
    }
}
