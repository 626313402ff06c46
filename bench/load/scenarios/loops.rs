//! Repeated calls on every connection.
use super::{ECHO, Shared, merge, micros, percentiles, round};
use crate::Args;
use crate::http::{Conn, Events};
use crate::proc;
use crate::wire::{self, Wire};
use memchr::memmem::find;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::spawn_local;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Send,
    Get,
    Large,
    Stream,
}

/// Creates a task whose history has ten messages if the server stores a history. Servers that also store the questions of
/// the agent reach eleven, in fewer turns.
async fn ten_messages(wire: &Wire) -> Result<(String, usize, usize), String> {
    let e = |e: std::io::Error| e.to_string();
    let mut c = Conn::open(&wire.host).await.map_err(e)?;
    let mut out = Vec::new();
    let first = "turn one of the conversation, more to follow";
    c.exchange(
        wire.message(first, false, None, None, false).with_id(1),
        &mut out,
    )
    .await
    .map_err(e)?;
    let id =
        wire::task_id(&out).ok_or_else(|| format!("no task: {}", String::from_utf8_lossy(&out)))?;
    for i in 2..=10u64 {
        if c.close {
            c = Conn::open(&wire.host).await.map_err(e)?;
        }
        c.exchange(&wire.get_task(&id), &mut out).await.map_err(e)?;
        let is_last = i == 10 || wire::history_len(&out) >= 9;
        let text = if is_last {
            ECHO
        } else {
            "turn next of the conversation, more to follow"
        };
        if c.close {
            c = Conn::open(&wire.host).await.map_err(e)?;
        }
        c.exchange(
            wire.message(text, false, Some(&id), None, false).with_id(i),
            &mut out,
        )
        .await
        .map_err(e)?;
        if is_last {
            break;
        }
    }
    if c.close {
        c = Conn::open(&wire.host).await.map_err(e)?;
    }
    c.exchange(&wire.get_task(&id), &mut out).await.map_err(e)?;
    if find(&out, id.as_bytes()).is_none() {
        return Err(format!("tasks/get: {}", String::from_utf8_lossy(&out)));
    }
    Ok((id, wire::history_len(&out), out.len()))
}

pub async fn worker(
    host: String,
    mut req: wire::Template,
    want: &'static [u8],
    sh: Rc<Shared>,
    kind: Kind,
) {
    let mut conn: Option<Conn> = None;
    let mut body = Vec::with_capacity(16 * 1024);
    while !sh.stop.get() {
        if sh.limit.get() > 0 && sh.next.get() >= sh.limit.get() {
            return;
        }
        let c = match conn.as_mut() {
            Some(c) => c,
            None => match Conn::open(&host).await {
                Ok(c) => conn.insert(c),
                Err(e) => {
                    sh.fail(format!("connect: {e}"));
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            },
        };
        let bytes = req.with_id(sh.id());
        let t = Instant::now();
        let rec = sh.recording.get();
        let mut keep = true;
        if kind == Kind::Stream {
            match one_stream(c, bytes, want, t).await {
                Ok(s) => {
                    if rec {
                        sh.events.set(sh.events.get() + s.events);
                        sh.bytes.set(sh.bytes.get() + s.bytes);
                        sh.lat.borrow_mut().push(micros(t));
                        if let Some(f) = s.first {
                            sh.ttfe.borrow_mut().push(f);
                        }
                    }
                    if s.completed && s.chunks == sh.chunks.get() {
                        if rec {
                            sh.ok.set(sh.ok.get() + 1);
                        }
                    } else {
                        sh.fail(format!(
                            "status {} chunks {} completed {} last {}",
                            c.status, s.chunks, s.completed, s.last
                        ));
                    }
                }
                Err(e) => {
                    sh.fail(format!("stream: {e}"));
                    keep = false;
                }
            }
        } else {
            match c.exchange(bytes, &mut body).await {
                Ok(()) => {
                    if c.status == 200 && find(&body, want).is_some() {
                        if rec {
                            sh.lat.borrow_mut().push(micros(t));
                            sh.ok.set(sh.ok.get() + 1);
                            sh.bytes.set(sh.bytes.get() + body.len() as u64);
                        }
                    } else {
                        sh.fail(format!(
                            "status {}: {}",
                            c.status,
                            String::from_utf8_lossy(&body)
                        ));
                    }
                }
                Err(e) => {
                    sh.fail(format!("exchange: {e}"));
                    keep = false;
                }
            }
        }
        if !keep || c.close {
            conn = None;
        }
    }
}

struct StreamOutcome {
    events: u64,
    chunks: u64,
    completed: bool,
    bytes: u64,
    first: Option<u32>,
    last: String,
}

async fn one_stream(
    c: &mut Conn,
    bytes: &[u8],
    want: &[u8],
    t: Instant,
) -> std::io::Result<StreamOutcome> {
    let mut o = StreamOutcome {
        events: 0,
        chunks: 0,
        completed: false,
        bytes: 0,
        first: None,
        last: String::new(),
    };
    c.begin(bytes).await?;
    let mut ev = Events::default();
    let mut out = Vec::with_capacity(16 * 1024);
    loop {
        out.clear();
        if !c.more(&mut out).await? {
            break;
        }
        o.bytes += out.len() as u64;
        let o = &mut o;
        ev.feed(&out, |data| {
            if o.first.is_none() {
                o.first = Some(micros(t));
            }
            o.events += 1;
            if find(data, b"artifact").is_some() && find(data, b"\"chunk-").is_some() {
                o.chunks += 1;
            } else if find(data, want).is_some() {
                o.completed = true;
            } else if o.chunks > 0 {
                o.last = String::from_utf8_lossy(data).chars().take(300).collect();
            }
        });
    }
    Ok(o)
}

pub async fn closed_loop(args: &Args, wire: Rc<Wire>, kind: Kind) -> Result<Value, String> {
    let sh = Rc::new(Shared::default());
    sh.next.set(1000);
    sh.chunks.set(if args.count == 0 {
        100
    } else {
        args.count as u64
    });
    let mut extra = json!({});
    let mut get_id = None;
    let file = if kind == Kind::Large {
        Some("QUJD".repeat(args.size / 4))
    } else {
        None
    };
    if kind == Kind::Get {
        let (id, hist, len) = ten_messages(&wire).await?;
        extra = json!({ "history": hist, "task_bytes": len });
        get_id = Some(id);
    }
    let rss0 = proc::rss_kb(args.pid);
    let mut req_len = 0;
    for i in 0..args.connections {
        let req = match kind {
            Kind::Send => wire.message(ECHO, false, None, None, false),
            Kind::Large => wire.message(ECHO, false, None, file.as_deref(), true),
            Kind::Stream => wire.message(
                &format!("stream {} 50", sh.chunks.get()),
                true,
                None,
                None,
                false,
            ),
            Kind::Get => wire::template(wire.get_task(get_id.as_deref().unwrap_or(""))),
        };
        req_len = req.len();
        // `tasks/get` must return the task. Its state depends on the server.
        let want: &'static [u8] = match &get_id {
            Some(id) => Box::leak(id.clone().into_bytes().into_boxed_slice()),
            None => wire.completed(),
        };
        spawn_local(worker(wire.host.clone(), req, want, sh.clone(), kind));
        if i % 64 == 63 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs_f64(args.warmup)).await;
    let warm_bad = sh.bad.get();
    proc::reset_peak(args.pid);
    let cpu0 = proc::cpu(args.pid);
    let own0 = proc::cpu(Some(std::process::id()));
    sh.recording.set(true);
    let t = Instant::now();
    let deadline = Duration::from_secs_f64(args.seconds);
    // On a shared machine the server may get little CPU. The run is extended (up to four times) until the
    // server has used enough CPU for a reliable figure per CPU-second.
    while !sh.stop.get() {
        let enough = args.pid.is_none() || proc::cpu(args.pid) - cpu0 >= 0.25 * args.seconds;
        if t.elapsed() >= deadline * 4 || (t.elapsed() >= deadline && enough) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    sh.recording.set(false);
    let secs = t.elapsed().as_secs_f64();
    let cpu = proc::cpu(args.pid) - cpu0;
    let own = proc::cpu(Some(std::process::id())) - own0;
    sh.stop.set(true);
    let ok = sh.ok.get();
    let mut v = json!({
        "seconds": round(secs, 3), "ok": ok, "bad": sh.bad.get(), "bad_in_warmup": warm_bad,
        "per_s": round(ok as f64 / secs, 1),
        "server_cpu_s": round(cpu, 2), "client_cpu_s": round(own, 2),
        "rss_kb_before": rss0, "rss_kb_after": proc::rss_kb(args.pid), "peak_rss_kb": proc::peak_rss_kb(args.pid),
        "response_bytes": sh.bytes.get() / ok.max(1),
    });
    if cpu > 0.0 {
        merge(
            &mut v,
            json!({ "per_cpu_s": round(ok as f64 / cpu, 1), "cpu_ms_per_1k": round(cpu * 1e6 / ok.max(1) as f64, 2) }),
        );
    }
    merge(&mut v, percentiles(&mut sh.lat.borrow_mut()));
    if kind == Kind::Stream {
        let ev = sh.events.get() as f64;
        merge(
            &mut v,
            json!({ "events_per_s": round(ev / secs, 1), "events": ev }),
        );
        if cpu > 0.0 {
            merge(&mut v, json!({ "events_per_cpu_s": round(ev / cpu, 1) }));
        }
        let mut t = sh.ttfe.borrow_mut();
        let p = percentiles(&mut t);
        merge(
            &mut v,
            json!({ "first_event_p50_ms": p["p50_ms"], "first_event_p99_ms": p["p99_ms"] }),
        );
    }
    if kind == Kind::Large {
        let mb = ok as f64 * req_len as f64 / 1e6;
        merge(
            &mut v,
            json!({ "mb_per_s": round(mb / secs, 1), "request_bytes": req_len }),
        );
        if cpu > 0.0 {
            merge(&mut v, json!({ "mb_per_cpu_s": round(mb / cpu, 1) }));
        }
    }
    merge(&mut v, extra);
    if let Some(s) = sh.sample.borrow().clone() {
        merge(&mut v, json!({ "first_bad": s }));
    }
    Ok(v)
}
