//! SQL statements, one file each in `sql/`.

use std::borrow::Cow;
use std::sync::LazyLock;

/// SQL statement with a name, under which a session caches its prepared form.
#[derive(Debug, Clone)]
pub(super) struct Sql {
    pub(super) name: Cow<'static, str>,
    pub(super) text: Cow<'static, str>,
}

macro_rules! statements {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(super) const $constant: Sql = Sql {
            name: Cow::Borrowed($name),
            text: Cow::Borrowed(include_str!(concat!("sql/", $name, ".sql"))),
        };)*

        /// All statements of files.
        #[cfg(test)]
        pub(super) const FILES: &[Sql] = &[$($constant),*];
    };
}

statements! {
    APPEND = "append";
    CLAIM_JOB = "claim_job";
    COUNT_ENDED = "count_ended";
    COUNT_OPEN_WEBHOOKS = "count_open_webhooks";
    COUNT_TASKS = "count_tasks";
    CREATE = "create";
    DATABASE_SIZE = "database_size";
    DELETE_CONFIG = "delete_config";
    DELETE_REPLICAS = "delete_replicas";
    ENSURE_SCOPES = "ensure_scopes";
    EVICT = "evict";
    EXPIRE_KEY = "expire_key";
    FIND = "find";
    FIND_BY_KEY = "find_by_key";
    FIND_WEBHOOK = "find_webhook";
    FIRST_ROWS = "first_rows";
    HEADS_BY_NUMBER = "heads_by_number";
    HEARTBEAT = "heartbeat";
    JOIN = "join";
    LATEST_TIME = "latest_time";
    LEAVE = "leave";
    LIST_ACTIVE_WEBHOOKS = "list_active_webhooks";
    LIST_CONFIGS = "list_configs";
    LIST_ENDED = "list_ended";
    LIST_FAILED_WEBHOOKS = "list_failed_webhooks";
    LIST_HELD = "list_held";
    LIST_PARKED = "list_parked";
    LIST_REPLICAS = "list_replicas";
    LIST_RUNNABLE = "list_runnable";
    LIST_UNFINISHED = "list_unfinished";
    LOAD_SNAPSHOT = "load_snapshot";
    LOCK_TASKS = "lock_tasks";
    MERGE_SHARDS = "merge_shards";
    POSITIONS = "positions";
    PUT_CONFIG = "put_config";
    RAISE_FORMAT_LEVEL = "raise_format_level";
    READ = "read";
    READ_MANY = "read_many";
    RECORD_DELIVERY = "record_delivery";
    REMOVE = "remove";
    REMOVED_REPLICAS = "removed_replicas";
    REMOVE_KEYS = "remove_keys";
    RESOLVE_SCOPES = "resolve_scopes";
    RESOLVE_TASKS = "resolve_tasks";
    SAVE_SNAPSHOT = "save_snapshot";
    SET_AGENTS = "set_agents";
    TAKE_OVER = "take_over";
    TAKE_OVER_UNHELD = "take_over_unheld";
    TAKE_OVER_UNHELD_WEBHOOKS = "take_over_unheld_webhooks";
    TAKE_OVER_WEBHOOKS = "take_over_webhooks";
}

/// Filters of a list, as bits: each combination is a statement of its own, because a generic plan makes no index condition of
/// `$5 IS NULL OR …`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ListFilters {
    pub(super) has_context: bool,
    pub(super) has_state: bool,
    pub(super) has_since: bool,
    pub(super) has_cursor: bool,
}

impl ListFilters {
    fn from_bits(bits: usize) -> Self {
        Self {
            has_context: bits & 1 != 0,
            has_state: bits & 2 != 0,
            has_since: bits & 4 != 0,
            has_cursor: bits & 8 != 0,
        }
    }

    fn bits(self) -> usize {
        usize::from(self.has_context)
            | usize::from(self.has_state) << 1
            | usize::from(self.has_since) << 2
            | usize::from(self.has_cursor) << 3
    }

    /// Returns the statement. Parameters: agent, tenant, owner, limit, then those of the filters in the order of the fields.
    pub(super) fn statement(self) -> &'static Sql {
        static STATEMENTS: LazyLock<Vec<Sql>> = LazyLock::new(|| {
            (0..16)
                .map(|bits| ListFilters::from_bits(bits).build())
                .collect()
        });
        &STATEMENTS[self.bits()]
    }

    fn build(self) -> Sql {
        let mut parameters = 4;
        let mut next = || {
            parameters += 1;
            parameters
        };
        let mut filter = String::new();
        let mut state = String::new();
        if self.has_context {
            filter += &format!(" AND context = ${}", next());
        }
        if self.has_state {
            state = format!(" AND state = ${}", next());
            filter += &state;
        }
        if self.has_since {
            filter += &format!(" AND status_time >= ${}", next());
        }
        let total = if self.has_context || self.has_since {
            format!("(SELECT count(*) FROM task WHERE scope = (SELECT number FROM s){filter})")
        } else {
            // Ended tasks are counted by the writers; open tasks are bounded by quotas.
            format!(
                "(SELECT count(*) FROM task WHERE scope = (SELECT number FROM s) AND NOT ended{state})
                 + (SELECT coalesce(sum(tasks), 0) FROM ended_task_counter
                    WHERE scope = (SELECT number FROM s){state})::bigint"
            )
        };
        if self.has_cursor {
            let time = next();
            filter += &format!(" AND (status_time, id) < (${time}, ${})", next());
        }
        let text = format!(
            "WITH s AS MATERIALIZED (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3),
             total AS (SELECT {total} AS n)
             SELECT t.*, total.n FROM total LEFT JOIN LATERAL (
                 SELECT id, context, position, state, status_time, holder FROM task
                 WHERE scope = (SELECT number FROM s){filter}
                 ORDER BY status_time DESC, id DESC LIMIT $4
             ) t ON true"
        );
        Sql {
            name: format!("list_{}", self.bits()).into(),
            text: text.into(),
        }
    }
}

/// All statements of [`ListFilters`].
#[cfg(test)]
pub(super) fn lists() -> Vec<Sql> {
    (0..16)
        .map(|bits| ListFilters::from_bits(bits).statement().clone())
        .collect()
}
