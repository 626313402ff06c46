//! How fast JSON is read and written, as a share of plain `serde_json` on the same bytes in the same run.
//!
//! `wire` prints the table, `wire quick` only shows that it runs, and `wire once <case> <ours|plain> <count>` does one
//! thing many times, for a tool that counts instructions.

mod cases;
mod plain;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cases::Case;

/// How much is measured: rounds of each side, and how long one round takes.
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
        // Many short rounds: most fit between two interruptions.
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
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        // One after the other, so that whatever else the machine does hits both.
        for _ in 0..effort.rounds {
            plain.push(time(&mut case.plain, count));
            ours.push(time(&mut case.ours, count));
        }
        let ratios = plain
            .iter()
            .zip(&ours)
            .map(|(plain, ours)| plain / ours)
            .collect();
        let (plain, ours, ratio) = (median(plain), median(ours), median(ratios));
        println!(
            "{:<26} {:>6} {plain:>9.0} {ours:>9.0} {ratio:>6.2}",
            case.name, case.bytes
        );
    }
}

/// How often the plain side fits into a round.
fn count_for(case: &mut Case, round: Duration) -> u32 {
    let mut count = 1;
    while time(&mut case.plain, count) * f64::from(count) < round.as_nanos() as f64 {
        count *= 2;
    }
    count
}

/// Nanoseconds per run.
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
