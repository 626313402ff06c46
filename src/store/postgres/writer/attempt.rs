//! One attempt of a group on one session.

use std::collections::{HashMap, HashSet};

use futures::future::join;

use super::super::error::{DatabaseError, Failure};
use super::super::number_cache::TaskNumber;
use super::super::read::ordinal;
use super::super::row::{column, seq_column, sql_limit, sql_number, sql_text};
use super::super::session::{Parameter, Session};
use super::super::statement;
use super::super::write_command::{
    Answer, AppendWrite, Command, DeliveryUpdate, SingleWrite, TaskKey, Write,
};
use super::columns::{AppendColumns, CreateColumns, NumberedAppend, NumberedCreate, webhook_id};
use super::{MAX_CONTENTIONS, Writer};
use crate::model::{Scope, Seq, TaskId};
use crate::store::encoded::{EncodedBatch, EncodedTask};
use crate::store::{Error, IdempotencyKey, WriterRole};

type Result<T> = std::result::Result<T, DatabaseError>;

/// Attempt to execute commands on a session. Commands that need another attempt are returned.
pub(super) struct Attempt<'a> {
    pub(super) writer: &'a Writer,
    pub(super) session: &'a Session,
}

/// Comparison of a command with the stored log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredRow {
    /// No row is stored at the position, or nothing can be compared.
    Absent,
    /// The row of the command is stored.
    Same,
    /// Another row is stored.
    Other,
}

/// Refusal of a command by the database.
struct Refusal {
    command: Command,
    error: Option<Error>,
}

impl Attempt<'_> {
    /// Executes commands and returns those that need another attempt.
    pub(super) async fn run(&self, group: Vec<Command>) -> Vec<Command> {
        let mut again = Vec::new();
        let group = self.settle_uncertain(group, &mut again).await;
        let mut creates = Vec::new();
        let mut appends = Vec::new();
        let mut singles = Vec::new();
        for command in group {
            match &command.write {
                _ if !self.writer.is_current(&command) => command.refuse_evicted(),
                Write::Create(_) => creates.push(command),
                Write::Append(_) => appends.push(command),
                Write::Single(_) => singles.push(command),
            }
        }
        // Polled in turn: both statements are sent before the first answer is awaited.
        let (creates, appends) = join(self.create_all(creates), self.append_all(appends)).await;
        again.extend(creates);
        again.extend(appends);
        for command in singles {
            again.extend(self.run_single(command).await);
        }
        again
    }

    /// Answers the commands whose earlier attempt was committed, and returns the others.
    async fn settle_uncertain(
        &self,
        group: Vec<Command>,
        again: &mut Vec<Command>,
    ) -> Vec<Command> {
        let (uncertain, mut rest): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|command| command.is_uncertain);
        if uncertain.is_empty() {
            return rest;
        }
        let stored = match self.compare(&uncertain).await {
            Ok(stored) => stored,
            Err(error) => {
                again.extend(self.writer.handle_failure(error, uncertain).await);
                return rest;
            }
        };
        for (command, stored) in uncertain.into_iter().zip(stored) {
            match stored {
                StoredRow::Same => confirm(command),
                StoredRow::Other => command.answer(Err(Error::Conflict)),
                StoredRow::Absent => rest.push(command),
            }
        }
        rest
    }

    /// Compares the first log row of each command with the stored one.
    async fn compare(&self, commands: &[Command]) -> Result<Vec<StoredRow>> {
        let ids: Vec<&str> = commands
            .iter()
            .filter_map(|command| command.task())
            .map(TaskId::as_str)
            .collect();
        let mut numbers = HashMap::new();
        for row in self
            .session
            .query(&statement::RESOLVE_TASKS, &[&ids])
            .await?
        {
            numbers.insert(column::<String>(&row, 0)?, column::<i64>(&row, 1)?);
        }
        let mut tasks = Vec::new();
        let mut ats = Vec::new();
        let mut indexes = Vec::new();
        for (index, command) in commands.iter().enumerate() {
            let number = command.task().and_then(|id| numbers.get(id.as_str()));
            if let (Some(number), Some((at, _))) = (number, first_row(command)) {
                tasks.push(*number);
                ats.push(sql_number(at.0));
                indexes.push(index);
            }
        }
        let mut stored = vec![StoredRow::Absent; commands.len()];
        let rows = self
            .session
            .query(&statement::FIRST_ROWS, &[&tasks, &ats])
            .await?;
        for row in rows {
            let index = indexes[ordinal(&row, indexes.len())?];
            let last = seq_column(&row, 1)?;
            let body: &[u8] = column(&row, 2)?;
            let is_same = first_row(&commands[index]).is_some_and(|(at, batch)| {
                let first = &batch.rows[0];
                last.0 == at.0.saturating_add(first.count) && body == first.body
            });
            stored[index] = if is_same {
                StoredRow::Same
            } else {
                StoredRow::Other
            };
        }
        Ok(stored)
    }

    /// Answers refused commands. A refusal after a broken connection is compared with the log first: the earlier attempt may
    /// have committed since.
    async fn refuse(&self, refusals: Vec<Refusal>) -> Vec<Command> {
        let mut again = Vec::new();
        for Refusal { command, error } in refusals {
            if command.is_uncertain {
                let commands = vec![command];
                match self.compare(&commands).await {
                    Ok(stored) => {
                        for (command, stored) in commands.into_iter().zip(stored) {
                            match stored {
                                StoredRow::Same => confirm(command),
                                StoredRow::Absent | StoredRow::Other => {
                                    answer_refusal(command, error.as_ref().map(copy_refusal));
                                }
                            }
                        }
                    }
                    Err(error) => again.extend(self.writer.handle_failure(error, commands).await),
                }
            } else {
                answer_refusal(command, error);
            }
        }
        again
    }

    /// Creates tasks with one statement.
    async fn create_all(&self, commands: Vec<Command>) -> Vec<Command> {
        if commands.is_empty() {
            return commands;
        }
        let generation = self.writer.numbers.generation();
        let commands = refuse_unstorable(commands);
        let scopes = commands.iter().filter_map(command_scope);
        let scopes = match self.number_scopes(scopes, true).await {
            Ok(scopes) => scopes,
            Err(error) => return self.before_commit_failed(error, commands).await,
        };
        let mut creates = Vec::new();
        for command in commands {
            let scope = command_scope(&command).and_then(|scope| scopes.get(scope));
            match scope.copied() {
                Some(scope) => creates.push(NumberedCreate { command, scope }),
                None => command.fail(DatabaseError::refused("the scope cannot be stored")),
            }
        }
        let Some(replica) = creates.first().map(|create| create.command.replica) else {
            return Vec::new();
        };
        for create in &creates {
            if let Err(error) = self.expire_key(&create.command, create.scope).await {
                let commands = creates.into_iter().map(|create| create.command).collect();
                return self.before_commit_failed(error, commands).await;
            }
        }
        let mut columns = CreateColumns::new(replica, self.writer.shard(replica));
        for create in &creates {
            if let Write::Create(task) = &create.command.write {
                columns.push(create.scope, task);
            }
        }
        let rows = self
            .session
            .query(&statement::CREATE, &columns.parameters())
            .await;
        let outcomes = rows.and_then(|rows| {
            let outcomes = rows.iter().map(|row| {
                let outcome = RowOutcome {
                    number: column(row, 1)?,
                    same: column(row, 2)?,
                    live: column(row, 3)?,
                };
                Ok((column::<String>(row, 0)?, outcome))
            });
            outcomes.collect::<Result<HashMap<_, _>>>()
        });
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let commands = creates.into_iter().map(|create| create.command).collect();
                return self.writer.handle_failure(error, commands).await;
            }
        };
        self.writer.health.clear();
        let mut refusals = Vec::new();
        for NumberedCreate { command, scope } in creates {
            let Some(task) = created_task(&command) else {
                continue;
            };
            let outcome = outcomes.get(task.id.as_str()).copied().unwrap_or_default();
            if let Some(number) = outcome.number {
                if !task.batch.state.is_terminal() {
                    let numbers = TaskNumber {
                        task: number,
                        scope,
                    };
                    self.writer
                        .numbers
                        .insert_task(generation, &task.id, numbers);
                }
                confirm(command);
                continue;
            }
            let error = self.refusal(&outcome, replica);
            let error = error.unwrap_or(Some(Error::Conflict));
            refusals.push(Refusal { command, error });
        }
        self.refuse(refusals).await
    }

    /// Appends batches with one statement.
    async fn append_all(&self, commands: Vec<Command>) -> Vec<Command> {
        if commands.is_empty() {
            return commands;
        }
        let mut appends = match self.number_tasks(commands).await {
            Ok(appends) => appends,
            Err((error, commands)) => return self.before_commit_failed(error, commands).await,
        };
        let Some(replica) = appends.first().map(|append| append.command.replica) else {
            return Vec::new();
        };
        for append in &appends {
            if let Err(error) = self.expire_key(&append.command, append.scope).await {
                let commands = appends.into_iter().map(|append| append.command).collect();
                return self.before_commit_failed(error, commands).await;
            }
        }
        // One order of row locks, so that two writers rarely deadlock.
        appends.sort_unstable_by_key(|append| append.task);
        let mut columns = AppendColumns::new(replica, self.writer.shard(replica));
        for append in &appends {
            if let Write::Append(write) = &append.command.write {
                columns.push(append.task, write);
            }
        }
        let rows = self
            .session
            .query(&statement::APPEND, &columns.parameters())
            .await;
        let outcomes = rows.and_then(|rows| {
            let outcomes = rows.iter().map(|row| {
                let task: i64 = column(row, 0)?;
                let outcome = RowOutcome {
                    number: column::<bool>(row, 1)?.then_some(task),
                    same: column(row, 2)?,
                    live: column(row, 3)?,
                };
                Ok((task, outcome))
            });
            outcomes.collect::<Result<HashMap<_, _>>>()
        });
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let commands = appends.into_iter().map(|append| append.command).collect();
                return self.writer.handle_failure(error, commands).await;
            }
        };
        self.writer.health.clear();
        let mut refusals = Vec::new();
        let mut unexplained = Vec::new();
        for append in appends {
            let outcome = outcomes.get(&append.task).copied().unwrap_or_default();
            if outcome.number.is_some() {
                self.forget_ended(&append.command);
                confirm(append.command);
            } else if let Some(error) = self.refusal(&outcome, replica) {
                let command = append.command;
                refusals.push(Refusal { command, error });
            } else {
                unexplained.push(append);
            }
        }
        let mut again = self.explain(unexplained, replica, &mut refusals).await;
        again.extend(self.refuse(refusals).await);
        again
    }

    /// Returns the refusal that the outcome of a row explains. The inner `None`: this replica was evicted.
    fn refusal(&self, outcome: &RowOutcome, replica: i64) -> Option<Option<Error>> {
        if !outcome.live {
            self.writer.record_eviction(replica);
            return Some(None);
        }
        match outcome.same {
            Some(true) => Some(Some(Error::AlreadyApplied)),
            Some(false) => Some(Some(Error::KeyReused)),
            None => None,
        }
    }

    /// Finds out why appends were refused: another position or no such task, or another holder.
    async fn explain(
        &self,
        appends: Vec<NumberedAppend>,
        replica: i64,
        refusals: &mut Vec<Refusal>,
    ) -> Vec<Command> {
        if appends.is_empty() {
            return Vec::new();
        }
        let numbers: Vec<i64> = appends.iter().map(|append| append.task).collect();
        let heads = self
            .session
            .query(&statement::HEADS_BY_NUMBER, &[&numbers])
            .await;
        let heads = heads.and_then(|rows| {
            let heads = rows.iter().map(|row| {
                Ok((
                    column::<i64>(row, 0)?,
                    (seq_column(row, 1)?, column(row, 2)?),
                ))
            });
            heads.collect::<Result<HashMap<i64, (Seq, Option<i64>)>>>()
        });
        let heads = match heads {
            Ok(heads) => heads,
            // The statement itself was answered: nothing was written.
            Err(error) => {
                let commands = appends.into_iter().map(|append| append.command).collect();
                return self.before_commit_failed(error, commands).await;
            }
        };
        let mut again = Vec::new();
        for NumberedAppend {
            mut command, task, ..
        } in appends
        {
            let (at, is_holder) = match &command.write {
                Write::Append(append) => (append.at, append.role == WriterRole::Holder),
                Write::Create(_) | Write::Single(_) => continue,
            };
            let may_repeat = command.contentions < MAX_CONTENTIONS;
            let error = match heads.get(&task) {
                Some((position, _)) if *position != at => Error::Conflict,
                Some((_, Some(holder))) if is_holder && *holder != replica => Error::Fenced,
                // The number is of a removed task, whose id may be in use again; or the reason has passed.
                None | Some(_) if may_repeat => {
                    if let Some(id) = command.task() {
                        self.writer.numbers.remove_task(id);
                    }
                    command.contentions += 1;
                    again.push(command);
                    continue;
                }
                None | Some(_) => Error::Conflict,
            };
            refusals.push(Refusal {
                command,
                error: Some(error),
            });
        }
        again
    }

    /// Drops the number of a task that has ended: nothing is appended to most of them.
    fn forget_ended(&self, command: &Command) {
        if let Write::Append(append) = &command.write
            && append.batch.state.is_terminal()
        {
            self.writer.numbers.remove_task(&append.task.id);
        }
    }

    /// Handles an error of a read before a commit: the commands were not sent.
    async fn before_commit_failed(
        &self,
        error: DatabaseError,
        commands: Vec<Command>,
    ) -> Vec<Command> {
        if error.failure == Failure::Lost {
            return commands;
        }
        self.writer.handle_failure(error, commands).await
    }

    /// Deletes an expired record of the key of a command that met a record.
    async fn expire_key(&self, command: &Command, scope: i64) -> Result<()> {
        let Some(key) = command_key(command).filter(|_| command.contentions > 0) else {
            return Ok(());
        };
        let text = key.text.as_bytes();
        let oldest = key.oldest_valid.as_millis();
        let parameters: [Parameter<'_>; 3] = [&scope, &text, &oldest];
        self.session
            .execute(&statement::EXPIRE_KEY, &parameters)
            .await?;
        Ok(())
    }

    /// Returns the numbers of scopes, and inserts new scopes if asked.
    async fn number_scopes(
        &self,
        scopes: impl Iterator<Item = &Scope>,
        inserts: bool,
    ) -> Result<HashMap<Scope, i64>> {
        let generation = self.writer.numbers.generation();
        let mut numbers = HashMap::new();
        let mut missing = HashSet::new();
        for scope in scopes {
            match self.writer.numbers.scope(scope) {
                Some(number) => {
                    numbers.insert(scope.clone(), number);
                }
                None => {
                    missing.insert(scope.clone());
                }
            }
        }
        let mut missing: Vec<Scope> = missing.into_iter().collect();
        for attempt in 0..2 {
            if missing.is_empty() {
                break;
            }
            let agents: Vec<&str> = missing.iter().map(|scope| &*scope.agent).collect();
            let tenants: Vec<&str> = missing.iter().map(|scope| &*scope.tenant).collect();
            let owners: Vec<&[u8]> = missing
                .iter()
                .map(|scope| scope.owner.name().as_bytes())
                .collect();
            let parameters: [Parameter<'_>; 3] = [&agents, &tenants, &owners];
            if attempt > 0 {
                if !inserts {
                    break;
                }
                self.session
                    .execute(&statement::ENSURE_SCOPES, &parameters)
                    .await?;
            }
            let rows = self
                .session
                .query(&statement::RESOLVE_SCOPES, &parameters)
                .await?;
            for row in rows {
                let scope = &missing[ordinal(&row, missing.len())?];
                let number = column(&row, 1)?;
                self.writer.numbers.insert_scope(generation, scope, number);
                numbers.insert(scope.clone(), number);
            }
            missing.retain(|scope| !numbers.contains_key(scope));
        }
        Ok(numbers)
    }

    /// Adds the numbers of their tasks to appends. Answers those whose task does not exist in its scope.
    async fn number_tasks(
        &self,
        commands: Vec<Command>,
    ) -> std::result::Result<Vec<NumberedAppend>, (DatabaseError, Vec<Command>)> {
        let commands = refuse_unstorable(commands);
        let keys = commands.iter().filter_map(command_task);
        let numbers = match self.resolve_tasks(keys).await {
            Ok(numbers) => numbers,
            Err(error) => return Err((error, commands)),
        };
        let mut appends = Vec::with_capacity(commands.len());
        let mut refusals = Vec::new();
        for command in commands {
            match command.task().and_then(|id| numbers.get(id)) {
                Some(number) => appends.push(NumberedAppend {
                    task: number.task,
                    scope: number.scope,
                    command,
                }),
                None => refusals.push(Refusal {
                    command,
                    error: Some(Error::Conflict),
                }),
            }
        }
        for Refusal { command, error } in refusals {
            answer_refusal(command, error);
        }
        Ok(appends)
    }

    /// Returns the numbers of the tasks that exist in their scopes.
    async fn resolve_tasks<'k>(
        &self,
        keys: impl Iterator<Item = &'k TaskKey>,
    ) -> Result<HashMap<TaskId, TaskNumber>> {
        let generation = self.writer.numbers.generation();
        let keys: HashMap<&TaskId, &Scope> = keys.map(|key| (&key.id, &key.scope)).collect();
        let scopes = self.number_scopes(keys.values().copied(), false).await?;
        let mut numbers = HashMap::with_capacity(keys.len());
        let mut missing: Vec<&str> = Vec::new();
        for id in keys.keys() {
            match self.writer.numbers.task(id) {
                Some(number) => {
                    numbers.insert((*id).clone(), number);
                }
                None => missing.extend(sql_text(id.as_str())),
            }
        }
        if !missing.is_empty() {
            let rows = self
                .session
                .query(&statement::RESOLVE_TASKS, &[&missing])
                .await?;
            for row in rows {
                let id = TaskId::from(column::<&str>(&row, 0)?);
                let number = TaskNumber {
                    task: column(&row, 1)?,
                    scope: column(&row, 2)?,
                };
                self.writer.numbers.insert_task(generation, &id, number);
                numbers.insert(id, number);
            }
        }
        // A task of another scope is treated like a removed one.
        numbers.retain(|id, number| {
            let scope = keys.get(id).and_then(|scope| scopes.get(*scope));
            scope == Some(&number.scope)
        });
        Ok(numbers)
    }

    /// Executes a write that is a statement of its own.
    async fn run_single(&self, command: Command) -> Vec<Command> {
        let Write::Single(write) = &command.write else {
            return vec![command];
        };
        match self.execute_single(write, command.replica).await {
            Ok(rows) => {
                self.writer.health.clear();
                command.answer(Ok(Answer::Changed(rows)));
                Vec::new()
            }
            Err(error) => self.writer.handle_failure(error, vec![command]).await,
        }
    }

    async fn execute_single(&self, write: &SingleWrite, replica: i64) -> Result<u64> {
        match write {
            SingleWrite::SaveSnapshot { task, at, body } => {
                let position = sql_number(at.0);
                self.execute_for_task(&statement::SAVE_SNAPSHOT, task, &[&position, body])
                    .await
            }
            SingleWrite::PutConfig { task, config } => {
                let id = webhook_id(config.id.as_ref());
                let parameters: [Parameter<'_>; 3] = [&id, &config.body, &replica];
                self.execute_for_task(&statement::PUT_CONFIG, task, &parameters)
                    .await
            }
            SingleWrite::DeleteConfig { task, id } => {
                let id = webhook_id(Some(id));
                self.execute_for_task(&statement::DELETE_CONFIG, task, &[&id])
                    .await
            }
            SingleWrite::RecordDelivery(update) => self.record_delivery(update, replica).await,
            SingleWrite::Remove(tasks) => self.remove(tasks, replica).await,
            SingleWrite::RemoveKeys { before, limit } => {
                let parameters: [Parameter<'_>; 2] = [&before.as_millis(), &sql_limit(*limit)];
                self.session
                    .execute(&statement::REMOVE_KEYS, &parameters)
                    .await
            }
            SingleWrite::Probe => {
                let parameters: [Parameter<'_>; 3] = [&"probe", &0_i64, &replica];
                self.session
                    .execute(&statement::CLAIM_JOB, &parameters)
                    .await
            }
        }
    }

    /// Runs a statement whose first parameters are the scope and the id of a task.
    async fn execute_for_task(
        &self,
        sql: &statement::Sql,
        task: &TaskKey,
        parameters: &[Parameter<'_>],
    ) -> Result<u64> {
        let columns = (
            sql_text(&task.scope.agent),
            sql_text(&task.scope.tenant),
            sql_text(task.id.as_str()),
        );
        let (Some(agent), Some(tenant), Some(id)) = columns else {
            return Ok(0);
        };
        let owner = task.scope.owner.name().as_bytes();
        let key: [Parameter<'_>; 4] = [&agent, &tenant, &owner, &id];
        let parameters = [&key[..], parameters].concat();
        self.session.execute(sql, &parameters).await
    }

    async fn record_delivery(&self, update: &DeliveryUpdate, replica: i64) -> Result<u64> {
        let parameters: [Parameter<'_>; 8] = [
            &update.number,
            &update.generation,
            &update.position,
            &update.attempts,
            &update.due,
            &update.state,
            &update.reason,
            &replica,
        ];
        self.session
            .execute(&statement::RECORD_DELIVERY, &parameters)
            .await
    }

    /// Removes tasks in one transaction: the rows are locked first, so that the removal sees every committed append.
    async fn remove(&self, tasks: &[TaskKey], replica: i64) -> Result<u64> {
        let numbers = self.resolve_tasks(tasks.iter()).await?;
        let shard = self.writer.shard(replica);
        let targets: Vec<i64> = numbers.values().map(|number| number.task).collect();
        for id in numbers.keys() {
            self.writer.numbers.remove_task(id);
        }
        self.session.batch("BEGIN").await?;
        let removed = self.remove_locked(&targets, shard).await;
        // After an error the transaction is aborted, and COMMIT rolls it back.
        let committed = self.session.batch("COMMIT").await;
        let removed = removed?;
        committed?;
        Ok(removed)
    }

    async fn remove_locked(&self, targets: &Vec<i64>, shard: i64) -> Result<u64> {
        self.session
            .query(&statement::LOCK_TASKS, &[targets])
            .await?;
        self.session
            .execute(&statement::REMOVE, &[targets, &shard])
            .await
    }
}

/// Result of one input row of `create.sql` or `append.sql`.
#[derive(Debug, Clone, Copy, Default)]
struct RowOutcome {
    /// Number of the task, if the row was written.
    number: Option<i64>,
    /// Whether the idempotency key was used before with the same body; `None` if it is unused.
    same: Option<bool>,
    /// Whether the replica is a member.
    live: bool,
}

/// Answers a command that was committed.
fn confirm(command: Command) {
    let position = match &command.write {
        Write::Create(task) => Seq(task.batch.count()),
        Write::Append(append) => Seq(append.at.0.saturating_add(append.batch.count())),
        Write::Single(_) => Seq(0),
    };
    command.answer(Ok(Answer::Committed(position)));
}

/// Answers a command that was refused; `None`: this replica was evicted.
fn answer_refusal(command: Command, error: Option<Error>) {
    match error {
        None => command.refuse_evicted(),
        Some(Error::AlreadyApplied) => command.answer(Ok(Answer::Replayed)),
        Some(error) => command.answer(Err(error)),
    }
}

/// Copies a refusal. Other errors are not refusals.
fn copy_refusal(error: &Error) -> Error {
    match error {
        Error::AlreadyApplied => Error::AlreadyApplied,
        Error::KeyReused => Error::KeyReused,
        Error::Fenced => Error::Fenced,
        Error::Conflict | Error::Damaged(_) | Error::Failed(_) => Error::Conflict,
    }
}

/// Returns the position before a batch and the batch, unless it has no log row.
fn first_row(command: &Command) -> Option<(Seq, &EncodedBatch)> {
    let (at, batch) = match &command.write {
        Write::Create(task) => (Seq(0), &task.batch),
        Write::Append(append) => {
            let AppendWrite { at, batch, .. } = &**append;
            (*at, batch)
        }
        Write::Single(_) => return None,
    };
    (!batch.rows.is_empty()).then_some((at, batch))
}

fn created_task(command: &Command) -> Option<&EncodedTask> {
    match &command.write {
        Write::Create(task) => Some(task),
        Write::Append(_) | Write::Single(_) => None,
    }
}

fn command_task(command: &Command) -> Option<&TaskKey> {
    match &command.write {
        Write::Append(append) => Some(&append.task),
        Write::Create(_) | Write::Single(_) => None,
    }
}

fn command_scope(command: &Command) -> Option<&Scope> {
    match &command.write {
        Write::Create(task) => Some(&task.scope),
        Write::Append(append) => Some(&append.task.scope),
        Write::Single(_) => None,
    }
}

fn command_key(command: &Command) -> Option<&IdempotencyKey> {
    match &command.write {
        Write::Create(task) => task.batch.key.as_ref(),
        Write::Append(append) => append.batch.key.as_ref(),
        Write::Single(_) => None,
    }
}

/// Answers the commands whose agent, tenant or task id contains NUL. No task with such an id exists or can be created.
fn refuse_unstorable(commands: Vec<Command>) -> Vec<Command> {
    let mut storable = Vec::with_capacity(commands.len());
    for command in commands {
        let scope = command_scope(&command);
        let is_storable = scope.is_none_or(|scope| {
            sql_text(&scope.agent).is_some() && sql_text(&scope.tenant).is_some()
        }) && command
            .task()
            .is_none_or(|task| sql_text(task.as_str()).is_some());
        if is_storable {
            storable.push(command);
        } else if matches!(command.write, Write::Append(_)) {
            command.answer(Err(Error::Conflict));
        } else {
            command.fail(DatabaseError::refused(
                "agents, tenants and task ids must not contain NUL",
            ));
        }
    }
    storable
}
