//! Connections: one open connection with its prepared statements, and the factory of connections.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::TaskTracker;

use super::error::{DatabaseError, OpenContext, OpenError};
use super::options::Options;
use super::statement::Sql;
use crate::rt::lock;

/// Parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

type Result<T> = std::result::Result<T, DatabaseError>;

/// How much longer than the server the client waits for an answer.
const ANSWER_DELAY: Duration = Duration::from_secs(2);

/// Interval of keep-alive probes, and how long sent data may stay unacknowledged.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);

/// Job of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Checks and migrations when the store is opened.
    Setup,
    /// Group commits.
    Writer,
    /// Reads.
    Reader,
    /// Heartbeats and takeovers.
    Membership,
    /// LISTEN and NOTIFY.
    Bus,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Membership => "membership",
            Self::Bus => "bus",
        }
    }

    /// Whether losing its last commits in a crash of the server is harmless.
    fn commits_asynchronously(self) -> bool {
        matches!(self, Self::Membership | Self::Bus)
    }
}

/// Opens connections.
pub(super) struct Connector {
    /// One for each host.
    configs: Vec<Config>,
    tls: MakeRustlsConnect,
    options: Options,
    tracker: TaskTracker,
    /// Id of this replica for the names of connections; 0 before it has joined.
    replica: AtomicI64,
    /// Changes when statements in flight are to be abandoned.
    resets: watch::Sender<u64>,
}

impl Connector {
    /// Prepares connections. Reads the trusted certificate authorities.
    pub(super) async fn new(options: Options) -> std::result::Result<Self, OpenError> {
        let mut configs = options.url.configs();
        for config in &mut configs {
            config
                .connect_timeout(options.connect_timeout)
                .tcp_user_timeout(TCP_TIMEOUT)
                .keepalives_idle(TCP_TIMEOUT)
                .keepalives_interval(TCP_TIMEOUT);
        }
        let tls = tls_config(&options).await?;
        Ok(Self {
            configs,
            tls: MakeRustlsConnect::new(tls),
            options,
            tracker: TaskTracker::new(),
            replica: AtomicI64::new(0),
            resets: watch::Sender::new(0),
        })
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the tracker of the background tasks of the store.
    pub(super) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    pub(super) fn set_replica(&self, replica: i64) {
        self.replica.store(replica, Ordering::Relaxed);
    }

    /// Abandons the statements in flight on all sessions. Without it, TCP would retry for minutes after a partition.
    pub(super) fn abandon_statements(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }

    /// Opens a connection to the first host that accepts it. `notifications` receives the payloads of NOTIFY.
    ///
    /// # Errors
    /// The error of the last host.
    pub(super) async fn connect(
        &self,
        purpose: Purpose,
        notifications: Option<mpsc::Sender<String>>,
    ) -> std::result::Result<Session, OpenError> {
        let mut failed = None;
        for config in &self.configs {
            let connecting = self.connect_host(config, purpose, notifications.clone());
            match timeout(self.options.connect_timeout, connecting).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => failed = Some(self.open_error(error)),
                Err(_) => failed = Some(OpenError::timed_out(&self.options.url)),
            }
        }
        Err(failed.unwrap_or_else(|| OpenError::timed_out(&self.options.url)))
    }

    async fn connect_host(
        &self,
        config: &Config,
        purpose: Purpose,
        notifications: Option<mpsc::Sender<String>>,
    ) -> std::result::Result<Session, tokio_postgres::Error> {
        let (client, connection) = config.connect(self.tls.clone()).await?;
        // Before the first statement: the connection answers it.
        let driver = self.tracker.spawn(drive(connection, notifications));
        let session = Session {
            client,
            statements: Mutex::default(),
            driver: driver.abort_handle(),
            is_late: AtomicBool::new(false),
            deadline: self.options.statement_timeout + ANSWER_DELAY,
            resets: self.resets.subscribe(),
        };
        session
            .client
            .batch_execute(&self.settings(purpose))
            .await?;
        Ok(session)
    }

    /// Classifies an error of the first statements.
    pub(super) fn open_error(&self, error: tokio_postgres::Error) -> OpenError {
        let context = OpenContext {
            url: &self.options.url,
            schema: &self.options.schema,
            connections: self.options.connections(),
        };
        OpenError::new(&context, error)
    }

    /// Returns the statements that follow a connect. Startup options would be shorter, but some proxies refuse them.
    ///
    /// Generic plans and no sequential scans: a plan made for an empty table must not stay.
    fn settings(&self, purpose: Purpose) -> String {
        let options = &self.options;
        let mut settings = format!(
            "SET search_path = \"{schema}\"; SET jit = off; SET timezone = 'UTC';
             SET default_transaction_isolation = 'read committed'; SET lock_timeout = {lock};
             SET statement_timeout = {statement}; SET idle_in_transaction_session_timeout = {statement};
             SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
             SET application_name = 'attache/{replica}/{purpose}';",
            schema = options.schema,
            lock = options.lock_timeout.as_millis(),
            statement = options.statement_timeout.as_millis(),
            replica = self.replica.load(Ordering::Relaxed),
            purpose = purpose.name(),
        );
        if purpose.commits_asynchronously() {
            settings.push_str(" SET synchronous_commit = off;");
        }
        settings
    }
}

/// Builds the TLS configuration of the driver.
async fn tls_config(options: &Options) -> std::result::Result<ClientConfig, OpenError> {
    let failed = |source| OpenError::Tls {
        url: Box::new(options.url.clone()),
        is_unsupported: false,
        source,
    };
    if !options.url.uses_tls() {
        // The driver needs a configuration but does not use it.
        let config = options.tls.config(RootCertStore::empty());
        return config.map_err(|error| failed(error.into()));
    }
    let tls = options.tls.clone();
    let config = spawn_blocking(move || tls.client_config()).await;
    config
        .map_err(|error| failed(error.into()))?
        .map_err(failed)
}

/// Drives a connection until it ends. Notifications that do not fit into the channel are dropped.
async fn drive<S, T>(mut connection: Connection<S, T>, notifications: Option<mpsc::Sender<String>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(message), Some(notifications)) =
            (message, &notifications)
        {
            // A full channel means that messages are lost, which the contract of notifications allows.
            let _ = notifications.try_send(message.payload().to_owned());
        }
    }
}

/// Open connection. Statements of concurrent callers are pipelined. Dropping it closes the connection at once.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    statements: Mutex<HashMap<Cow<'static, str>, Statement>>,
    driver: AbortHandle,
    /// Whether an answer was late or abandoned. Statements in flight have an unknown outcome then.
    is_late: AtomicBool,
    deadline: Duration,
    resets: watch::Receiver<u64>,
}

impl Drop for Session {
    fn drop(&mut self) {
        // The driver would wait for answers to statements in flight.
        self.driver.abort();
    }
}

impl Session {
    /// Returns whether the connection accepts statements.
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.is_late.load(Ordering::Relaxed)
    }

    /// Runs a statement and returns its rows.
    pub(super) async fn query(&self, sql: &Sql, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        self.answer(async {
            let statement = self.prepare(sql).await?;
            self.client.query(&statement, parameters).await
        })
        .await
    }

    /// Runs a statement and returns the number of affected rows.
    pub(super) async fn execute(&self, sql: &Sql, parameters: &[Parameter<'_>]) -> Result<u64> {
        self.answer(async {
            let statement = self.prepare(sql).await?;
            self.client.execute(&statement, parameters).await
        })
        .await
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<()> {
        self.answer(self.client.batch_execute(sql)).await
    }

    /// Returns the driver's client, for the first statements of a connection and for COPY.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Awaits an answer until the deadline of the client.
    async fn answer<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let mut resets = self.resets.clone();
        resets.mark_unchanged();
        let answered = tokio::select! {
            biased;
            answered = timeout(self.deadline, answer) => answered,
            _ = resets.changed() => {
                self.is_late.store(true, Ordering::Relaxed);
                return Err(DatabaseError::lost("the statement was abandoned after a partition"));
            }
        };
        match answered {
            Ok(answered) => answered.map_err(DatabaseError::new),
            Err(_) => {
                self.is_late.store(true, Ordering::Relaxed);
                Err(DatabaseError::late())
            }
        }
    }

    /// Prepares a statement, or returns the prepared one.
    async fn prepare(&self, sql: &Sql) -> std::result::Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = lock(&self.statements).get(&sql.name) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql.text).await?;
        lock(&self.statements).insert(sql.name.clone(), statement.clone());
        Ok(statement)
    }
}

/// Session that is opened on first use and again after a loss. A failed attempt is not repeated for a while.
pub(super) struct SessionSlot {
    connector: Arc<Connector>,
    purpose: Purpose,
    state: tokio::sync::Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    session: Option<Arc<Session>>,
    failed: Option<(tokio::time::Instant, String)>,
}

/// How long a failed attempt to connect answers further calls.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);

impl SessionSlot {
    pub(super) fn new(connector: Arc<Connector>, purpose: Purpose) -> Self {
        Self {
            connector,
            purpose,
            state: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the open session, or opens one.
    pub(super) async fn get(&self) -> Result<Arc<Session>> {
        let mut state = self.state.lock().await;
        if let Some(session) = &state.session
            && session.is_usable()
        {
            return Ok(Arc::clone(session));
        }
        if let Some((at, message)) = &state.failed
            && at.elapsed() < RECONNECT_PAUSE
        {
            return Err(DatabaseError::lost(message));
        }
        state.session = None;
        match self.connector.connect(self.purpose, None).await {
            Ok(session) => {
                let session = Arc::new(session);
                state.session = Some(Arc::clone(&session));
                state.failed = None;
                Ok(session)
            }
            Err(error) => {
                let message = error.to_string();
                state.failed = Some((tokio::time::Instant::now(), message.clone()));
                Err(DatabaseError::lost(&message))
            }
        }
    }

    /// Closes the session.
    pub(super) async fn close(&self) {
        self.state.lock().await.session = None;
    }
}
