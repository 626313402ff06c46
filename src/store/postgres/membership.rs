//! Membership of this replica in the cluster: heartbeats, evictions, takeovers, scheduled jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::error::{DatabaseError, OpenError};
use super::health::Health;
use super::row::{column, scoped_head_from_row, sql_limit, time_column, webhook_from_row};
use super::schema;
use super::session::{Connector, Parameter, Purpose, Session};
use super::statement::{self, Sql};
use crate::model::Timestamp;
use crate::store::failure_detector::FailureDetector;
use crate::store::secret_box::SecretBox;
use crate::store::{Head, HealthProblem, Heartbeat, Result, Webhook};

/// Client deadline of a heartbeat.
const HEARTBEAT_DEADLINE: Duration = Duration::from_secs(1);

/// Interval of the store's own jobs.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(60);

/// Membership of one replica.
pub(super) struct Membership {
    connector: Arc<Connector>,
    secrets: Arc<SecretBox>,
    health: Arc<Health>,
    /// Id of this replica; 0 if it is not a member.
    replica: Arc<AtomicI64>,
    state: Mutex<MembershipState>,
}

struct MembershipState {
    session: Option<Session>,
    /// Whether the schema was checked since the process started.
    is_prepared: bool,
    /// Last replica id of this process; 0 before the first join.
    joined: i64,
    agents: Vec<String>,
    detector: FailureDetector,
    /// Removed replicas that may still hold tasks or webhooks.
    removed: Vec<i64>,
    last_housekeeping: Option<Instant>,
    has_left: bool,
}

/// Row of the answer to a heartbeat.
struct ReplicaRow {
    id: i64,
    heartbeat: i64,
    is_live: bool,
}

/// Answer to a heartbeat.
struct HeartbeatAnswer {
    is_member: bool,
    replicas: Vec<ReplicaRow>,
    now: Timestamp,
    format_level: i16,
}

impl Membership {
    pub(super) fn new(
        connector: Arc<Connector>,
        secrets: Arc<SecretBox>,
        health: Arc<Health>,
        replica: Arc<AtomicI64>,
    ) -> Self {
        let state = MembershipState {
            session: None,
            is_prepared: false,
            joined: 0,
            agents: Vec::new(),
            detector: FailureDetector::new(connector.options().lease),
            removed: Vec::new(),
            last_housekeeping: None,
            has_left: false,
        };
        Self {
            connector,
            secrets,
            health,
            replica,
            state: Mutex::new(state),
        }
    }

    /// Returns the id of this replica; 0 if it is not a member.
    pub(super) fn replica(&self) -> i64 {
        self.replica.load(Ordering::Acquire)
    }

    /// Checks the database, joins and sends the first heartbeat.
    pub(super) async fn open(&self) -> std::result::Result<(), OpenError> {
        let mut state = self.state.lock().await;
        self.prepare(&mut state).await?;
        self.join(&mut state).await?;
        Ok(())
    }

    /// [`Store::heartbeat`](crate::store::Store::heartbeat)
    pub(super) async fn heartbeat(&self) -> Result<Heartbeat> {
        let mut state = self.state.lock().await;
        if state.has_left {
            return Err(DatabaseError::refused("this replica has left the cluster").into());
        }
        if !state.is_prepared {
            self.prepare(&mut state).await?;
        }
        if state.joined == 0 {
            self.join(&mut state).await?;
        } else if self.replica() == 0 {
            // A writer was refused, or the last heartbeat was.
            return Ok(self.leave_evicted(&mut state));
        }
        let sent = Instant::now();
        let answer = match self.send_heartbeat(&mut state).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%error, "the heartbeat failed");
                return Err(error.into());
            }
        };
        if !answer.is_member {
            return Ok(self.leave_evicted(&mut state));
        }
        let lease = self.connector.options().lease;
        if self.health.record_heartbeat(sent, lease) {
            self.connector.abandon_statements();
        }
        self.evict_silent(&mut state, &answer).await;
        self.start_housekeeping(&mut state);
        let live = answer
            .replicas
            .iter()
            .filter(|replica| replica.is_live && !state.removed.contains(&replica.id));
        Ok(Heartbeat::Member {
            replica: state.joined.unsigned_abs(),
            replicas: live.count(),
            has_orphans: !state.removed.is_empty(),
            format_level: u8::try_from(answer.format_level).unwrap_or(u8::MAX),
            database_time: answer.now,
        })
    }

    /// Ends the membership of an evicted replica. The next heartbeat joins under a new id.
    fn leave_evicted(&self, state: &mut MembershipState) -> Heartbeat {
        tracing::warn!(replica = state.joined, "evicted from the cluster");
        self.replica.store(0, Ordering::Release);
        state.joined = 0;
        Heartbeat::Evicted
    }

    /// Checks the database, and creates or migrates the schema.
    async fn prepare(&self, state: &mut MembershipState) -> std::result::Result<(), OpenError> {
        if state.is_prepared {
            return Ok(());
        }
        if let Err(error) = schema::prepare(&self.connector, &self.secrets).await {
            self.health.report(error.health_problem());
            return Err(error);
        }
        state.is_prepared = true;
        self.health.clear();
        Ok(())
    }

    /// Joins the cluster under a new id.
    async fn join(&self, state: &mut MembershipState) -> std::result::Result<(), OpenError> {
        let options = self.connector.options();
        let session = self.connector.connect(Purpose::Membership, None).await?;
        let version = schema::known_version();
        let parameters: [Parameter<'_>; 5] = [
            &options.replica_name,
            &env!("CARGO_PKG_VERSION"),
            &version,
            &schema::FORMAT_LEVEL,
            &state.agents,
        ];
        let client = session.client();
        let failed = |error| self.connector.open_error(error);
        let sent = Instant::now();
        // With a waiting commit: an id must not be given out twice, even if the server crashes.
        let begin = "BEGIN; SET LOCAL synchronous_commit TO DEFAULT";
        client.batch_execute(begin).await.map_err(failed)?;
        let row = client.query_opt(&*statement::JOIN.text, &parameters).await;
        let Some(row) = row.map_err(failed)? else {
            let sql = "SELECT format_level FROM meta";
            let row = client.query_one(sql, &[]).await.map_err(failed)?;
            return Err(OpenError::NewerFormat {
                found: row.get(0),
                known: schema::FORMAT_LEVEL,
            });
        };
        let replica: i64 = row.get(0);
        client.batch_execute("COMMIT").await.map_err(failed)?;
        self.connector.set_replica(replica);
        state.session = Some(session);
        state.joined = replica;
        state.detector = FailureDetector::new(options.lease);
        self.health.record_heartbeat(sent, options.lease);
        self.replica.store(replica, Ordering::Release);
        tracing::info!(replica, name = options.replica_name, "joined the cluster");
        Ok(())
    }

    async fn send_heartbeat(
        &self,
        state: &mut MembershipState,
    ) -> std::result::Result<HeartbeatAnswer, DatabaseError> {
        let sending = async {
            let session = self.take_session(state).await?;
            let rows = session
                .query(&statement::HEARTBEAT, &[&state.joined])
                .await?;
            let answer = HeartbeatAnswer::from_rows(&rows)?;
            state.session = Some(session);
            Ok(answer)
        };
        match timeout(HEARTBEAT_DEADLINE, sending).await {
            Ok(answer) => answer,
            // The session was dropped with the future.
            Err(_) => Err(DatabaseError::late()),
        }
    }

    /// Takes the open session, or opens one. The caller returns it after success: a call that is dropped or fails in the
    /// middle of a transaction closes it.
    async fn take_session(
        &self,
        state: &mut MembershipState,
    ) -> std::result::Result<Session, DatabaseError> {
        let open = state.session.take().filter(Session::is_usable);
        if let Some(session) = open {
            return Ok(session);
        }
        let connected = self.connector.connect(Purpose::Membership, None).await;
        connected.map_err(|error| {
            if !matches!(error.health_problem(), HealthProblem::Unreachable) {
                self.health.report(error.health_problem());
            }
            DatabaseError::lost(&error.to_string())
        })
    }

    /// Evicts silent replicas and records the removed ones.
    async fn evict_silent(&self, state: &mut MembershipState, answer: &HeartbeatAnswer) {
        let own = state.joined;
        let others: Vec<(i64, i64)> = answer
            .replicas
            .iter()
            .filter(|replica| replica.is_live && replica.id != own)
            .map(|replica| (replica.id, replica.heartbeat))
            .collect();
        state.removed = answer
            .replicas
            .iter()
            .filter(|replica| !replica.is_live)
            .map(|replica| replica.id)
            .collect();
        let now = tokio::time::Instant::now();
        for (silent, heartbeat) in state.detector.observe(now, &others) {
            let parameters: [Parameter<'_>; 2] = [&silent, &heartbeat];
            // A failed eviction is repeated with the next heartbeat.
            match self.commit(state, &statement::EVICT, &parameters).await {
                // It has sent a heartbeat, or another replica has evicted it.
                Ok(rows) if rows.is_empty() => {}
                Ok(_) => {
                    tracing::info!(replica = silent, "evicted a silent replica");
                    state.removed.push(silent);
                }
                Err(error) => tracing::warn!(%error, "an eviction failed"),
            }
        }
    }

    /// Runs a statement in a transaction whose commit is durable, unlike those of heartbeats.
    async fn commit(
        &self,
        state: &mut MembershipState,
        sql: &Sql,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, DatabaseError> {
        let session = self.take_session(state).await?;
        session
            .batch("BEGIN; SET LOCAL synchronous_commit TO DEFAULT")
            .await?;
        let rows = session.query(sql, parameters).await?;
        session.batch("COMMIT").await?;
        state.session = Some(session);
        Ok(rows)
    }

    /// [`Store::take_over`](crate::store::Store::take_over)
    pub(super) async fn take_over(&self, agents: &[Arc<str>], limit: usize) -> Result<Vec<Head>> {
        let mut state = self.state.lock().await;
        let replica = self.replica();
        let agents: Vec<&str> = agents.iter().map(|agent| &**agent).collect();
        let mut heads = Vec::new();
        for removed in holders(&state, replica) {
            let left = sql_limit(limit - heads.len());
            let rows = match removed {
                Some(removed) => {
                    let parameters: [Parameter<'_>; 4] = [&replica, &removed, &agents, &left];
                    self.commit(&mut state, &statement::TAKE_OVER, &parameters)
                        .await?
                }
                None => {
                    let parameters: [Parameter<'_>; 3] = [&replica, &agents, &left];
                    self.commit(&mut state, &statement::TAKE_OVER_UNHELD, &parameters)
                        .await?
                }
            };
            for row in &rows {
                heads.push(scoped_head_from_row(row, replica)?);
            }
            if heads.len() >= limit {
                break;
            }
        }
        if !heads.is_empty() {
            tracing::info!(tasks = heads.len(), "took tasks over");
        }
        Ok(heads)
    }

    /// [`Store::take_over_webhooks`](crate::store::Store::take_over_webhooks)
    pub(super) async fn take_over_webhooks(&self, limit: usize) -> Result<Vec<Webhook>> {
        let mut state = self.state.lock().await;
        let replica = self.replica();
        let mut webhooks = Vec::new();
        for removed in holders(&state, replica) {
            let left = sql_limit(limit - webhooks.len());
            let rows = match removed {
                Some(removed) => {
                    let parameters: [Parameter<'_>; 3] = [&replica, &removed, &left];
                    self.commit(&mut state, &statement::TAKE_OVER_WEBHOOKS, &parameters)
                        .await?
                }
                None => {
                    let parameters: [Parameter<'_>; 2] = [&replica, &left];
                    let sql = &statement::TAKE_OVER_UNHELD_WEBHOOKS;
                    self.commit(&mut state, sql, &parameters).await?
                }
            };
            for row in &rows {
                webhooks.push(webhook_from_row(row, replica, &self.secrets)?);
            }
            if webhooks.len() >= limit {
                break;
            }
        }
        webhooks.sort_by_key(|webhook| webhook.number);
        Ok(webhooks)
    }

    /// [`Store::leave_cluster`](crate::store::Store::leave_cluster)
    pub(super) async fn leave(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        state.has_left = true;
        let replica = self.replica.swap(0, Ordering::AcqRel);
        if replica == 0 {
            return Ok(());
        }
        self.commit(&mut state, &statement::LEAVE, &[&replica])
            .await?;
        tracing::info!(replica, "left the cluster");
        Ok(())
    }

    /// [`Store::set_agents`](crate::store::Store::set_agents)
    pub(super) async fn set_agents(&self, agents: &[Arc<str>]) -> Result<()> {
        let mut state = self.state.lock().await;
        state.agents = agents.iter().map(|agent| agent.to_string()).collect();
        let replica = self.replica();
        if replica == 0 {
            // The agents are part of the next join.
            return Ok(());
        }
        let agents = state.agents.clone();
        self.commit(&mut state, &statement::SET_AGENTS, &[&replica, &agents])
            .await?;
        Ok(())
    }

    /// [`Store::claim_job`](crate::store::Store::claim_job)
    pub(super) async fn claim_job(&self, job: &str, period: Duration) -> Result<bool> {
        let mut state = self.state.lock().await;
        let replica = self.replica();
        if replica == 0 {
            return Ok(false);
        }
        let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
        let session = self.take_session(&mut state).await?;
        let parameters: [Parameter<'_>; 3] = [&job, &period, &replica];
        let rows = session.query(&statement::CLAIM_JOB, &parameters).await?;
        state.session = Some(session);
        Ok(!rows.is_empty())
    }

    /// Runs the store's own jobs, once per period and on a connection of their own.
    fn start_housekeeping(&self, state: &mut MembershipState) {
        let is_due = state
            .last_housekeeping
            .is_none_or(|last| last.elapsed() >= HOUSEKEEPING_PERIOD);
        if !is_due {
            return;
        }
        state.last_housekeeping = Some(Instant::now());
        let job = Housekeeping {
            connector: Arc::clone(&self.connector),
            health: Arc::clone(&self.health),
            replica: state.joined,
        };
        self.connector.tracker().spawn(async move {
            if let Err(error) = job.run().await {
                tracing::warn!(%error, "housekeeping of the database failed");
            }
        });
    }
}

/// Returns the holders whose tasks and webhooks may be taken: no holder, then each removed replica.
fn holders(state: &MembershipState, replica: i64) -> Vec<Option<i64>> {
    if replica == 0 {
        return Vec::new();
    }
    let removed = state.removed.iter().copied().map(Some);
    std::iter::once(None).chain(removed).collect()
}

impl HeartbeatAnswer {
    fn from_rows(rows: &[Row]) -> std::result::Result<Self, DatabaseError> {
        let mut answer = Self {
            is_member: false,
            replicas: Vec::with_capacity(rows.len()),
            now: Timestamp::default(),
            format_level: 0,
        };
        for row in rows {
            answer.replicas.push(ReplicaRow {
                id: column(row, 0)?,
                heartbeat: column(row, 1)?,
                is_live: column(row, 2)?,
            });
            answer.is_member = column(row, 3)?;
            answer.now = time_column(row, 4)?;
            answer.format_level = column(row, 5)?;
        }
        Ok(answer)
    }
}

/// Jobs of the store itself: merging of counters, deletion of removed replicas, log format, size of the database.
struct Housekeeping {
    connector: Arc<Connector>,
    health: Arc<Health>,
    replica: i64,
}

impl Housekeeping {
    async fn run(&self) -> Result<()> {
        let session = self.connector.connect(Purpose::Setup, None).await?;
        if let Some(max_bytes) = self.connector.options().max_bytes {
            let rows = session.query(&statement::DATABASE_SIZE, &[]).await?;
            let size = rows.first().map(|row| column::<i64>(row, 0)).transpose()?;
            let is_over = size.is_some_and(|size| size.unsigned_abs() > max_bytes);
            self.health.set_almost_full(is_over);
        }
        let period = i64::try_from(HOUSEKEEPING_PERIOD.as_millis()).unwrap_or(i64::MAX);
        let parameters: [Parameter<'_>; 3] = [&"members", &period, &self.replica];
        if session
            .query(&statement::CLAIM_JOB, &parameters)
            .await?
            .is_empty()
        {
            return Ok(());
        }
        let rows = session.query(&statement::REMOVED_REPLICAS, &[]).await?;
        let has_removed = rows.first().map(|row| column::<bool>(row, 0)).transpose()?;
        if has_removed == Some(true) {
            session.execute(&statement::MERGE_SHARDS, &[]).await?;
            session.execute(&statement::DELETE_REPLICAS, &[]).await?;
        }
        session.execute(&statement::RAISE_FORMAT_LEVEL, &[]).await?;
        Ok(())
    }
}
