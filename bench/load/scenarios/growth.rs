//! Cost per task as the number of stored tasks grows.
use super::loops::{Kind, worker};
use super::{ECHO, Shared, merge, round};
use crate::Args;
use crate::proc;
use crate::wire::Wire;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::spawn_local;

/// Sends `count` tasks (bounded by `seconds`) and samples rate, CPU and memory.
pub async fn growth(args: &Args, wire: Rc<Wire>) -> Result<Value, String> {
    let count = if args.count == 0 { 200_000 } else { args.count } as u64;
    let step = (count / 10).max(1);
    let sh = Rc::new(Shared::default());
    sh.limit.set(count);
    sh.recording.set(true);
    let rss0 = proc::rss_kb(args.pid);
    for _ in 0..args.connections {
        spawn_local(worker(
            wire.host.clone(),
            wire.message(ECHO, false, None, None, false),
            wire.completed(),
            sh.clone(),
            Kind::Send,
        ));
    }
    let t = Instant::now();
    let mut samples = Vec::new();
    let mut last_ok = 0u64;
    let mut last_t = Instant::now();
    let mut last_cpu = proc::cpu(args.pid);
    while t.elapsed().as_secs_f64() < args.seconds && !sh.stop.get() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let ok = sh.ok.get();
        if ok >= last_ok + step || ok + sh.bad.get() >= count {
            let cpu = proc::cpu(args.pid);
            let d = (ok - last_ok) as f64;
            samples.push(json!({
                "tasks": ok,
                "per_s": round(d / last_t.elapsed().as_secs_f64(), 0),
                "per_cpu_s": if cpu > last_cpu { round(d / (cpu - last_cpu), 0) } else { 0.0 },
                "rss_mb": round(proc::rss_kb(args.pid) as f64 / 1024.0, 1),
            }));
            last_ok = ok;
            last_t = Instant::now();
            last_cpu = cpu;
        }
        if ok + sh.bad.get() >= count {
            break;
        }
    }
    sh.stop.set(true);
    let rss1 = proc::rss_kb(args.pid);
    let ok = sh.ok.get();
    let first = samples
        .first()
        .map_or(0.0, |s| s["per_cpu_s"].as_f64().unwrap_or(0.0));
    let last = samples
        .last()
        .map_or(0.0, |s| s["per_cpu_s"].as_f64().unwrap_or(0.0));
    let mut v = json!({
        "tasks": ok, "bad": sh.bad.get(), "seconds": round(t.elapsed().as_secs_f64(), 2),
        "rss_kb_before": rss0, "rss_kb_after": rss1,
        "bytes_per_task": if ok > 0 { (rss1.saturating_sub(rss0) * 1024) / ok } else { 0 },
        "per_cpu_s_first": first, "per_cpu_s_last": last,
        "slowdown": if last > 0.0 { round(first / last, 2) } else { 0.0 },
        "samples": samples,
    });
    if let Some(s) = sh.sample.borrow().clone() {
        merge(&mut v, json!({ "first_bad": s }));
    }
    Ok(v)
}
