//! TLS is on, and checked.

use std::fs;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use tempfile::TempDir;

use super::run::verb;
use crate::harness::serve;

#[test]
fn default_001_transport_security_tls_on() {
    let folder = TempDir::new().unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert_file, key_file) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert_file, cert.pem()).unwrap();
    fs::write(&key_file, signing_key.serialize_pem()).unwrap();
    let (cert, key) = (cert_file.display().to_string(), key_file.display().to_string());
    let demo = serve(&["demo", "--store", "memory", "--tls-cert", &cert, "--tls-key", &key]);
    let port = demo.line("Listening on https://127.0.0.1:");
    let url = format!("https://localhost:{}", port.trim_end_matches('/'));
    let send = ["send", "-a", &url, "-o", "json", "hi"];
    let refused = verb(&send).run();
    let error = &refused.json()["error"];
    assert_eq!((refused.code, &error["code"]), (Some(3), &json!("A2ACLI_ERR_UNREACHABLE")), "{refused:?}");
    assert!(error["message"].as_str().unwrap().contains("certificate"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("--ca"), "{error}");
    let trusted = verb(&["card", "get", "-a", &url, "--ca", &cert]).run();
    assert_eq!((trusted.code, trusted.err.as_str()), (Some(0), ""), "{trusted:?}");
    let unchecked = verb(&["card", "get", "-a", &url, "--insecure"]).run();
    assert_eq!(unchecked.code, Some(0), "{unchecked:?}");
    assert!(unchecked.err.contains("warning: certificates are not checked"), "{}", unchecked.err);
    let again = verb(&[&send[..], &["--insecure=false"]].concat()).env("A2ACLI_INSECURE", "1").run();
    assert_eq!(again.code, Some(3), "a flag undoes a variable");
}
