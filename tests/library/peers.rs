//! Compatibility with the official SDKs of both versions: they accept all written documents, and
//! their output is read as the same value. `tests/peers` contains the two programs and documents
//! their protocol.
//!
//! They need Python and two packages, so `./test is_quick_run` skips these tests.

#[cfg(all(feature = "jws", feature = "server"))]
mod receivers;
mod v03;
mod v10;

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use attache::Error;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::golden_grpc::from_hex;
use crate::wire::roundtrip::or_fail;

type CaseResult = Result<(), TestCaseError>;

/// Number of generated values per type.
const CASES: u32 = 150;

/// Running SDK program. Started once; it ends when its input is closed.
struct SdkProcess {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

static V03: LazyLock<Mutex<SdkProcess>> =
    LazyLock::new(|| Mutex::new(SdkProcess::start("v03", "0.3.26")));
static V10: LazyLock<Mutex<SdkProcess>> =
    LazyLock::new(|| Mutex::new(SdkProcess::start("v10", "1.3.0")));

/// Output of the SDK for a document: its JSON, and its protobuf encoding if there is one.
struct SdkOutput {
    json: String,
    bytes: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct Reply<'a> {
    ok: bool,
    error: Option<String>,
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    proto: Option<serde_json::Value>,
}

impl SdkProcess {
    fn start(name: &'static str, sdk: &str) -> Self {
        let program = folder().join(name).join("bin/python");
        let mut child = Command::new(&program)
            .arg(repository().join(format!("tests/peers/{name}.py")))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|fault| {
                panic!("{}: {fault}; run tests/peers/setup", program.display())
            });
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut peer = Self {
            name,
            child,
            input,
            output,
        };
        let ready: serde_json::Value = serde_json::from_str(&peer.line()).unwrap();
        assert_eq!(ready["sdk"], sdk, "run tests/peers/setup");
        peer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!(
                "the peer {} ended: {:?}; run tests/peers/setup",
                self.name,
                self.child.wait()
            );
        }
        line
    }

    fn ask(&mut self, kind: &str, form: &str, payload: &str) -> Result<SdkOutput, TestCaseError> {
        writeln!(
            self.input,
            r#"{{"type":"{kind}","form":"{form}","payload":{payload}}}"#
        )
        .unwrap();
        let line = self.line();
        let reply: Reply<'_> = serde_json::from_str(&line).unwrap();
        if !reply.ok {
            let fault = reply.error.unwrap_or_default();
            return Err(TestCaseError::fail(format!(
                "{} {kind} {form}: {fault}\n{payload}",
                self.name
            )));
        }
        Ok(SdkOutput {
            json: strip_integer_fractions(reply.json.unwrap().get()),
            bytes: reply.proto.as_ref().map(from_hex),
        })
    }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder of the installed SDKs: from the environment, or the default of
/// `tests/peers/setup`.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("ATTACHE_PEERS") {
        return folder.into();
    }
    let made = Command::new(repository().join("tests/peers/setup"))
        .stdout(Stdio::null())
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "the peers are not there; run tests/peers/setup"
    );
    repository().join("target/peers")
}

/// Whether `./test is_quick_run` runs, which skips these tests.
fn is_quick_run() -> bool {
    std::env::var_os("ATTACHE_QUICK").is_some_and(|value| value == "1")
}

/// Sends a JSON document to an SDK.
fn ask(
    peer: &Mutex<SdkProcess>,
    kind: &str,
    form: &str,
    payload: &[u8],
) -> Result<SdkOutput, TestCaseError> {
    let payload = std::str::from_utf8(payload).unwrap();
    // A failed case poisons the lock; the remaining cases continue.
    peer.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .ask(kind, form, payload)
}

/// Sends encoded bytes to an SDK.
fn ask_bytes(
    peer: &Mutex<SdkProcess>,
    kind: &str,
    bytes: &[u8],
) -> Result<SdkOutput, TestCaseError> {
    ask(
        peer,
        kind,
        "proto",
        format!("\"{}\"", hex(bytes)).as_bytes(),
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asserts that the output of the SDK is read as the original value.
fn assert_means<T: PartialEq + Debug>(kept: &str, read: Result<T, Error>, meant: &T) -> CaseResult {
    let read = or_fail(read).map_err(|fault| TestCaseError::fail(format!("{fault}\n{kept}")))?;
    prop_assert_eq!(&read, meant, "{}", kept);
    Ok(())
}

/// Removes `.0` from numbers: protobuf numbers are doubles, and Python prints integers as `1.0`.
fn strip_integer_fractions(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut inside = false;
    let mut escaped = false;
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        let ends_number =
            |next: Option<&char>| next.is_none_or(|next| !next.is_ascii_alphanumeric());
        if !inside
            && c == '.'
            && chars.peek() == Some(&'0')
            && ends_number(chars.clone().nth(1).as_ref())
        {
            chars.next();
            continue;
        }
        inside ^= c == '"' && !escaped;
        escaped = inside && c == '\\' && !escaped;
        out.push(c);
    }
    out
}

#[test]
fn integer_fractions_are_stripped_outside_of_strings() {
    assert_eq!(
        strip_integer_fractions(r#"{"a.0":[1.0,-2.0,0.05,1.05,1e-07,"3.0 \" 4.0","\\"],"b":5.0}"#),
        r#"{"a.0":[1,-2,0.05,1.05,1e-07,"3.0 \" 4.0","\\"],"b":5}"#
    );
}

/// Checks the golden files themselves: the SDKs accept every document and produce the same bytes.
#[test]
fn official_sdks_accept_the_golden_documents() {
    if is_quick_run() {
        return;
    }
    let checked = Command::new(repository().join("tests/peers/check"))
        .output()
        .unwrap();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stdout)
    );
}
