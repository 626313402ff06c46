//! A server that other machines can reach authenticates its callers, or allows anonymous ones explicitly.

use std::error::Error as _;

use attache::auth::{Access, ApiKeys};
use attache::model::ErrorKind;
use attache::{AgentCard, Error, Exposure, ExposureError, Server, ServerSettings};

use crate::harness::{Echo, with_deadline};

fn server() -> Server {
    Server::new(AgentCard::new("Echo", "Says it back"), Echo)
}

fn trusting_a_proxy() -> Server {
    let mut settings = ServerSettings::default();
    settings.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    server().server_settings(settings)
}

/// The typed cause of a refusal.
fn exposure(error: &Error) -> &Exposure {
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert!(error.message().contains("allow_anonymous"), "{error}");
    let source = error.source().expect("the refusal has a source");
    let source: &ExposureError = source.downcast_ref().expect("the source is typed");
    &source.exposure
}

#[tokio::test]
async fn e02_an_exposed_server_without_authentication_is_not_built() {
    let public = || server().public_url("https://agents.example.com");
    for (server, address) in [
        (server(), "0.0.0.0:0"),
        (public(), "127.0.0.1:0"),
        (trusting_a_proxy(), "127.0.0.1:0"),
    ] {
        let refused = with_deadline(server.bind(address)).await;
        exposure(&refused.err().expect("the server is refused"));
    }
    for server in [public(), trusting_a_proxy()] {
        let keys = Access::new(ApiKeys::new());
        with_deadline(server.access(keys).bind("127.0.0.1:0"))
            .await
            .unwrap();
    }
    with_deadline(public().allow_anonymous().bind("0.0.0.0:0"))
        .await
        .unwrap();
    // Only this process can reach it.
    with_deadline(public().serve_in_process()).await.unwrap();
}

#[tokio::test]
async fn e02_a_reload_cannot_expose_a_server_without_authentication() {
    let bound = with_deadline(server().bind("127.0.0.1:0")).await.unwrap();
    let handle = bound.handle();
    let refused = handle.replace(trusting_a_proxy()).unwrap_err();
    assert_eq!(
        *exposure(&refused),
        Exposure::TrustedProxy("127.0.0.1".parse().unwrap())
    );
    handle
        .replace(trusting_a_proxy().allow_anonymous())
        .unwrap();
}
