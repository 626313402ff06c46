//! TLS verification and client certificates.

use std::fs;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CertifiedKey, IsCa, KeyPair,
    generate_simple_self_signed,
};
use serde_json::json;
use tempfile::TempDir;

use super::run::verb;
use crate::harness::serve;

#[test]
fn default_001_transport_security_tls_on() {
    let folder = TempDir::new().unwrap();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let cert_file = folder.path().join("cert.pem");
    let key_file = folder.path().join("key.pem");
    fs::write(&cert_file, cert.pem()).unwrap();
    fs::write(&key_file, signing_key.serialize_pem()).unwrap();
    let cert = cert_file.display().to_string();
    let key = key_file.display().to_string();
    let demo = serve(&[
        "demo",
        "--store",
        "memory",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ]);
    let port = demo.line("Listening on https://127.0.0.1:");
    let url = format!("https://localhost:{}", port.trim_end_matches('/'));
    let send = ["send", "-a", &url, "-o", "json", "hi"];
    let refused = verb(&send).run();
    let error = &refused.json()["error"];
    assert_eq!(
        (refused.code, &error["code"]),
        (Some(3), &json!("A2ACLI_ERR_UNREACHABLE")),
        "{refused:?}"
    );
    assert!(
        error["message"].as_str().unwrap().contains("certificate"),
        "{error}"
    );
    assert!(error["hint"].as_str().unwrap().contains("--ca"), "{error}");
    let trusted = verb(&["card", "get", "-a", &url, "--ca", &cert]).run();
    assert_eq!(
        (trusted.code, trusted.err.as_str()),
        (Some(0), ""),
        "{trusted:?}"
    );
    let unchecked = verb(&["card", "get", "-a", &url, "--insecure"]).run();
    assert_eq!(unchecked.code, Some(0), "{unchecked:?}");
    assert!(
        unchecked
            .err
            .contains("warning: certificates are not checked"),
        "{}",
        unchecked.err
    );
    let again = verb(&[&send[..], &["--insecure=false"]].concat())
        .env("A2ACLI_INSECURE", "1")
        .run();
    assert_eq!(again.code, Some(3), "a flag undoes a variable");
}

/// An authority, and a certificate with its key.
fn issued(
    folder: &TempDir,
    name: &str,
    authority: &CertifiedIssuer<'static, KeyPair>,
) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let file = |ending: &str, text: String| {
        let path = folder.path().join(format!("{name}.{ending}"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    (
        file("pem", certificate.pem()),
        file("key", key.serialize_pem()),
    )
}

#[test]
fn auth_009_a_client_certificate_authenticates() {
    let folder = TempDir::new().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    let ca = ca.display().to_string();
    let (cert, key) = issued(&folder, "localhost", &authority);
    let (own, own_key) = issued(&folder, "ada.example", &authority);
    let tls = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
    ];
    let demo = serve(&[&["demo", "--store", "memory"], &tls[..]].concat());
    let port = demo.line("Listening on https://127.0.0.1:");
    let url = format!("https://localhost:{}", port.trim_end_matches('/'));
    // Without a client certificate the handshake fails. The reason is known only if the alert arrives before the close.
    let refused = verb(&["send", "-a", &url, "--ca", &ca, "-o", "json", "hi"]).run();
    let code = refused.json()["error"]["code"].clone();
    assert_eq!(
        (refused.code, code),
        (Some(3), json!("A2ACLI_ERR_UNREACHABLE")),
        "{refused:?}"
    );
    for binding in ["jsonrpc", "http+json", "grpc"] {
        let shown = [
            "--ca",
            &ca,
            "--cert",
            &own,
            "--key",
            &own_key,
            "--transport",
            binding,
        ];
        let output = verb(&[&["send", "-a", &url], &shown[..], &["hi"]].concat()).run();
        assert_eq!(
            (output.code, output.field("State")),
            (Some(0), "TASK_STATE_COMPLETED"),
            "{output:?}"
        );
        assert!(
            output
                .field("Resume")
                .contains(&format!("--cert {own} --key {own_key}")),
            "{output:?}"
        );
    }
    let half = verb(&["send", "-a", &url, "--cert", &own, "hi"]).run();
    assert_eq!(half.code, Some(2), "{half:?}");
    let (stranger, strangers_key) = {
        let other = CertifiedIssuer::self_signed(
            CertificateParams::default(),
            KeyPair::generate().unwrap(),
        );
        issued(&folder, "eve.example", &other.unwrap())
    };
    let shown = ["--ca", &ca, "--cert", &stranger, "--key", &strangers_key];
    let output = verb(&[&["send", "-a", &url], &shown[..], &["-o", "json", "hi"]].concat()).run();
    // A self-signed certificate fails in the handshake.
    let code = output.json()["error"]["code"].clone();
    assert_eq!(
        (output.code, code),
        (Some(3), json!("A2ACLI_ERR_UNREACHABLE")),
        "{output:?}"
    );
}
