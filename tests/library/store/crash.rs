//! Crash test: a server is killed with SIGKILL at random moments under load. Acknowledged writes must survive.
//!
//! `ATTACHE_CRASHES` sets the number of kills. `ATTACHE_SEED` repeats the random choices of a run, but not its timing.

mod child;
mod follower;
mod ledger;
mod load;
mod rerun_turns;
mod tasks;

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use crate::harness::with_deadline;
use child::{FILE, Process};
use follower::Follower;
use ledger::{Ledger, check_file};
use load::Client;
use tasks::{FAILED, state};

const CLIENTS: u64 = 6;
/// Number of kills in a full run.
const CRASHES: u64 = 300;
/// Number of kills if `ATTACHE_QUICK` is set.
const QUICK_CRASHES: u64 = 60;

/// SplitMix64 generator: the same seed gives the same choices.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn micros(&mut self, end: u64) -> Duration {
        Duration::from_micros(self.below(end))
    }
}

/// Prints the seed if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("ATTACHE_SEED={}", self.0);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|value| value.parse().unwrap())
}

/// Waits for a random moment to kill: after up to 60 replies, or after up to 80 ms.
async fn wait_for_kill(random: &mut Random, replies: &mut mpsc::Receiver<()>) {
    if random.below(2) == 0 {
        for _ in 0..=random.below(60) {
            with_deadline(replies.recv()).await;
        }
    } else {
        let end = tokio::time::Instant::now() + random.micros(80_000);
        let _ = timeout_at(end, async { while replies.recv().await.is_some() {} }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_sigkill() {
    let seed = Seed(number("ATTACHE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0)));
    let quick = std::env::var_os("ATTACHE_QUICK").is_some();
    let crashes = number("ATTACHE_CRASHES").unwrap_or(if quick { QUICK_CRASHES } else { CRASHES });
    let mut random = Random(seed.0);
    let folder = TempDir::new().unwrap();
    let mut ledger = Ledger::default();
    let mut touched = Vec::new();
    let started = Instant::now();
    let follower = Follower::start();
    for crash in 0..crashes {
        let mut process = Process::start(folder.path());
        if random.below(6) == 0 {
            // Kill it while it opens the file and recovers.
            let _ = timeout(random.micros(60_000), process.address.take().unwrap()).await;
            process.kill();
            continue;
        }
        let address = process.address().await;
        follower.set_address(address);
        ledger.wait_for_recovery(address).await;
        ledger.check(address, std::mem::take(&mut touched)).await;
        ledger.resend(address).await;
        let (replies, mut replied) = mpsc::channel(64);
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let parked: Vec<_> = ledger.parked.pop().into_iter().collect();
            let known = parked
                .iter()
                .map(|id| (id.clone(), ledger.known[id].clone()))
                .collect();
            let client = Client {
                name: format!("{crash}-{client}"),
                address,
                random: Random(random.next()),
                sent: 0,
                replies: replies.clone(),
                known,
                created: Vec::new(),
                parked,
                unanswered: Vec::new(),
            };
            clients.spawn(client.run());
        }
        drop(replies);
        wait_for_kill(&mut random, &mut replied).await;
        process.kill();
        while let Some(client) = with_deadline(clients.join_next()).await {
            touched.extend(ledger.merge(client.unwrap()));
        }
    }
    let mut process = Process::start(folder.path());
    let address = process.address().await;
    ledger.wait_for_recovery(address).await;
    ledger.check(address, std::mem::take(&mut touched)).await;
    ledger.resend(address).await;
    let all: Vec<_> = ledger.known.keys().cloned().collect();
    ledger.check(address, all).await;
    let followed = follower.finish(address, crashes).await;
    process.kill();
    let elapsed = started.elapsed();
    let logs = check_file(&folder.path().join(FILE), &ledger, &followed).await;
    let interrupted = ledger
        .known
        .values()
        .filter(|known| state(&known.task) == FAILED)
        .count();
    println!(
        "{crashes} kills in {elapsed:?}; {logs} tasks, {interrupted} interrupted; {} followed",
        followed.len()
    );
}
