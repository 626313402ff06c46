//! A PostgreSQL server of one test, which the test stops and starts.

use std::process::{Command, Stdio};

/// Running server. It is stopped, and its data deleted, at the end.
pub(crate) struct DatabaseServer {
    pub(crate) url: String,
    folder: String,
    programs: String,
}

/// How a server stops.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// Connections are closed, and transactions rolled back.
    Fast,
    /// As in a crash: the server recovers from its log.
    Immediate,
}

/// Path of the functions that start a server.
const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/postgres");

impl DatabaseServer {
    pub(crate) fn start() -> Self {
        let script = "unset ATTACHE_TEST_POSTGRES; start_postgres >&2; \
                      printf '%s\\n' \"$ATTACHE_TEST_POSTGRES\" \"$postgres_folder\" \"$postgres_bin\"";
        let output = run(script, &[]);
        let mut lines = output.lines().map(str::to_owned);
        Self {
            url: lines.next().unwrap(),
            folder: lines.next().unwrap(),
            programs: lines.next().unwrap(),
        }
    }

    /// Stops the server and starts it again.
    pub(crate) fn restart(&self, stop: Stop) {
        let mode = match stop {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        let script =
            "as_postgres \"$2/pg_ctl\" -D \"$1/data\" -l \"$1/server.log\" -m \"$3\" -w -s restart";
        run(script, &[&self.folder, &self.programs, mode]);
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        run(
            "postgres_bin=$2; stop_postgres",
            &[&self.folder, &self.programs],
        );
    }
}

/// Runs a script with the functions of `tests/postgres`. The first argument is the folder of the server.
fn run(script: &str, args: &[&str]) -> String {
    let prelude = "source \"$FUNCTIONS\"; postgres_folder=${1-}; postgres_as=(); \
                   [[ $(id -u) != 0 ]] || postgres_as=(setpriv --reuid=postgres --regid=postgres --clear-groups)";
    let output = Command::new("bash")
        .arg("-c")
        .arg(format!("set -e; {prelude}; {script}"))
        .arg("bash")
        .args(args)
        .env("FUNCTIONS", FUNCTIONS)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
