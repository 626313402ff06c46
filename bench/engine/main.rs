//! Cost of durability, subscribers, long logs and many tasks, as ratios within one run.
//!
//! `engine` prints the table as Markdown, `engine quick` is a smoke test, and `engine events`, `follow`, `get` or
//! `create` runs one part. `engine reader …` is the subscriber process of `follow`.

mod create;
mod events;
mod follow;
mod get;
mod machine;
mod server;

/// Sizes of the measurements.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    events: usize,
    followers: usize,
    idle: usize,
    chunks: usize,
    gets: usize,
    few: usize,
    many: usize,
    creates: usize,
}

const FULL: Effort = Effort {
    rounds: 5,
    events: 200_000,
    followers: 500,
    idle: 1_000,
    chunks: 10_000,
    gets: 200,
    few: 1_000,
    many: 1_000_000,
    creates: 65_536,
};

const QUICK: Effort = Effort {
    rounds: 1,
    events: 1_000,
    followers: 5,
    idle: 5,
    chunks: 100,
    gets: 5,
    few: 100,
    many: 500,
    creates: 512,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => table(FULL, &["events", "follow", "get", "create"]),
        ["quick"] => table(QUICK, &["events", "follow", "get", "create"]),
        [part @ ("events" | "follow" | "get" | "create")] => table(FULL, &[part]),
        ["reader", address, task, count] => {
            follow::reader(address, task, count.parse().expect("a count"))
        }
        _ => {
            eprintln!("usage: engine [quick | events | follow | get | create]");
            std::process::exit(2);
        }
    }
}

fn table(effort: Effort, parts: &[&str]) {
    println!("| case | base | measured | ratio in time | ratio in CPU |");
    println!("|---|---|---|---|---|");
    for part in parts {
        match *part {
            "events" => events::measure(effort),
            "follow" => follow::measure(effort),
            "get" => get::measure(effort),
            _ => create::measure(effort),
        }
    }
}
