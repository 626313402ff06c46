//! Time from process start to the first agent card.
use super::round;
use crate::Args;
use crate::http::Conn;
use crate::proc;
use crate::wire::Wire;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Starts the server and measures the time until it returns an agent card.
pub async fn startup(args: &Args, wire: &Wire) -> Result<Value, String> {
    let cmd = args.cmd.as_deref().ok_or("startup needs --cmd")?;
    let mut words = cmd.split_whitespace();
    let program = words.next().ok_or("empty --cmd")?;
    let t = Instant::now();
    let mut child = std::process::Command::new(program)
        .args(words)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let pid = Some(child.id());
    let req = wire.get(&args.card, false);
    let mut ready = None;
    while t.elapsed() < Duration::from_secs(30) {
        if let Ok(mut c) = Conn::open(&wire.host).await {
            let mut out = Vec::new();
            if c.exchange(&req, &mut out).await.is_ok() && c.status == 200 {
                ready = Some(t.elapsed().as_secs_f64() * 1e3);
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let rss = proc::rss_kb(pid);
    let cpu = proc::cpu(pid);
    let _ = child.kill();
    let _ = child.wait();
    Ok(json!({ "ready_ms": ready.map(|r| round(r, 1)), "rss_kb_idle": rss, "cpu_s_to_ready": cpu }))
}
