//! `attache push`: webhooks that a running server has given up, what they did not get, and another try.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::admin;
use crate::args::{PushDeliveries, PushRetry};
use crate::data_dir;

#[derive(Deserialize)]
struct Page {
    deliveries: Vec<Stopped>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct Stopped {
    number: u64,
    task: String,
    agent: String,
    caller: String,
    webhook: String,
    origin: String,
    reason: String,
    delivered: u64,
    end: u64,
}

#[derive(Deserialize)]
struct Letters {
    letters: Vec<Letter>,
}

#[derive(Deserialize)]
struct Letter {
    id: String,
    sequence: u64,
    time: String,
}

pub(crate) fn deliveries(args: &PushDeliveries) -> anyhow::Result<()> {
    let folder = folder(args.folder.data_dir.as_deref())?;
    match args.number {
        None => {
            let mut any = false;
            stopped(&folder, |page| {
                any |= !page.is_empty();
                list(page)
            })?;
            if !any {
                eprintln!("No webhook has been given up.");
            }
            Ok(())
        }
        Some(number) => letters(&folder, number),
    }
}

pub(crate) fn retry(args: &PushRetry) -> anyhow::Result<()> {
    let folder = folder(args.folder.data_dir.as_deref())?;
    match args.all {
        true => stopped(&folder, |page| {
            page.iter()
                .try_for_each(|one| retry_one(&folder, one.number))
        }),
        false => args
            .numbers
            .iter()
            .try_for_each(|number| retry_one(&folder, *number)),
    }
}

fn folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    data_dir::find(named, "attache").context("name a folder: --data-dir <DIR>")
}

/// Goes through all webhooks that were given up, page by page.
fn stopped(
    folder: &Path,
    mut each: impl FnMut(&[Stopped]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut path = "/push/deliveries".to_owned();
    loop {
        let page: Page = ask(folder, "GET", &path)?;
        each(&page.deliveries)?;
        match page.next {
            Some(next) => path = format!("/push/deliveries?after={next}"),
            None => return Ok(()),
        }
    }
}

fn list(page: &[Stopped]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for one in page {
        let Stopped {
            number,
            task,
            agent,
            caller,
            webhook,
            origin,
            reason,
            delivered,
            end,
        } = one;
        writeln!(
            out,
            "{number}  {origin}  {reason}  delivered {delivered} of {end}  webhook {webhook}  task {task}  agent {agent}  caller {caller}"
        )?;
    }
    Ok(())
}

fn letters(folder: &Path, number: u64) -> anyhow::Result<()> {
    let Letters { letters } = ask(folder, "GET", &format!("/push/letters?number={number}"))?;
    let mut out = io::stdout().lock();
    for Letter { id, sequence, time } in letters {
        writeln!(out, "{sequence}  {id}  {time}")?;
    }
    Ok(())
}

fn retry_one(folder: &Path, number: u64) -> anyhow::Result<()> {
    let _: serde_json::Value = ask(folder, "POST", &format!("/push/retry?number={number}"))?;
    eprintln!("Webhook {number} is called again.");
    Ok(())
}

fn ask<T: serde::de::DeserializeOwned>(
    folder: &Path,
    method: &str,
    path: &str,
) -> anyhow::Result<T> {
    let Some(answer) = admin::ask(folder, method, path)? else {
        bail!(
            "no server runs with the folder {}; start it, or name its folder: --data-dir <DIR>",
            folder.display()
        );
    };
    serde_json::from_str(&answer).context("the running server is of another version; restart it")
}
