//! One task with many subscribers.
use super::{micros, round};
use crate::Args;
use crate::http::{Conn, Events};
use crate::proc;
use crate::wire::{self, Wire};
use memchr::memmem::find;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::spawn_local;

/// Subscribes to one task many times, then releases 100 events at once through the gate of the agent.
pub async fn fanout(args: &Args, wire: Rc<Wire>) -> Result<Value, String> {
    use tokio::io::AsyncWriteExt;
    let err = |e: std::io::Error| e.to_string();
    let n = args.connections;
    let gate = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(err)?;
    let port = gate.local_addr().map_err(err)?.port();
    let mut lead = Conn::open(&wire.host).await.map_err(err)?;
    lead.begin(
        wire.message(&format!("gate {port} 100 50"), true, None, None, false)
            .with_id(1),
    )
    .await
    .map_err(err)?;
    let mut gate_sock = tokio::time::timeout(Duration::from_secs(10), gate.accept())
        .await
        .map_err(|_| "agent did not reach the gate".to_string())?
        .map_err(err)?
        .0;
    // The first stream returns the task id.
    let mut ev = Events::default();
    let mut id = None;
    let mut out = Vec::new();
    while id.is_none() {
        out.clear();
        match tokio::time::timeout(Duration::from_secs(5), lead.more(&mut out)).await {
            Ok(Ok(true)) => ev.feed(&out, |d| id = id.take().or_else(|| wire::task_id(d))),
            other => return Err(format!("lead stream gave no task id ({})", other.is_err())),
        }
    }
    let id = id.ok_or("no task id")?;
    struct Sub {
        chunks: Cell<u32>,
        done: Cell<bool>,
        attached: Cell<bool>,
        error: RefCell<Option<String>>,
        end_us: Cell<u32>,
    }
    let released: Rc<Cell<Option<Instant>>> = Rc::new(Cell::new(None));
    let rss0 = proc::rss_kb(args.pid);
    let mut subs = Vec::new();
    for i in 0..n {
        let sub = Rc::new(Sub {
            chunks: Cell::new(0),
            done: Cell::new(false),
            attached: Cell::new(false),
            error: RefCell::new(None),
            end_us: Cell::new(0),
        });
        subs.push(sub.clone());
        let host = wire.host.clone();
        let req = wire.subscribe(&id);
        let want = wire.completed();
        let released = released.clone();
        spawn_local(async move {
            let run = async {
                let mut c = Conn::open(&host).await?;
                c.begin(&req).await?;
                sub.attached.set(c.status == 200);
                let mut ev = Events::default();
                let mut out = Vec::new();
                loop {
                    out.clear();
                    if !c.more(&mut out).await? {
                        return Ok::<_, std::io::Error>(());
                    }
                    let s = &sub;
                    ev.feed(&out, |d| {
                        // A snapshot may repeat chunks that were already sent, so only updates are counted.
                        let update = find(d, b"artifactUpdate").is_some()
                            || find(d, b"artifact-update").is_some();
                        if update && find(d, b"\"chunk-").is_some() {
                            s.chunks.set(s.chunks.get() + 1);
                        } else if find(d, want).is_some() {
                            s.done.set(true);
                            if let Some(t) = released.get() {
                                s.end_us.set(micros(t));
                            }
                        } else if find(d, b"\"error\"").is_some() {
                            *s.error.borrow_mut() =
                                Some(String::from_utf8_lossy(d).chars().take(200).collect());
                        }
                    });
                }
            };
            if let Err(e) = run.await {
                let mut slot = sub.error.borrow_mut();
                if slot.is_none() {
                    *slot = Some(e.to_string());
                }
            }
        });
        if i % 32 == 31 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let wait = Instant::now();
    while subs.iter().filter(|s| s.attached.get()).count() < n
        && wait.elapsed() < Duration::from_secs(20)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    let attached = subs.iter().filter(|s| s.attached.get()).count();
    let rss1 = proc::rss_kb(args.pid);
    let cpu0 = proc::cpu(args.pid);
    let t = Instant::now();
    released.set(Some(t));
    gate_sock.write_all(b"g").await.map_err(err)?;
    // The first stream must be read too. Otherwise it could slow down the task.
    spawn_local(async move {
        let mut out = Vec::new();
        while let Ok(true) = lead.more(&mut out).await {
            out.clear();
        }
    });
    let limit = Duration::from_secs_f64(args.seconds.max(20.0));
    let mut quiet = Instant::now();
    let mut before = 0u64;
    let mut last_progress = t;
    while t.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let total: u64 = subs.iter().map(|s| u64::from(s.chunks.get())).sum();
        if total != before {
            before = total;
            quiet = Instant::now();
            last_progress = quiet;
        }
        if subs
            .iter()
            .all(|s| s.done.get() || s.error.borrow().is_some())
            || quiet.elapsed() > Duration::from_secs(4)
        {
            break;
        }
    }
    let secs = last_progress.duration_since(t).as_secs_f64().max(0.001);
    let cpu = proc::cpu(args.pid) - cpu0;
    let delivered: u64 = subs.iter().map(|s| u64::from(s.chunks.get())).sum();
    let errors: Vec<String> = subs
        .iter()
        .filter_map(|s| s.error.borrow().clone())
        .collect();
    Ok(json!({
        "subscribers": n, "attached": attached, "expected": n * 100, "delivered": delivered,
        "lost": (n as u64 * 100).saturating_sub(delivered),
        "complete_subscribers": subs.iter().filter(|s| s.chunks.get() == 100 && s.done.get()).count(),
        "finished": subs.iter().filter(|s| s.done.get()).count(),
        "errors": errors.len(), "first_error": errors.first(),
        "seconds": round(secs, 3), "deliveries_per_s": round(delivered as f64 / secs, 0),
        "server_cpu_s": round(cpu, 2),
        "deliveries_per_cpu_s": if cpu > 0.0 { round(delivered as f64 / cpu, 0) } else { 0.0 },
        "rss_kb_before": rss0, "rss_kb_subscribed": rss1,
    }))
}
