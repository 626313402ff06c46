//! (c) Cost of `GetTask` for an artifact of many chunks, against the same text in fewer chunks.

use attache::store::Sqlite;
use attache::store::sqlite::Options;
use serde_json::{Value, json};

use crate::Effort;
use crate::machine::{Cost, cost};
use crate::server::{Caller, Running};

const FEW: usize = 10;
const TEXT: usize = 100_000;

pub(crate) fn measure(effort: Effort) {
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        Sqlite::open(folder.path().join("tasks.db"), Options::default()).expect("a new file");
    let server = Running::start(store);
    let mut caller = Caller::new(server.address);
    let tasks = [FEW, effort.chunks].map(|chunks| {
        let id = caller.open(chunks, TEXT / chunks);
        server.release(1);
        while state(&mut caller, &id) != "TASK_STATE_COMPLETED" {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        json!({"id": id})
    });
    let bytes = tasks
        .each_ref()
        .map(|task| caller.call("GetTask", task).len());
    let mut costs = [Cost::default(); 2];
    for _ in 0..effort.rounds {
        for (task, sum) in tasks.iter().zip(&mut costs) {
            let (cost, ()) =
                cost(|| (0..effort.gets).for_each(|_| drop(caller.call("GetTask", task))));
            sum.add(cost);
        }
    }
    server.stop();
    let [(few, few_cpu), (many, many_cpu)] =
        costs.map(|cost| cost.per(effort.rounds * effort.gets));
    println!(
        "| (c) get, {} chunks against {FEW}, same text, answers of {} and {} KiB | {few:.0} µs | {many:.0} µs | {:.2} | {:.2} |",
        effort.chunks,
        bytes[1] / 1024,
        bytes[0] / 1024,
        many / few,
        many_cpu / few_cpu,
    );
}

fn state(caller: &mut Caller, id: &str) -> String {
    let params = json!({"id": id, "historyLength": 0});
    let answer: Value = serde_json::from_slice(&caller.call("GetTask", &params)).expect("JSON");
    answer["result"]["status"]["state"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}
