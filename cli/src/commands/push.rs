//! `attache push`: webhooks that a running server has given up, what they did not get, and another try.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::admin;
use crate::args::{PushDeliveriesArgs, PushRetryArgs};
use crate::data_dir;

#[derive(Deserialize)]
struct DeliveryPage {
    deliveries: Vec<FailedWebhookRow>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct FailedWebhookRow {
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
struct UndeliveredPage {
    undelivered: Vec<UndeliveredRow>,
}

#[derive(Deserialize)]
struct UndeliveredRow {
    id: String,
    sequence: u64,
    time: String,
}

pub(crate) fn deliveries(args: &PushDeliveriesArgs) -> anyhow::Result<()> {
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
        Some(number) => undelivered(&folder, number),
    }
}

pub(crate) fn retry(args: &PushRetryArgs) -> anyhow::Result<()> {
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
    data_dir::locate(named, "attache").context("name a folder: --data-dir <DIR>")
}

/// Goes through all webhooks that were given up, page by page.
fn stopped(
    folder: &Path,
    mut each: impl FnMut(&[FailedWebhookRow]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut path = "/push/deliveries".to_owned();
    loop {
        let page: DeliveryPage = ask(folder, "GET", &path)?;
        each(&page.deliveries)?;
        match page.next {
            Some(next) => path = format!("/push/deliveries?after={next}"),
            None => return Ok(()),
        }
    }
}

fn list(page: &[FailedWebhookRow]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for one in page {
        let FailedWebhookRow {
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

fn undelivered(folder: &Path, number: u64) -> anyhow::Result<()> {
    let UndeliveredPage { undelivered } =
        ask(folder, "GET", &format!("/push/undelivered?number={number}"))?;
    let mut out = io::stdout().lock();
    for UndeliveredRow { id, sequence, time } in undelivered {
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
    let Some(answer) = admin::request(folder, method, path)? else {
        bail!(
            "no server runs with the folder {}; start it, or name its folder: --data-dir <DIR>",
            folder.display()
        );
    };
    serde_json::from_str(&answer).context("the running server is of another version; restart it")
}
