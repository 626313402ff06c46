//! A schema of the PostgreSQL server of the tests.

use std::net::SocketAddr;

use attache::store::Postgres;
use attache::store::postgres::{Options, WebhookKey};
use tokio_postgres::NoTls;

/// Webhook key of all replicas.
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Schema of its own for a test.
pub(crate) struct TestSchema {
    url: String,
    name: String,
}

impl TestSchema {
    /// Returns `None` if there is no server for tests.
    pub(crate) fn new() -> Option<Self> {
        let url = std::env::var("ATTACHE_TEST_POSTGRES").ok()?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        Some(Self {
            url,
            name: format!("l{}", &id[..16]),
        })
    }

    pub(crate) fn options(&self) -> Options {
        let key = WebhookKey::from_base64(KEY).unwrap();
        let mut options = Options::new(self.url.parse().unwrap(), key);
        options.schema.clone_from(&self.name);
        options
    }

    /// Returns options that connect to another address.
    pub(crate) fn options_through(&self, address: SocketAddr) -> Options {
        let server = self.address().to_string();
        let mut options = self.options();
        options.url = self
            .url
            .replace(&server, &address.to_string())
            .parse()
            .unwrap();
        options
    }

    /// Joins the cluster of this schema.
    pub(crate) async fn open(&self) -> Postgres {
        Postgres::open(self.options()).await.unwrap()
    }

    /// Returns the address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        let (_, rest) = self.url.split_once('@').unwrap();
        let (address, _) = rest.split_once('/').unwrap();
        address.parse().unwrap()
    }

    /// Removes the schema.
    pub(crate) async fn drop(self) {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        let driver = tokio::task::JoinSet::from_iter([connection]);
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        client.batch_execute(&sql).await.unwrap();
        drop(client);
        driver.join_all().await;
    }
}
