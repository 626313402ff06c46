//! `attache serve` on a PostgreSQL database: messages and exit codes of a start that fails.
//!
//! These tests need `ATTACHE_TEST_POSTGRES`, the URL of a superuser; `tests/postgres` starts such a server. Without the
//! variable they return early.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::harness::{DEADLINE, attache, call, run_expecting_error, send_text, serve_command};

/// Webhook key of the tests.
pub(crate) const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Schema of one test. It is dropped at the end.
pub(crate) struct TestDatabase {
    /// URL of the superuser.
    pub(crate) url: String,
    pub(crate) schema: String,
}

impl TestDatabase {
    /// Returns `None` if there is no server for tests.
    pub(crate) fn new() -> Option<Self> {
        let url = std::env::var("ATTACHE_TEST_POSTGRES").ok()?;
        Some(Self::at(url))
    }

    /// Returns a schema on another server than that of the tests.
    pub(crate) fn at(url: String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("p{}_{count}", std::process::id());
        Self { url, schema }
    }

    /// Host and port of the server.
    pub(crate) fn address(&self) -> &str {
        let (_, rest) = self.url.split_once('@').unwrap();
        rest.split_once('/').unwrap().0
    }

    /// URL of a role.
    fn url_of(&self, role: &str, password: &str) -> String {
        let address = self.address();
        format!("postgres://{role}:{password}@{address}/postgres?sslmode=disable")
    }

    /// Runs statements as the superuser.
    pub(crate) fn execute(&self, sql: &str) {
        self.query(sql);
    }

    /// Runs statements as the superuser, and returns the rows of all of them as texts.
    pub(crate) fn query(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
            let querying = async {
                let messages = client.simple_query(sql).await.unwrap();
                drop(client);
                messages
            };
            let (messages, _) = tokio::join!(querying, connection);
            let rows = messages.into_iter().filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            });
            let cell = |text: Option<&str>| text.map(str::to_owned);
            rows.map(|row| (0..row.len()).map(|column| cell(row.get(column))).collect())
                .collect()
        })
    }

    /// A command of the program with this database and the key of the tests.
    pub(crate) fn command(&self, args: &[&str], url: &str) -> Command {
        let mut command = attache(args);
        command
            .env("ATTACHE_STORE_URL", url)
            .env("ATTACHE_WEBHOOK_KEY", KEY);
        command
    }

    /// A configuration with an echo agent and the schema of this test.
    fn config(&self, folder: &TempDir) -> String {
        let file = folder.path().join("agents.toml");
        let text = format!(
            "[store]\nschema = \"{}\"\n[agents.echo]\ntype = \"echo\"\n",
            self.schema
        );
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    /// Starts a server on another URL, which must fail; returns its exit code and stderr.
    fn refused(&self, url: &str) -> (Option<i32>, String) {
        let folder = TempDir::new().unwrap();
        let config = self.config(&folder);
        let mut command = self.command(&["serve", &config, "--listen", "127.0.0.1:0"], url);
        let output = command
            .arg("--data-dir")
            .arg(folder.path())
            .env("RUST_LOG", "off")
            .output()
            .unwrap();
        assert!(output.stdout.is_empty(), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), stderr)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
        }
    }
}

/// Waits until a server has joined the cluster and serves calls.
pub(crate) fn wait_until_ready(url: &str) {
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let begun = Instant::now();
    loop {
        let mut connection = TcpStream::connect(host).unwrap();
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        if answer.starts_with("HTTP/1.1 200") {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "not ready: {answer}");
        std::thread::yield_now();
    }
}

/// Asserts that a start fails with this message and exit code 1, and prints no password.
fn assert_refused((code, stderr): (Option<i32>, String), message: &str) {
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains(message), "{stderr}");
    assert!(!stderr.contains("s3cret"), "{stderr}");
}

#[test]
fn a_server_on_postgres_answers_and_names_the_database() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let config = database.config(&folder);
    let mut command = database.command(&["serve", &config], &database.url);
    let server = serve_command(&mut command, folder);
    let url = server.line("Listening on ");
    server.line("Card: ");
    let tasks = server.line("Tasks: ");
    let expected = format!(
        "postgres://postgres@{}/postgres (schema {})",
        database.address(),
        database.schema
    );
    assert_eq!(tasks, expected);
    wait_until_ready(&url);
    let task = send_text(&url, "hello");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    let found = call(&url, "GetTask", &serde_json::json!({"id": task["id"]}));
    assert_eq!(found["result"]["id"], task["id"]);
    drop(server);
}

#[test]
fn start_errors_of_a_database_have_a_cause_and_a_fix() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let address = database.address();
    for (url, message) in [
        (
            "mysql://ann:s3cret@db/tasks".to_owned(),
            "ATTACHE_STORE_URL: store.url: the URL of the database is invalid: it must begin with postgres://".to_owned(),
        ),
        (
            database.url_of("postgres", "s3cret"),
            format!(
                "postgres://postgres@{address}/postgres refuses the login: password authentication failed for user \"postgres\"; \
                 check user and password"
            ),
        ),
        (
            database.url.replace("/postgres?", "/nowhere?"),
            "create it with CREATE DATABASE \"nowhere\"".to_owned(),
        ),
        (
            database.url.replace("sslmode=disable", ""),
            "does not offer TLS: enable it on the server, or add sslmode=disable".to_owned(),
        ),
    ] {
        assert_refused(database.refused(&url), &message);
    }
}

#[test]
fn a_role_without_rights_is_told_how_to_get_them() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = &database.schema;
    database.execute(&format!("CREATE ROLE {schema} LOGIN PASSWORD 's3cret'"));
    let url = database.url_of(schema, "s3cret");
    assert_refused(
        database.refused(&url),
        &format!(
            "make it the owner of the schema: CREATE SCHEMA {schema} AUTHORIZATION \"{schema}\""
        ),
    );
    database.execute(&format!("DROP ROLE {schema}"));
}

#[test]
fn r27_a_newer_schema_is_refused() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let config = database.config(&folder);
    let mut command = database.command(&["serve", &config], &database.url);
    let server = serve_command(&mut command, folder);
    server.line("Listening on ");
    drop(server);
    database.execute(&format!(
        "UPDATE {}.meta SET schema_version = 1000, compatible_since = 999",
        database.schema
    ));
    assert_refused(
        database.refused(&database.url),
        "the database has schema version 1000 and needs a program that knows at least 999",
    );
}

#[test]
fn a_missing_webhook_key_and_a_wrong_kind_are_refused_without_a_connection() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "[store]\nkind = \"postgres\"\nurl = \"postgres://ann:s3cret@127.0.0.1:1/tasks\"\n[agents.a]\ntype = \"echo\"\n";
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    for verb in ["serve", "check"] {
        let (code, stderr) = run_expecting_error(&[verb, path]);
        assert_refused(
            (code, stderr),
            "create one with `attache db key > webhook.key`",
        );
    }
    let (code, stderr) = run_expecting_error(&["serve", "--echo", "--store", "redis"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("a URL that begins with postgres://"),
        "{stderr}"
    );
    let (code, stderr) =
        run_expecting_error(&["serve", "--echo", "--store", "postgres:/ann:s3cret@x/y"]);
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn the_printed_configuration_has_no_password() {
    let mut command = attache(&["serve", "--echo", "--print-config"]);
    let url = "postgres://ann:s3cret@db.example/tasks";
    let output = command.env("ATTACHE_STORE_URL", url).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("url = \"postgres://ann:***@db.example/tasks\""),
        "{stdout}"
    );
    assert!(stdout.contains("kind = \"postgres\""), "{stdout}");
    assert!(!stdout.contains("s3cret"), "{stdout}");
}

/// pgbouncer in transaction mode, in front of the server of the tests.
struct Bouncer {
    process: std::process::Child,
    address: String,
    _folder: TempDir,
}

impl Bouncer {
    /// Returns `None` if the program is not installed.
    fn start(database: &TestDatabase) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())?;
        let folder = TempDir::new().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let (host, server_port) = database.address().split_once(':').unwrap();
        let credentials = database.url.strip_prefix("postgres://").unwrap();
        let (_, password) = credentials
            .split_once('@')
            .unwrap()
            .0
            .split_once(':')
            .unwrap();
        let ini = format!(
            "[databases]\npostgres = host={host} port={server_port} user=postgres password={password}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, ini).unwrap();
        let mut command = Command::new("setpriv");
        // It refuses to run as root, and reads its file as another user.
        if rustix::process::getuid().is_root() {
            use std::os::unix::fs::PermissionsExt;
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(folder.path(), open).unwrap();
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        }
        let process = command
            .arg(program)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{port}");
        let begun = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(begun.elapsed() < DEADLINE, "pgbouncer does not listen");
            std::thread::yield_now();
        }
        Some(Self {
            process,
            address,
            _folder: folder,
        })
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn pgbouncer_in_transaction_mode_is_refused() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let Some(bouncer) = Bouncer::start(&database) else {
        eprintln!("pgbouncer is not installed");
        return;
    };
    let url = format!(
        "postgres://postgres@{}/postgres?sslmode=disable",
        bouncer.address
    );
    assert_refused(
        database.refused(&url),
        "changes the session between statements: use a session pool or a direct connection",
    );
}
