//! Three replicas of `attache serve` on one PostgreSQL database, under load and faults. Afterwards a ledger of acknowledged
//! operations is checked against the database and every replica (`cluster/load.rs`).
//!
//! The tests need `ATTACHE_TEST_POSTGRES` and return early without it. `ATTACHE_CRASHES` multiplies the faults: `./test cluster`.

mod database_server;
mod load;
mod proxy;
mod replicas;

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use serde_json::json;

use crate::database::TestDatabase;
use crate::harness::{call, send, send_text};
use database_server::{DatabaseServer, Stop};
use load::{Load, Random};
use proxy::Network;
use replicas::Cluster;

/// Operations that are acknowledged between two faults.
const OPERATIONS_BETWEEN_FAULTS: u64 = 10;

/// One cluster at a time: with a lease of 1 s, busy processors look like frozen replicas.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of faults: the given one, times `ATTACHE_CRASHES`.
fn faults(count: u64) -> u64 {
    let factor = std::env::var("ATTACHE_CRASHES").ok();
    count * factor.map_or(1, |factor| factor.parse().unwrap())
}

/// Injects faults into random replicas under load, and checks the ledger.
fn run_faults(count: u64, inject: impl FnMut(&mut Cluster, usize, u64)) {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let _turn = one_at_a_time();
    run_faults_on(database, count, inject);
}

fn run_faults_on(
    database: TestDatabase,
    count: u64,
    mut inject: impl FnMut(&mut Cluster, usize, u64),
) {
    let mut cluster = Cluster::start(database);
    let load = Load::start(&cluster);
    let mut random = Random::new(count);
    for number in 0..faults(count) {
        load.ledger.wait_for_progress(OPERATIONS_BETWEEN_FAULTS);
        let index = usize::try_from(random.below(3)).unwrap();
        inject(&mut cluster, index, number);
    }
    load.ledger.wait_for_progress(OPERATIONS_BETWEEN_FAULTS);
    let operations = load.check(&cluster);
    eprintln!(
        "{} faults, {operations} acknowledged operations",
        faults(count)
    );
}

/// Kills a replica and starts it again.
fn kill(cluster: &mut Cluster, index: usize, _: u64) {
    cluster.signal(index, Signal::KILL);
    cluster.replicas[index].process.wait().unwrap();
    cluster.restart(index);
}

/// Freezes a replica until the others have evicted it.
fn freeze(cluster: &mut Cluster, index: usize, _: u64) {
    cluster.signal(index, Signal::STOP);
    cluster.wait_until_evicted(index);
    cluster.signal(index, Signal::CONT);
    cluster.wait_until_ready(index);
}

/// Separates a replica from its database until the others have evicted it. Of three faults one only cuts the connections,
/// and one only loses the answers of the database.
fn partition(cluster: &mut Cluster, index: usize, number: u64) {
    let proxy = &cluster.replicas[index].proxy;
    let network = match number % 3 {
        0 => Network::Paused,
        1 => Network::AnswersLost,
        _ => {
            proxy.cut();
            return;
        }
    };
    proxy.set(network);
    cluster.wait_until_evicted(index);
    cluster.replicas[index].proxy.set(Network::Open);
    cluster.wait_until_ready(index);
}

/// Stops a replica gracefully and starts it again, one after another.
fn roll(cluster: &mut Cluster, _: usize, number: u64) {
    let index = usize::try_from(number % 3).unwrap();
    cluster.signal(index, Signal::TERM);
    assert!(cluster.replicas[index].process.wait().unwrap().success());
    cluster.restart(index);
}

#[test]
fn r22_killed_replicas_lose_nothing_that_was_acknowledged() {
    run_faults(40, kill);
}

#[test]
fn r23_frozen_replicas_are_evicted_and_join_again() {
    run_faults(15, freeze);
}

#[test]
fn r24_partitioned_replicas_are_evicted_and_join_again() {
    run_faults(30, partition);
}

#[test]
fn r11_a_rolling_restart_hands_tasks_over() {
    run_faults(9, roll);
}

#[test]
fn r25_a_database_that_restarts_costs_no_task() {
    if TestDatabase::new().is_none() {
        return;
    }
    let _turn = one_at_a_time();
    let server = DatabaseServer::start();
    let database = TestDatabase::at(server.url.clone());
    run_faults_on(database, 6, |cluster, _, number| {
        let stop = if number % 2 == 0 {
            Stop::Fast
        } else {
            Stop::Immediate
        };
        server.restart(stop);
        (0..3).for_each(|index| cluster.wait_until_ready(index));
    });
}

/// Starts a task on one replica, and reads, lists, cancels and continues it on the others, in 1.0 and 0.3.
#[test]
fn r21_each_operation_works_on_another_replica_than_the_one_before() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let _turn = one_at_a_time();
    let cluster = Cluster::start(database);
    let urls = cluster.urls();
    for round in 0..3 {
        let [one, two, three] = [0, 1, 2].map(|index: usize| &*urls[(index + round) % 3]);
        let asked = send_text(one, "ask");
        assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        let message = json!({
            "messageId": "answer", "taskId": asked["id"], "role": "ROLE_USER", "parts": [{"text": "Ann"}],
        });
        let answered = call(two, "SendMessage", &json!({"message": message}));
        let answered = &answered["result"]["task"];
        assert_eq!(answered["status"]["state"], "TASK_STATE_COMPLETED");
        let found = call(three, "GetTask", &json!({"id": asked["id"]}));
        assert_eq!(found["result"], *answered);
        // HTTP+JSON, and the method names of 0.3.
        let headers = ["Content-Type: application/json"];
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": asked["id"]}});
        let old = send(one, "POST", &headers, &body.to_string());
        assert_eq!(old["result"]["status"]["state"], "completed", "{old}");
        let path = format!("{two}tasks/{}", asked["id"].as_str().unwrap());
        let rest = send(&path, "GET", &["A2A-Version: 1.0"], "");
        assert_eq!(rest, *answered);

        let message =
            json!({"messageId": "slow", "role": "ROLE_USER", "parts": [{"text": "slow 60"}]});
        let configuration = json!({"returnImmediately": true});
        let params = json!({"message": message, "configuration": configuration});
        let slow = call(one, "SendMessage", &params)["result"]["task"].clone();
        let canceled = call(two, "CancelTask", &json!({"id": slow["id"]}));
        assert_eq!(
            canceled["result"]["status"]["state"], "TASK_STATE_CANCELED",
            "{canceled}"
        );
        let listed = call(three, "ListTasks", &json!({"contextId": slow["contextId"]}));
        let listed = &listed["result"]["tasks"][0];
        assert_eq!(listed["id"], slow["id"], "{listed}");
        assert_eq!(listed["status"]["state"], "TASK_STATE_CANCELED");
    }
}
