//! Streams of tasks that never end.
use super::{ECHO, round};
use crate::Args;
use crate::http::Conn;
use crate::proc;
use crate::wire::Wire;
use memchr::memmem::find;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::spawn_local;

/// Opens many streams on tasks that never end and measures the cost per stream.
pub async fn idle(args: &Args, wire: Rc<Wire>) -> Result<Value, String> {
    let n = if args.count == 0 { 5000 } else { args.count };
    // Warm-up with one stream, so that lazily allocated tables are not counted.
    let opened = Rc::new(Cell::new(0usize));
    let first = Rc::new(Cell::new(0usize));
    let failed = Rc::new(RefCell::new(Vec::<String>::new()));
    let rss0 = proc::rss_kb(args.pid);
    let cpu0 = proc::cpu(args.pid);
    let t = Instant::now();
    let permits = std::sync::Arc::new(tokio::sync::Semaphore::new(64));
    let hold = Rc::new(tokio::sync::Notify::new());
    for i in 0..n {
        let permit = permits
            .clone()
            .acquire_owned()
            .await
            .map_err(|e| e.to_string())?;
        let wire = wire.clone();
        let opened = opened.clone();
        let first = first.clone();
        let failed = failed.clone();
        let hold = hold.clone();
        spawn_local(async move {
            let go = async {
                let mut c = Conn::open(&wire.host).await?;
                c.begin(
                    wire.message("hang around", true, None, None, false)
                        .with_id(5_000_000 + i as u64),
                )
                .await?;
                let mut out = Vec::new();
                if c.status == 200 {
                    c.more(&mut out).await?;
                    if find(&out, b"\"error\"").is_some() {
                        return Err(std::io::Error::other(
                            String::from_utf8_lossy(&out)
                                .chars()
                                .take(200)
                                .collect::<String>(),
                        ));
                    }
                    if !out.is_empty() {
                        first.set(first.get() + 1);
                    }
                } else {
                    return Err(std::io::Error::other(format!("status {}", c.status)));
                }
                Ok::<_, std::io::Error>(c)
            };
            match tokio::time::timeout(Duration::from_secs(20), go).await {
                Ok(Ok(c)) => {
                    opened.set(opened.get() + 1);
                    drop(permit);
                    hold.notified().await;
                    drop(c);
                }
                Ok(Err(e)) => failed.borrow_mut().push(e.to_string()),
                Err(_) => failed.borrow_mut().push("timeout".into()),
            }
        });
        if t.elapsed().as_secs_f64() > args.seconds.max(60.0) {
            break;
        }
    }
    let wait = Instant::now();
    while opened.get() + failed.borrow().len() < n && wait.elapsed() < Duration::from_secs(15) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let open_secs = t.elapsed().as_secs_f64();
    let open_cpu = proc::cpu(args.pid) - cpu0;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let rss1 = proc::rss_kb(args.pid);
    // Measures the CPU use of the idle streams, then checks that the server still responds.
    let cpu1 = proc::cpu(args.pid);
    let q = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle_cpu = (proc::cpu(args.pid) - cpu1) / q.elapsed().as_secs_f64();
    let t2 = Instant::now();
    let alive = async {
        let mut c = Conn::open(&wire.host).await?;
        let mut out = Vec::new();
        c.exchange(
            wire.message(ECHO, false, None, None, false)
                .with_id(9_999_999),
            &mut out,
        )
        .await?;
        Ok::<_, std::io::Error>(find(&out, wire.completed()).is_some())
    };
    let alive = tokio::time::timeout(Duration::from_secs(10), alive).await;
    let alive_ms = t2.elapsed().as_secs_f64() * 1e3;
    hold.notify_waiters();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let rss2 = proc::rss_kb(args.pid);
    let failed = failed.borrow();
    Ok(json!({
        "wanted": n, "opened": opened.get(), "with_first_event": first.get(), "failed": failed.len(), "first_failure": failed.first(),
        "open_seconds": round(open_secs, 2), "open_cpu_ms_each": round(open_cpu * 1e3 / opened.get().max(1) as f64, 3),
        "rss_kb_before": rss0, "rss_kb_open": rss1, "rss_kb_after_close": rss2,
        "kb_per_stream": round(rss1.saturating_sub(rss0) as f64 / opened.get().max(1) as f64, 2),
        "idle_cpu_fraction": round(idle_cpu, 4),
        "send_while_open_ok": matches!(alive, Ok(Ok(true))), "send_while_open_ms": round(alive_ms, 1),
    }))
}
