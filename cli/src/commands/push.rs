//! `attache push`: webhooks that a running server has given up, what they did not get, and another try.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::admin;
use crate::args::{Push, PushVerb};
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

pub(crate) fn run(args: Push) -> anyhow::Result<()> {
    let folder =
        data_dir::find(args.data_dir.as_deref(), "attache").context("name a folder: --data-dir <DIR>")?;
    match args.verb {
        PushVerb::Deliveries { number: None } => stopped(&folder, list),
        PushVerb::Deliveries { number: Some(number) } => letters(&folder, number),
        PushVerb::Retry { numbers, all: true } if numbers.is_empty() => {
            stopped(&folder, |page| page.iter().try_for_each(|one| retry(&folder, one.number)))
        }
        PushVerb::Retry { numbers, .. } => numbers.iter().try_for_each(|number| retry(&folder, *number)),
    }
}

/// Goes through all webhooks that were given up, page by page.
fn stopped(folder: &Path, mut each: impl FnMut(&[Stopped]) -> anyhow::Result<()>) -> anyhow::Result<()> {
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
        let Stopped { number, task, agent, caller, webhook, origin, reason, delivered, end } = one;
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

fn retry(folder: &Path, number: u64) -> anyhow::Result<()> {
    let _: serde_json::Value = ask(folder, "POST", &format!("/push/retry?number={number}"))?;
    eprintln!("Webhook {number} is called again.");
    Ok(())
}

fn ask<T: serde::de::DeserializeOwned>(folder: &Path, method: &str, path: &str) -> anyhow::Result<T> {
    let Some(answer) = admin::ask(folder, method, path)? else {
        bail!(
            "no server runs with the folder {}; start it, or name its folder: --data-dir <DIR>",
            folder.display()
        );
    };
    serde_json::from_str(&answer).context("the running server is of another version; restart it")
}
