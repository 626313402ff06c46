//! Speed of reading and writing JSON, relative to plain `serde_json` on the same bytes in the same run.
//!
//! `wire` prints the table, `wire quick` is a smoke test, and `wire once <case> <ours|plain> <count>` repeats one
//! case, for a tool that counts instructions.

mod cases;
mod plain;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cases::Case;

/// Number of rounds per side, and the duration of a round.
struct Effort {
    rounds: usize,
    round: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        // Rounds are short, so that most of them run without preemption.
        [] => table(&Effort {
            rounds: 501,
            round: Duration::from_micros(300),
        }),
        ["quick"] => table(&Effort {
            rounds: 3,
            round: Duration::from_micros(200),
        }),
        ["cases"] => cases::all()
            .iter()
            .for_each(|case| println!("{}", case.name)),
        ["once", case, side, count] => once(case, side, count.parse().expect("a count")),
        _ => {
            eprintln!("usage: wire [quick | cases | once <case> <ours|plain> <count>]");
            std::process::exit(2);
        }
    }
}

fn table(effort: &Effort) {
    println!(
        "{:<26} {:>6} {:>9} {:>9} {:>6}",
        "case", "bytes", "plain ns", "ours ns", "ratio"
    );
    for mut case in cases::all() {
        let count = count_for(&mut case, effort.round);
        let mut plain = Vec::new();
        let mut ours = Vec::new();
        // The sides alternate, so that other load of the machine affects both.
        for _ in 0..effort.rounds {
            plain.push(time(&mut case.plain, count));
            ours.push(time(&mut case.ours, count));
        }
        let ratios = plain
            .iter()
            .zip(&ours)
            .map(|(plain, ours)| plain / ours)
            .collect();
        let plain = median(plain);
        let ours = median(ours);
        let ratio = median(ratios);
        println!(
            "{:<26} {:>6} {plain:>9.0} {ours:>9.0} {ratio:>6.2}",
            case.name, case.bytes
        );
    }
}

/// Returns the number of runs of the plain side that fill a round.
fn count_for(case: &mut Case, round: Duration) -> u32 {
    let mut count = 1;
    while time(&mut case.plain, count) * f64::from(count) < round.as_nanos() as f64 {
        count *= 2;
    }
    count
}

/// Returns nanoseconds per run.
fn time(run: &mut dyn FnMut() -> usize, count: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        black_box(run());
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn once(name: &str, side: &str, count: u32) {
    let mut case = cases::all()
        .into_iter()
        .find(|case| case.name == name)
        .expect("a name that `cases` prints");
    let run = if side == "ours" {
        &mut case.ours
    } else {
        &mut case.plain
    };
    for _ in 0..count {
        black_box(run());
    }
}
