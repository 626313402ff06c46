//! Errors when a store is opened: each message has the cause and the fix.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use super::proxy::Proxy;
use super::*;
use crate::egress::ClientTls;
use crate::model::{PushConfig, TaskState, Version};
use crate::store::WriterRole;

/// Opens a store and returns the message of the error.
async fn refusal(options: Options) -> String {
    Postgres::open(options).await.unwrap_err().to_string()
}

fn with_url(options: &Options, url: &str) -> Options {
    Options {
        url: url.parse().unwrap(),
        ..options.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_addresses_and_logins_are_reported() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = database.new_schema();
    let options = database.options(&schema);
    let address = database.address();
    let table = [
        (
            format!("postgres://postgres:wrong@{address}/postgres?sslmode=disable"),
            format!(
                "postgres://postgres@{address}/postgres refuses the login: password authentication failed for user \"postgres\"; \
                 check user and password"
            ),
        ),
        (
            database.url.replace("/postgres?", "/nowhere?"),
            format!(
                "postgres://postgres@{address}/nowhere does not exist: create it with CREATE DATABASE \"nowhere\""
            ),
        ),
        (
            database.url.replace("sslmode=disable", ""),
            format!(
                "postgres://postgres@{address}/postgres does not offer TLS: enable it on the server, or add sslmode=disable to the \
                 URL if the network is trusted"
            ),
        ),
    ];
    for (url, message) in table {
        assert_eq!(refusal(with_url(&options, &url)).await, message);
    }
    let closed = closed_address();
    let url = format!("postgres://ann:secret@{closed}/tasks?sslmode=disable");
    let error = Postgres::open(with_url(&options, &url)).await.unwrap_err();
    assert!(error.is_transient());
    let message = error.to_string();
    let start = format!("cannot reach postgres://ann@{closed}/tasks: error connecting to server: ");
    assert!(message.starts_with(&start), "{message}");
    let end = "; check that the server runs and that host and port are right";
    assert!(message.ends_with(end), "{message}");
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_hosts_are_tried_in_order() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let closed = closed_address();
    // Accepts connections and does not answer.
    let frozen = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("{closed},{},", frozen.local_addr().unwrap());
    let url = database.url.replace('@', &format!("@{hosts}"));
    let schema = database.new_schema();
    let options = Options {
        connect_timeout: Duration::from_millis(500),
        ..with_url(&database.options(&schema), &url)
    };
    let store = Postgres::open(options).await.unwrap();
    assert_eq!(store.check_health().await, Ok(()));
    database.drop_schemas().await;
}

/// Returns an address on which nothing listens.
fn closed_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_verifies_the_server() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.cert.der().clone()],
            PrivateKeyDer::from(key),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let proxy = Proxy::with_tls(database.address(), acceptor).await;
    let schema = database.new_schema();
    let options = database.options(&schema);
    let host = format!("localhost:{}", proxy.address.port());
    let url = database.url.replace(&database.address().to_string(), &host);
    let url = url.replace("sslmode=disable", "sslmode=require");
    let message = refusal(with_url(&options, &url)).await;
    assert!(
        message.starts_with(&format!(
            "the TLS handshake with postgres://postgres@{host}/postgres failed: "
        )),
        "{message}"
    );
    assert!(message.contains("name the authority of the server's certificate in store.ca"));
    let tls = ClientTls::new()
        .authority(certificate.cert.pem().as_bytes())
        .unwrap();
    let trusting = Options {
        tls,
        ..with_url(&options, &url)
    };
    let store = Postgres::open(trusting.clone()).await.unwrap();
    assert_eq!(store.check_health().await, Ok(()));
    // The certificate does not contain the address.
    let url = url.replace("localhost", "127.0.0.1");
    let message = refusal(with_url(&trusting, &url)).await;
    assert!(message.contains("the TLS handshake with"), "{message}");
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsuitable_servers_are_reported() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = database.new_schema();
    let old = Proxy::rewriting(
        database.address(),
        "current_setting('server_version_num')",
        "(130018)",
    )
    .await;
    let message = refusal(database.options_through(&schema, old.address)).await;
    assert!(message.contains(" is PostgreSQL "), "{message}");
    assert!(
        message.ends_with("and version 14 or newer is needed: upgrade the server"),
        "{message}"
    );
    let pool = Proxy::rewriting(database.address(), "SELECT pg_backend_pid()", "SELECT 7").await;
    let message = refusal(database.options_through(&schema, pool.address)).await;
    assert!(
        message.ends_with(
            " is a pool that changes the session between statements: use a session pool or a direct connection"
        ),
        "{message}"
    );
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_without_rights_are_reported() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = database.new_schema();
    let role = format!("{schema}_role");
    database
        .execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'"))
        .await;
    let url = format!(
        "postgres://{role}:pw@{}/postgres?sslmode=disable",
        database.address()
    );
    let options = with_url(&database.options(&schema), &url);
    let message = refusal(options.clone()).await;
    assert_eq!(
        message,
        format!(
            "the role {role:?} lacks a right on {}: permission denied for database postgres; make it the owner of the schema: CREATE \
             SCHEMA {schema} AUTHORIZATION \"{role}\"",
            options.url
        )
    );
    // The fix of the message works.
    database
        .execute(&format!("CREATE SCHEMA {schema} AUTHORIZATION {role}"))
        .await;
    let store = Postgres::open(options.clone()).await.unwrap();
    store.leave_cluster().await.unwrap();
    database
        .execute(&format!(
            "ALTER ROLE {role} SET default_transaction_read_only = on"
        ))
        .await;
    let error = Postgres::open(options.clone()).await.unwrap_err();
    assert!(error.is_transient());
    assert_eq!(
        error.to_string(),
        format!(
            "{} is read-only: it is a standby, or default_transaction_read_only is on; name the primary, or all hosts, in the URL",
            options.url
        )
    );
    database
        .execute(&format!(
            "ALTER ROLE {role} RESET default_transaction_read_only; ALTER ROLE {role} CONNECTION LIMIT 0"
        ))
        .await;
    let error = Postgres::open(options.clone()).await.unwrap_err();
    assert!(error.is_transient());
    assert_eq!(
        error.to_string(),
        format!(
            "{} has no free connection: a replica needs 8; raise max_connections or the limit of the role, or lower store.readers \
             and store.writers",
            options.url
        )
    );
    drop(store);
    database
        .execute(&format!(
            "DROP SCHEMA {schema} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_foreign_and_missing_schemas_are_reported() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = database.new_schema();
    let options = database.options(&schema);
    let never = Options {
        migrate: Migrate::Never,
        ..options.clone()
    };
    assert_eq!(
        refusal(never.clone()).await,
        format!(
            "{} has no tables yet and store.migrate is \"never\": run `attache db migrate`",
            options.url
        )
    );
    assert_eq!(migrate(options.clone()).await.unwrap(), (0, 1));
    assert_eq!(migrate(options.clone()).await.unwrap(), (1, 1));
    Postgres::open(never).await.unwrap();
    let set = |change: &str| format!("UPDATE {schema}.meta SET {change}");
    database
        .execute(&set("schema_version = 9, compatible_since = 1"))
        .await;
    Postgres::open(options.clone()).await.unwrap();
    database.execute(&set("compatible_since = 8")).await;
    assert_eq!(
        refusal(options.clone()).await,
        "the database has schema version 9 and needs a program that knows at least 8; this program knows 1: use the newer program"
    );
    database
        .execute(&set(
            "schema_version = 1, compatible_since = 1, format_level = 7",
        ))
        .await;
    assert_eq!(
        refusal(options.clone()).await,
        "the database has log format 7, and this program reads formats up to 1: use the newer program"
    );
    let foreign = database.new_schema();
    database
        .execute(&format!(
            "CREATE SCHEMA {foreign}; CREATE TABLE {foreign}.orders (id int)"
        ))
        .await;
    assert_eq!(
        refusal(database.options(&foreign)).await,
        format!("the schema {foreign} has tables of another program: choose another schema")
    );
    let wrong = Options {
        schema: "Tasks".to_owned(),
        ..options
    };
    assert_eq!(
        refusal(wrong).await,
        "\"Tasks\" cannot be the name of a schema: use 1 to 63 lower-case letters, digits and underscores, and begin with a letter"
    );
    database.drop_schemas().await;
}

fn new_task(id: &str, config: Option<Box<PushRegistration>>) -> NewTask {
    let batch = Batch {
        time: Timestamp::default(),
        events: vec![crate::model::Event::Ignored {
            reason: String::new(),
        }],
        state: TaskState::Working,
        status_time: Timestamp::default(),
        parked: false,
        key: None,
        turn: 0,
        writer: WriterRole::Holder,
    };
    NewTask {
        id: id.into(),
        scope: Scope {
            agent: "agent".into(),
            tenant: "".into(),
            owner: Caller::new("ann"),
        },
        context_id: "context".into(),
        alias: None,
        config,
        batch,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_webhook_key_is_refused() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = database.new_schema();
    let options = database.options(&schema);
    let other = Options {
        webhook_key: WebhookKey::random().unwrap(),
        ..options.clone()
    };
    let message = "the webhooks in the database are encrypted with another key: give every replica the same store.webhook_key";
    let store = Postgres::open(options.clone()).await.unwrap();
    // A live replica has the first key.
    assert_eq!(refusal(other.clone()).await, message);
    store.leave_cluster().await.unwrap();
    let store = Postgres::open(other.clone()).await.unwrap();
    let config = PushConfig {
        id: Some("hook".into()),
        ..PushConfig::new("http://example.com")
    };
    let registration = PushRegistration {
        config,
        version: Version::V1,
    };
    let created = store
        .create(&new_task("a", Some(Box::new(registration))))
        .await;
    created.unwrap();
    store.leave_cluster().await.unwrap();
    assert_eq!(refusal(options).await, message);
    Postgres::open(other).await.unwrap();
    assert_eq!(
        WebhookKey::from_base64("c2hvcnQ=").unwrap_err().to_string(),
        "the webhook key is not 32 bytes in base64: create one with `attache db key` and give every replica the same"
    );
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_and_a_read_only_database_are_reported_at_run_time() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = database.new_schema();
    let store = database.open(&schema).await;
    for (state, problem) in [
        ("53100", HealthProblem::Full),
        ("25006", HealthProblem::ReadOnly),
        ("42501", HealthProblem::ReadOnly),
        ("53200", HealthProblem::Failing),
    ] {
        database
            .execute(&format!(
                "SET search_path = {schema};
                 CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql
                     AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$;
                 CREATE TRIGGER fail BEFORE INSERT ON task EXECUTE FUNCTION fail();
                 CREATE TRIGGER fail BEFORE INSERT ON scheduled_job EXECUTE FUNCTION fail();"
            ))
            .await;
        let failed = store.create(&new_task(state, None)).await;
        assert!(matches!(failed, Err(Error::Failed(_))), "{failed:?}");
        assert_eq!(store.check_health().await, Err(problem), "{state}");
        database
            .execute(&format!(
                "SET search_path = {schema}; DROP FUNCTION fail CASCADE"
            ))
            .await;
        assert_eq!(store.check_health().await, Ok(()), "{state}");
        store.create(&new_task(state, None)).await.unwrap();
    }
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_open_together_create_the_schema_once() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    for _ in 0..10 {
        let schema = database.new_schema();
        let mut opens = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let options = database.options(&schema);
            opens.spawn(async move { Postgres::open(options).await.map(drop) });
        }
        for opened in opens.join_all().await {
            opened.unwrap();
        }
    }
    database.drop_schemas().await;
}
