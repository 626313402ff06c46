//! Lists, sweeps and counts of tasks.

use rusqlite::types::Value;
use rusqlite::{Connection, Rows, params, params_from_iter};

use super::read::scope_number;
use super::row::{
    HEAD_COLUMNS, count_column, head_from_row, scoped_head_from_row, sql_limit, state_column,
};
use crate::model::{Scope, TaskId, TaskState, Timestamp};
use crate::store::codec::state_number;
use crate::store::{Head, TaskCounts, TaskPage, TaskQuery};

/// Lists one page of a scope, and counts all matches in the same read transaction.
pub(super) fn list(
    connection: &mut Connection,
    scope: &Scope,
    query: &TaskQuery,
) -> rusqlite::Result<TaskPage> {
    let transaction = connection.transaction()?;
    let Some(number) = scope_number(&transaction, scope)? else {
        return Ok(TaskPage::default());
    };
    let filters = ListFilter::for_query(number, query);
    let total = total(&transaction, number, query, &filters)?;
    let mut tasks = Vec::new();
    for filter in filters {
        let (sql, values) = filter.into_page(query);
        let mut statement = transaction.prepare_cached(&sql)?;
        let heads = statement.query_map(params_from_iter(values), |row| {
            head_from_row(row, scope.clone())
        })?;
        for head in heads {
            tasks.push(head?);
        }
    }
    tasks.sort_unstable_by(|one: &Head, other| {
        (other.status_time, &other.id).cmp(&(one.status_time, &one.id))
    });
    tasks.truncate(query.limit);
    Ok(TaskPage { tasks, total })
}

/// Counts the matches: from the counters of `task_count` if only the state is filtered, else from the index.
fn total(
    connection: &Connection,
    scope: i64,
    query: &TaskQuery,
    filters: &[ListFilter],
) -> rusqlite::Result<u64> {
    if query.context_id.is_none() && query.since.is_none() {
        let mut statement =
            connection.prepare_cached("SELECT state, tasks FROM task_count WHERE scope = ?1")?;
        let counts = statement.query([scope])?;
        return sum_counts(counts, |state| {
            query.state.is_none_or(|wanted| wanted == state)
        });
    }
    let mut total = 0;
    for filter in filters {
        let mut statement = connection.prepare_cached(&filter.select("count(*)"))?;
        let values = params_from_iter(&filter.values);
        total += statement.query_row(values, |row| count_column(row, 0))?;
    }
    Ok(total)
}

/// Sums counters over the states that pass `includes`. Each row is a state and its counter.
fn sum_counts(mut counts: Rows<'_>, includes: impl Fn(TaskState) -> bool) -> rusqlite::Result<u64> {
    let mut total = 0;
    while let Some(row) = counts.next()? {
        if includes(state_column(row, 0)?) {
            total += count_column(row, 1)?;
        }
    }
    Ok(total)
}

/// SQL of a [`TaskQuery`] without its cursor: one search of an index.
///
/// Every query names its index, because SQLite has no statistics to choose one by.
pub(super) struct ListFilter {
    from: String,
    values: Vec<Value>,
}

impl ListFilter {
    /// Returns the searches of a query. A list of a whole scope searches every state: an index without the state would
    /// cost each new task one more page.
    pub(super) fn for_query(scope: i64, query: &TaskQuery) -> Vec<Self> {
        if query.context_id.is_some() || query.state.is_some() {
            return vec![Self::new(scope, query, query.state)];
        }
        let states = TaskState::ALL.into_iter().chain([TaskState::Unspecified]);
        states
            .map(|state| Self::new(scope, query, Some(state)))
            .collect()
    }

    fn new(scope: i64, query: &TaskQuery, state: Option<TaskState>) -> Self {
        let index = match query.context_id {
            Some(_) => "task_by_context",
            None => "task_by_state",
        };
        let mut filter = Self {
            from: format!("FROM task INDEXED BY {index} WHERE scope = ?"),
            values: vec![Value::Integer(scope)],
        };
        if let Some(context_id) = &query.context_id {
            filter.and("context = ?", context_id.to_string());
        }
        if let Some(state) = state {
            filter.and("state = ?", i64::from(state_number(state)));
        }
        if let Some(since) = query.since {
            filter.and("status_time >= ?", since.as_millis());
        }
        filter
    }

    fn and(&mut self, condition: &str, value: impl Into<Value>) {
        self.from.push_str(" AND ");
        self.from.push_str(condition);
        self.values.push(value.into());
    }

    pub(super) fn select(&self, columns: &str) -> String {
        format!("SELECT {columns} {}", self.from)
    }

    /// Converts the filter into the SQL and the parameters of one page.
    pub(super) fn into_page(mut self, query: &TaskQuery) -> (String, Vec<Value>) {
        if let Some((time, id)) = &query.after {
            self.and("(status_time, id) < (?, ?)", time.as_millis());
            self.values.push(id.to_string().into());
        }
        self.values.push(sql_limit(query.limit).into());
        (
            format!(
                "{} ORDER BY status_time DESC, id DESC LIMIT ?",
                self.select(HEAD_COLUMNS)
            ),
            self.values,
        )
    }
}

/// Lists tasks that have not ended, by id.
pub(super) fn list_unfinished(
    connection: &Connection,
    after: Option<&TaskId>,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    list_by_id(
        connection,
        "INDEXED BY task_unfinished",
        "has_ended = 0",
        after,
        limit,
    )
}

/// Lists tasks that have not ended and are not parked, by id.
pub(super) fn list_runnable(
    connection: &Connection,
    after: Option<&TaskId>,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    list_by_id(
        connection,
        "INDEXED BY task_runnable",
        "has_ended = 0 AND is_parked = 0",
        after,
        limit,
    )
}

fn list_by_id(
    connection: &Connection,
    index: &str,
    condition: &str,
    after: Option<&TaskId>,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    let cursor = if after.is_some() {
        "AND task.id > ?2"
    } else {
        ""
    };
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, agent, tenant, owner FROM task {index}
         JOIN scope ON scope.number = task.scope WHERE {condition} {cursor} ORDER BY task.id LIMIT ?1"
    );
    let mut values = vec![Value::Integer(sql_limit(limit))];
    values.extend(after.map(|id| Value::Text(id.to_string())));
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map(params_from_iter(values), scoped_head_from_row)?
        .collect()
}

/// Lists the parked tasks of a scope, oldest status first.
pub(super) fn list_parked(
    connection: &Connection,
    scope: &Scope,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    let Some(number) = scope_number(connection, scope)? else {
        return Ok(Vec::new());
    };
    let sql = format!(
        "SELECT {HEAD_COLUMNS} FROM task INDEXED BY task_parked
         WHERE has_ended = 0 AND is_parked = 1 AND scope = ?1 ORDER BY status_time LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map([number, sql_limit(limit)], |row| {
            head_from_row(row, scope.clone())
        })?
        .collect()
}

/// Returns the later status time of the task created last and the task ended last. Both are index lookups.
pub(super) fn latest_time(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let sql = "SELECT max(time) FROM (
                 SELECT max(status_time) AS time FROM task INDEXED BY task_ended WHERE has_ended = 1 UNION ALL
                 SELECT status_time FROM task WHERE number = (SELECT max(number) FROM task))";
    let millis: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row((), |row| row.get(0))?;
    Ok(millis.and_then(Timestamp::from_millis))
}

/// Lists tasks that ended before a time, oldest first.
pub(super) fn list_ended(
    connection: &Connection,
    before: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, agent, tenant, owner FROM task INDEXED BY task_ended
         JOIN scope ON scope.number = task.scope WHERE has_ended = 1 AND status_time < ?1
         ORDER BY status_time LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map(
            params![before.as_millis(), sql_limit(limit)],
            scoped_head_from_row,
        )?
        .collect()
}

/// Counts ended tasks.
pub(super) fn count_ended(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT state, sum(tasks) FROM task_count GROUP BY state";
    let mut statement = connection.prepare_cached(sql)?;
    sum_counts(statement.query(())?, TaskState::is_terminal)
}

/// Counts the tasks of one agent and tenant over all owners.
pub(super) fn count_tasks(
    connection: &Connection,
    agent: &str,
    tenant: &str,
) -> rusqlite::Result<TaskCounts> {
    let sql = "SELECT state, sum(tasks) FROM scope CROSS JOIN task_count
         WHERE agent = ?1 AND tenant = ?2 AND task_count.scope = scope.number GROUP BY state";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([agent, tenant])?;
    let mut counts = TaskCounts::default();
    while let Some(row) = rows.next()? {
        let state = state_column(row, 0)?;
        let tasks = count_column(row, 1)?;
        counts.total += tasks;
        if !state.is_terminal() {
            counts.open += tasks;
        }
    }
    Ok(counts)
}
