//! Tests of the PostgreSQL store on a real server.
//!
//! They need `ATTACHE_TEST_POSTGRES`, the URL of a superuser; `tests/postgres` starts such a server. Each test has a schema of
//! its own. Without the variable they return early.

mod migrations;
mod notifications;
mod outcomes;
mod plans;
mod proxy;
mod startup;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::NoTls;

use super::*;
use crate::store::{conformance, conformance_shared};

/// Webhook key of the tests.
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Database of a test: schemas that are dropped at its end.
struct TestDatabase {
    url: String,
    prefix: String,
    schemas: AtomicU64,
}

impl TestDatabase {
    /// Returns `None` if there is no server for tests.
    fn new() -> Option<Self> {
        let url = std::env::var("ATTACHE_TEST_POSTGRES").ok()?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        Some(Self {
            url,
            prefix: format!("t{}", &id[..12]),
            schemas: AtomicU64::new(0),
        })
    }

    fn new_schema(&self) -> String {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        format!("{}_{number}", self.prefix)
    }

    fn options(&self, schema: &str) -> Options {
        let key = WebhookKey::from_base64(KEY).unwrap();
        Options {
            schema: schema.to_owned(),
            ..Options::new(self.url.parse().unwrap(), key)
        }
    }

    /// Returns the address of the server.
    fn address(&self) -> SocketAddr {
        let (_, rest) = self.url.split_once('@').unwrap();
        let (address, _) = rest.split_once('/').unwrap();
        address.parse().unwrap()
    }

    /// Returns options that connect through a proxy.
    fn options_through(&self, schema: &str, proxy: SocketAddr) -> Options {
        let url = self
            .url
            .replace(&self.address().to_string(), &proxy.to_string());
        Options {
            url: url.parse().unwrap(),
            ..self.options(schema)
        }
    }

    async fn open(&self, schema: &str) -> Postgres {
        Postgres::open(self.options(schema)).await.unwrap()
    }

    /// Runs statements as the superuser.
    async fn execute(&self, sql: &str) {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        let driver = tokio::task::JoinSet::from_iter([connection]);
        client.batch_execute(sql).await.unwrap();
        drop(client);
        driver.join_all().await;
    }

    async fn drop_schemas(&self) {
        for number in 0..self.schemas.load(Ordering::Relaxed) {
            self.execute(&format!(
                "DROP SCHEMA IF EXISTS {}_{number} CASCADE",
                self.prefix
            ))
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_passes_the_conformance_suite() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    conformance(async || database.open(&database.new_schema()).await).await;
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_passes_the_conformance_suite_of_shared_stores() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    conformance_shared(async || {
        let schema = database.new_schema();
        let options = Options {
            lease: Duration::from_millis(600),
            ..database.options(&schema)
        };
        let one = Postgres::open(options.clone()).await.unwrap();
        let other = Postgres::open(options).await.unwrap();
        (one, other)
    })
    .await;
    database.drop_schemas().await;
}
