//! `attache db`: maintenance of the SQLite task database.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use attache::model::{Seq, Task, TaskId, Timestamp};
use attache::store::postgres::WebhookKey;
use attache::store::sqlite::Options;
use attache::store::{Head, ReadLimit, Sqlite, Store};
use serde_json::json;

use crate::args::{DbArgs, DbCommand};
use crate::data_dir;
use crate::output::Output;
use crate::private_file::ScratchDir;

/// Number of tasks, or of log entries, per read.
const PAGE_SIZE: usize = 1000;

pub(crate) async fn run(args: DbArgs, out: &mut Output) -> anyhow::Result<()> {
    if let DbCommand::Key = args.verb {
        return print_key(out);
    }
    let folder = data_dir::locate(args.folder.data_dir.as_deref(), "attache")
        .context("there is no data directory; give one: --data-dir <DIR>")?;
    let file = folder.join("tasks.db");
    if !file.is_file() {
        bail!(
            "there is no task database in {}; give its directory: --data-dir <DIR>",
            folder.display()
        );
    }
    match args.verb {
        DbCommand::Key => print_key(out),
        DbCommand::Check => check(&file, out),
        DbCommand::Export => export(&folder, &file).await,
        DbCommand::Vacuum => {
            let before = fs::metadata(&file)?.len();
            Sqlite::vacuum(&file).context("stop the server first")?;
            let after = fs::metadata(&file)?.len();
            if out.is_json() {
                out.print_json(&json!({"schema": "attache.db-vacuum/1", "bytes": after, "bytesBefore": before}))?;
            } else {
                eprintln!("{after} bytes, {before} before.");
            }
            Ok(())
        }
        DbCommand::Migrate => {
            let before = Sqlite::inspect(&file)?.version;
            Sqlite::open(&file, Options::default())?.close().await;
            let after = Sqlite::inspect(&file)?.version;
            if out.is_json() {
                out.print_json(&json!({"schema": "attache.db-migrate/1", "version": after, "versionBefore": before}))?;
            } else {
                eprintln!("Version {after}, {before} before.");
            }
            Ok(())
        }
    }
}

/// Prints a new webhook key.
fn print_key(out: &mut Output) -> anyhow::Result<()> {
    let key = WebhookKey::random().context("the system provides no randomness")?;
    if out.is_json() {
        out.print_json(&json!({"schema": "attache.db-key/1", "webhookKey": key.to_base64()}))?;
    } else {
        writeln!(io::stdout(), "{}", key.to_base64())?;
    }
    Ok(())
}

fn check(file: &Path, output: &mut Output) -> anyhow::Result<()> {
    let found = Sqlite::inspect(file)?;
    if output.is_json() && found.faults.is_empty() {
        output.print_json(&json!({
            "schema": "attache.db-check/1", "version": found.version, "newest": found.newest, "tasks": found.tasks,
            "unfinished": found.unfinished,
        }))?;
        return Ok(());
    }
    if output.is_json() {
        let faults = found.faults.join("; ");
        bail!("{} is damaged: {faults}", file.display());
    }
    let mut out = io::stdout().lock();
    writeln!(out, "version {} of {}", found.version, found.newest)?;
    writeln!(
        out,
        "tasks {}, unfinished {}",
        found.tasks, found.unfinished
    )?;
    for fault in &found.faults {
        writeln!(out, "fault {fault}")?;
    }
    if !found.faults.is_empty() {
        bail!(
            "{} is damaged: keep a copy for repair, restore a backup",
            file.display()
        );
    }
    writeln!(out, "sound")?;
    Ok(())
}

/// Exports from a copy, so that a server can use the file at the same time.
async fn export(folder: &Path, file: &Path) -> anyhow::Result<()> {
    let scratch = ScratchDir::create(folder, "export")?;
    let copy = scratch.path().join("tasks.db");
    Sqlite::back_up(file, &copy)?;
    if folder.join("attache.key").is_file() {
        fs::copy(
            folder.join("attache.key"),
            scratch.path().join("attache.key"),
        )?;
    }
    let store = Sqlite::open(&copy, Options::default())?;
    let written = write_all(&store).await;
    store.close().await;
    written
}

async fn write_all(store: &Sqlite) -> anyhow::Result<()> {
    let mut after: Option<TaskId> = None;
    loop {
        let page = store.list_unfinished(after.as_ref(), PAGE_SIZE).await?;
        for head in &page {
            write_task(store, head).await?;
        }
        match page.last() {
            Some(last) => after = Some(last.id.clone()),
            None => break,
        }
    }
    let ended = usize::try_from(store.count_ended().await?).unwrap_or(usize::MAX);
    let end_of_time = Timestamp::from_millis(i64::from(u32::MAX) * 1000).unwrap_or_default();
    for head in store.list_ended(end_of_time, ended).await? {
        write_task(store, &head).await?;
    }
    Ok(())
}

async fn write_task(store: &Sqlite, head: &Head) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    loop {
        let at = entries
            .last()
            .map_or(Seq(0), |entry: &attache::model::Entry| entry.seq);
        let limit = ReadLimit::entries(PAGE_SIZE);
        let more = store.read(head, at, limit).await?;
        if more.is_empty() {
            break;
        }
        entries.extend(more);
    }
    let Some(task) = Task::fold(&entries).with_context(|| format!("the log of {}", head.id))?
    else {
        return Ok(());
    };
    let scope = &head.scope;
    let line = json!({"agent": &*scope.agent, "tenant": &*scope.tenant, "owner": scope.owner.name(), "task": task});
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(())
}
