//! `attache top`: a live view of a running server. Without a terminal it prints one snapshot.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use attache::model::Secret;

use super::serve::DATA_DIR_NAME;
use crate::args::TopArgs;
use crate::data_dir;
use crate::output::Output;
use crate::settings::duration;
use crate::terminal::TerminalStyle;
use crate::top::{AdminEndpoint, ScreenSize, ServerOverview, ServerSample, lines};

/// Variable of the operator key.
const KEY_VARIABLE: &str = "ATTACHE_ADMIN_KEY";
/// Shortest time between two samples.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) async fn run(args: &TopArgs, out: &mut Output) -> anyhow::Result<()> {
    let interval = duration::parse(&args.interval)
        .with_context(|| format!("--interval {}: not a duration such as 2s", args.interval))?
        .max(MIN_INTERVAL);
    let endpoint = endpoint(args)?;
    #[cfg(unix)]
    if !out.is_json() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return crate::top::show(&endpoint, interval).await;
    }
    // Two samples: rates are differences.
    let before = ServerSample::read(&endpoint).await?;
    tokio::time::sleep(interval).await;
    let sample = ServerSample::read(&endpoint).await?;
    let overview = ServerOverview::new(&endpoint, Some(&before), &sample);
    if out.is_json() {
        out.print_json(&overview)?;
        return Ok(());
    }
    let size = ScreenSize {
        style: TerminalStyle::for_stdout(),
        rows: None,
    };
    for line in lines(&overview, size) {
        out.print_line(&line)?;
    }
    Ok(())
}

fn endpoint(args: &TopArgs) -> anyhow::Result<AdminEndpoint> {
    if let Some(url) = &args.server {
        let key = std::env::var(KEY_VARIABLE).with_context(|| {
            format!(
                "--server needs an operator key in {KEY_VARIABLE}: attache keys add <NAME> --admin"
            )
        })?;
        return Ok(AdminEndpoint::Address {
            url: url.clone(),
            key: Secret::from(key),
        });
    }
    let named = args.folder.data_dir.as_deref();
    let folder = data_dir::locate(named, DATA_DIR_NAME)
        .context("there is no data directory; give one: --data-dir <DIR>")?;
    Ok(AdminEndpoint::Socket(folder))
}
