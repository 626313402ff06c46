//! `attache push deliveries` and `retry`: failed webhooks of a running server, over its admin socket.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::admin;
use crate::args::{PushDeliveriesArgs, PushRetryArgs};
use crate::data_dir;

/// Response of `/push/deliveries`.
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

/// Response of `/push/undelivered`.
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
    let folder = data_dir(args.folder.data_dir.as_deref())?;
    match args.number {
        None => {
            let mut any = false;
            for_each_page(&folder, |page| {
                any |= !page.is_empty();
                print_webhooks(page)
            })?;
            if !any {
                eprintln!("There are no failed webhooks.");
            }
            Ok(())
        }
        Some(number) => print_undelivered(&folder, number),
    }
}

pub(crate) fn retry(args: &PushRetryArgs) -> anyhow::Result<()> {
    let folder = data_dir(args.folder.data_dir.as_deref())?;
    if args.all {
        return for_each_page(&folder, |page| {
            page.iter()
                .try_for_each(|webhook| retry_one(&folder, webhook.number))
        });
    }
    args.numbers
        .iter()
        .try_for_each(|number| retry_one(&folder, *number))
}

fn data_dir(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    data_dir::locate(named, "attache")
        .context("there is no data directory; give one: --data-dir <DIR>")
}

/// Calls `each` with every page of failed webhooks.
fn for_each_page(
    folder: &Path,
    mut each: impl FnMut(&[FailedWebhookRow]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut path = "/push/deliveries".to_owned();
    loop {
        let page: DeliveryPage = request(folder, "GET", &path)?;
        each(&page.deliveries)?;
        match page.next {
            Some(next) => path = format!("/push/deliveries?after={next}"),
            None => return Ok(()),
        }
    }
}

fn print_webhooks(page: &[FailedWebhookRow]) -> anyhow::Result<()> {
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

fn print_undelivered(folder: &Path, number: u64) -> anyhow::Result<()> {
    let UndeliveredPage { undelivered } =
        request(folder, "GET", &format!("/push/undelivered?number={number}"))?;
    let mut out = io::stdout().lock();
    for UndeliveredRow { id, sequence, time } in undelivered {
        writeln!(out, "{sequence}  {id}  {time}")?;
    }
    Ok(())
}

fn retry_one(folder: &Path, number: u64) -> anyhow::Result<()> {
    let _: serde_json::Value = request(folder, "POST", &format!("/push/retry?number={number}"))?;
    eprintln!("Webhook {number} is being retried.");
    Ok(())
}

fn request<T: serde::de::DeserializeOwned>(
    folder: &Path,
    method: &str,
    path: &str,
) -> anyhow::Result<T> {
    let Some(answer) = admin::request(folder, method, path)? else {
        bail!(
            "no server is running with the data directory {}; start it, or give its directory: --data-dir <DIR>",
            folder.display()
        );
    };
    serde_json::from_str(&answer).context("the running server has another version; restart it")
}
