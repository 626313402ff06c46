//! Audit log: writes, views of hidden content, links and refusals of operators.
//!
//! Records are in the log of the process (target `attache::audit`) and, for the console, in memory.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde::Serialize;

use super::operator::Operator;
use crate::model::Timestamp;
use crate::rt::lock;

/// Maximum number of records in memory.
const MAX_RECORDS: usize = 10_000;

/// Record of one action.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct AuditRecord {
    /// Number of the record, ascending.
    pub(super) number: u64,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub(super) time: Timestamp,
    /// `key:ann`, `link`, `socket`, or `-` if there is none.
    pub(super) operator: String,
    /// `socket` or `tcp`.
    pub(super) listener: &'static str,
    /// Such as `task.cancel`.
    pub(super) action: &'static str,
    /// Object of the action; empty if there is none.
    pub(super) target: String,
    pub(super) outcome: AuditOutcome,
    pub(super) detail: String,
}

/// Result of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) enum AuditOutcome {
    Ok,
    Refused,
    Failed,
}

/// Action to record.
pub(super) struct AuditEntry<'a> {
    pub(super) time: Timestamp,
    pub(super) operator: Option<&'a Operator>,
    pub(super) action: &'static str,
    pub(super) target: &'a str,
    pub(super) outcome: AuditOutcome,
    pub(super) detail: &'a str,
}

/// Newest records.
#[derive(Default)]
pub(super) struct AuditLog(Mutex<AuditTable>);

#[derive(Default)]
struct AuditTable {
    records: VecDeque<AuditRecord>,
    last_number: u64,
}

/// Filter of [`AuditLog::list`].
#[derive(Default)]
pub(super) struct AuditFilter<'a> {
    pub(super) operator: Option<&'a str>,
    pub(super) action: Option<&'a str>,
    /// Only records with a lower number.
    pub(super) before: Option<u64>,
}

impl AuditLog {
    /// Adds a record. The oldest one is dropped at the limit.
    pub(super) fn record(&self, entry: &AuditEntry<'_>) {
        let operator = entry.operator.map_or("-", |operator| &operator.name);
        let listener = entry
            .operator
            .map_or("tcp", |operator| operator.listener.name());
        tracing::info!(
            target: "attache::audit",
            operator,
            listener,
            action = entry.action,
            object = entry.target,
            outcome = ?entry.outcome,
            detail = entry.detail,
            "operator action"
        );
        let mut table = lock(&self.0);
        table.last_number += 1;
        let record = AuditRecord {
            number: table.last_number,
            time: entry.time,
            operator: operator.to_owned(),
            listener,
            action: entry.action,
            target: entry.target.to_owned(),
            outcome: entry.outcome,
            detail: entry.detail.to_owned(),
        };
        if table.records.len() >= MAX_RECORDS {
            table.records.pop_front();
        }
        table.records.push_back(record);
    }

    /// Returns at most `limit` records, newest first, and the number of all that match.
    pub(super) fn list(&self, filter: &AuditFilter<'_>, limit: usize) -> (Vec<AuditRecord>, usize) {
        let table = lock(&self.0);
        let matches = |record: &&AuditRecord| {
            filter.operator.is_none_or(|name| record.operator == name)
                && filter.action.is_none_or(|action| record.action == action)
        };
        let total = table.records.iter().filter(matches).count();
        let is_before =
            |record: &&AuditRecord| filter.before.is_none_or(|number| record.number < number);
        let page = table.records.iter().rev().filter(matches).filter(is_before);
        (page.take(limit).cloned().collect(), total)
    }
}
