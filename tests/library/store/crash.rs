//! A server that is killed at any moment, again and again: what it has acknowledged is there.
//!
//! `ATTACHE_CRASHES` says how often; `ATTACHE_SEED` repeats the choices of a run, though not its timing.

mod again;
mod child;
mod follower;
mod ledger;
mod load;
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
/// How often the server is killed at least where everything is checked, and where it has to be quick.
const CRASHES: u64 = 300;
const QUICK: u64 = 60;

/// SplitMix64: the same seed, the same choices.
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

/// Says how to do it again when the test fails.
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

/// Waits for a moment to kill: after so many answers, or at any time.
async fn moment(random: &mut Random, answers: &mut mpsc::Receiver<()>) {
    if random.below(2) == 0 {
        for _ in 0..=random.below(60) {
            with_deadline(answers.recv()).await;
        }
    } else {
        let end = tokio::time::Instant::now() + random.micros(80_000);
        let _ = timeout_at(end, async { while answers.recv().await.is_some() {} }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let seed = Seed(number("ATTACHE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0)));
    let quick = std::env::var_os("ATTACHE_QUICK").is_some();
    let crashes = number("ATTACHE_CRASHES").unwrap_or(if quick { QUICK } else { CRASHES });
    let mut random = Random(seed.0);
    let folder = TempDir::new().unwrap();
    let (mut ledger, mut touched) = (Ledger::default(), Vec::new());
    let (began, follower) = (Instant::now(), Follower::start());
    for crash in 0..crashes {
        let mut process = Process::start(folder.path());
        if random.below(6) == 0 {
            // While it opens the file and recovers.
            let _ = timeout(random.micros(60_000), process.address.take().unwrap()).await;
            process.kill();
            continue;
        }
        let address = process.address().await;
        follower.is_at(address);
        ledger.recovered(address).await;
        ledger.check(address, std::mem::take(&mut touched)).await;
        ledger.send_again(address).await;
        let (answers, mut answered) = mpsc::channel(64);
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
                answers: answers.clone(),
                known,
                opened: Vec::new(),
                parked,
                unanswered: Vec::new(),
            };
            clients.spawn(client.run());
        }
        drop(answers);
        moment(&mut random, &mut answered).await;
        process.kill();
        while let Some(client) = with_deadline(clients.join_next()).await {
            touched.extend(ledger.take_in(client.unwrap()));
        }
    }
    let mut process = Process::start(folder.path());
    let address = process.address().await;
    ledger.recovered(address).await;
    ledger.check(address, std::mem::take(&mut touched)).await;
    ledger.send_again(address).await;
    let all: Vec<_> = ledger.known.keys().cloned().collect();
    ledger.check(address, all).await;
    let followed = follower.finish(address, crashes).await;
    process.kill();
    let killed = began.elapsed();
    let logs = check_file(&folder.path().join(FILE), &ledger, &followed).await;
    let cut = ledger
        .known
        .values()
        .filter(|known| state(&known.task) == FAILED)
        .count();
    println!(
        "{crashes} kills in {killed:?}; {logs} tasks, {cut} of them cut off; {} followed",
        followed.len()
    );
}
