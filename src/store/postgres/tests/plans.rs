//! Query plans: every statement uses its indexes, on young and on large tables.

use super::*;
use crate::store::postgres::session::{Connector, Purpose};
use crate::store::postgres::statement::{FILES, Sql, lists};

/// Indexes that the plan of each statement must name.
const REQUIRED: &[(&str, &[&str])] = &[
    (
        "append",
        &["task_pkey", "idempotency_key_pkey", "replica_pkey"],
    ),
    ("claim_job", &[]),
    ("count_ended", &["ended_task_counter_pkey"]),
    ("count_open_webhooks", &["scope_owner", "push_config_scope"]),
    ("count_tasks", &["task_open", "ended_task_counter_pkey"]),
    ("create", &["idempotency_key_pkey", "replica_pkey"]),
    ("database_size", &[]),
    ("delete_config", &["task_id", "push_config_task_id_key"]),
    ("delete_replicas", &["task_held", "push_config_open"]),
    ("ensure_scopes", &[]),
    ("evict", &["replica_pkey"]),
    ("expire_key", &["idempotency_key_pkey", "task_pkey"]),
    ("find", &["task_id", "task_alias"]),
    ("find_by_key", &["idempotency_key_pkey", "task_pkey"]),
    ("find_webhook", &["task_id", "push_config_task_id_key"]),
    ("first_rows", &["batch_pkey"]),
    ("heads_by_number", &["task_pkey"]),
    ("heartbeat", &["replica_pkey"]),
    ("join", &[]),
    ("latest_time", &["task_ended", "task_pkey"]),
    ("leave", &["task_held", "push_config_open", "replica_pkey"]),
    ("list_active_webhooks", &["push_config_active"]),
    ("list_configs", &["task_id", "push_config_task_id_key"]),
    ("list_ended", &["task_ended"]),
    ("list_failed_webhooks", &["push_config_failed"]),
    ("list_held", &["task_held"]),
    ("list_parked", &["task_parked"]),
    ("list_replicas", &["task_held"]),
    ("list_runnable", &["task_unfinished"]),
    ("list_unfinished", &["task_unfinished"]),
    ("load_snapshot", &["task_id", "snapshot_pkey"]),
    ("lock_tasks", &["task_pkey"]),
    ("merge_shards", &[]),
    ("positions", &["task_id"]),
    ("put_config", &["task_id"]),
    ("raise_format_level", &[]),
    ("read", &["task_id", "batch_pkey"]),
    ("read_many", &["task_id", "batch_pkey"]),
    ("record_delivery", &["push_config_pkey"]),
    (
        "remove",
        &[
            "task_pkey",
            "batch_pkey",
            "idempotency_key_task",
            "snapshot_pkey",
            "push_config_task_id_key",
        ],
    ),
    ("remove_keys", &["idempotency_key_created", "Tid Scan"]),
    ("removed_replicas", &[]),
    ("resolve_scopes", &["Index Scan using scope_"]),
    ("resolve_tasks", &["task_id"]),
    ("save_snapshot", &["task_id"]),
    ("set_agents", &["replica_pkey"]),
    ("take_over", &["task_held"]),
    ("take_over_unheld", &["task_held"]),
    ("take_over_unheld_webhooks", &["push_config_open"]),
    ("take_over_webhooks", &["push_config_open"]),
];

/// Statements for which several indexes cost the same while a table has one page. The server plans again after ANALYZE.
const TIES_ON_ONE_PAGE: &[&str] = &[
    "count_open_webhooks",
    "count_tasks",
    "delete_replicas",
    "leave",
    "take_over_webhooks",
];

/// Tables of which no statement may read everything.
const LARGE_TABLES: &[&str] = &[
    "task",
    "batch",
    "idempotency_key",
    "snapshot",
    "push_config",
    "scope",
];

/// Returns the plan that an open session uses for a statement, whatever its parameters are.
async fn plan(session: &session::Session, sql: &Sql) -> String {
    let parameters = (1..=30)
        .filter(|number| {
            let name = format!("${number}");
            sql.text.match_indices(&name).any(|(at, _)| {
                let after = sql.text[at + name.len()..].chars().next();
                !after.is_some_and(|after| after.is_ascii_digit())
            })
        })
        .count();
    session
        .batch(&format!("PREPARE plan AS {}", sql.text))
        .await
        .unwrap();
    let values = vec!["NULL"; parameters].join(", ");
    let values = if values.is_empty() {
        values
    } else {
        format!("({values})")
    };
    let explain = format!("EXPLAIN EXECUTE plan{values}");
    let messages = session.client().simple_query(&explain).await.unwrap();
    let lines = messages.iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan = lines.collect::<Vec<_>>().join("\n");
    session.batch("DEALLOCATE plan").await.unwrap();
    plan
}

async fn check_plans(connector: &Connector, tasks: usize) {
    let session = connector.connect(Purpose::Reader, None).await.unwrap();
    for sql in FILES.iter().chain(&lists()) {
        let plan = plan(&session, sql).await;
        let required = REQUIRED.iter().find(|(name, _)| *name == sql.name);
        let required = match required {
            Some((name, _)) if tasks < 100 && TIES_ON_ONE_PAGE.contains(name) => &[],
            Some((_, required)) => *required,
            None if tasks < 100 => &["Index Scan"],
            None if sql.text.contains("context =") => &["task_context"],
            None => &["task_list"],
        };
        for index in required {
            assert!(
                plan.contains(index),
                "{} without {index}:\n{plan}",
                sql.name
            );
        }
        for table in LARGE_TABLES {
            let scan = format!("Seq Scan on {table}");
            let has_scan = plan.lines().any(|line| {
                line.split_once(&scan)
                    .is_some_and(|(_, rest)| rest.starts_with(' ') || rest.is_empty())
            });
            assert!(!has_scan, "{} scans {table}:\n{plan}", sql.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_uses_its_indexes() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let schema = database.new_schema();
    let store = database.open(&schema).await;
    check_plans(&store.connector, 0).await;
    for tasks in [10, 100_000] {
        database
            .execute(&format!(
                "SET search_path = {schema};
                 INSERT INTO scope (agent, tenant, owner)
                     SELECT 'agent', '', number::text::bytea FROM generate_series(1, greatest(1, {tasks} / 97)) number
                     ON CONFLICT DO NOTHING;
                 INSERT INTO task (scope, position, status_time, holder, state, ended, parked, id, context, alias)
                     SELECT 1 + n % greatest(1, {tasks} / 97), 1, n, CASE WHEN n % 10 = 1 THEN n % 5 END, 3, n % 10 > 2, n % 10 = 2,
                         '{tasks}-' || n, (n / 3)::text::bytea, CASE WHEN n % 7 = 0 THEN n::text::bytea END
                     FROM generate_series(1, {tasks}) n;
                 INSERT INTO batch SELECT number, 0, 1, 'body' FROM task ON CONFLICT DO NOTHING;
                 INSERT INTO snapshot SELECT number, 1, 'body' FROM task WHERE number % 20 = 0 ON CONFLICT DO NOTHING;
                 INSERT INTO idempotency_key SELECT scope, number::text::bytea, 'digest', number, 1, status_time FROM task
                     WHERE number % 2 = 0 ON CONFLICT DO NOTHING;
                 INSERT INTO push_config (task, scope, id, body, position, delivery_state, holder)
                     SELECT number, scope, '', '', 0, number % 3, holder FROM task WHERE number % 4 = 0
                     ON CONFLICT DO NOTHING;
                 INSERT INTO ended_task_counter SELECT scope, state, 256, count(*) FROM task WHERE ended GROUP BY 1, 2
                     ON CONFLICT DO NOTHING;
                 ANALYZE;"
            ))
            .await;
        check_plans(&store.connector, tasks).await;
    }
    database.drop_schemas().await;
}
