//! Statement that stays prepared for the lifetime of the writer.

use rusqlite::{CachedStatement, Connection, Params};

/// SQL statement that is prepared on first use and then reused, without a lookup in the statement cache.
pub(super) struct PreparedStatement<'a> {
    sql: &'static str,
    statement: Option<CachedStatement<'a>>,
}

impl<'a> PreparedStatement<'a> {
    pub(super) fn new(sql: &'static str) -> Self {
        Self {
            sql,
            statement: None,
        }
    }

    /// Executes the statement and returns the number of changed rows.
    pub(super) fn execute(
        &mut self,
        connection: &'a Connection,
        values: impl Params,
    ) -> rusqlite::Result<usize> {
        let statement = match &mut self.statement {
            Some(statement) => statement,
            none => none.insert(connection.prepare_cached(self.sql)?),
        };
        let changed = statement.execute(values);
        // Frees the copies of the bound values, which may be large.
        statement.clear_bindings();
        changed
    }
}
