//! What we write, put before the official SDKs of both versions: they take it, and what they write again is to us what
//! we meant. `tests/peers` has the two programs and tells how they talk.
//!
//! The peers need Python and two packages for it, so `./test quick` does without them.

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

/// How often each kind of value is tried.
const CASES: u32 = 150;

/// One of the two programs. It is started once, and ends when its input does, however we end.
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

/// What a peer makes of a document: the same in its JSON, and in its bytes where there are any.
struct Kept {
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
        let (input, output) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
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

    fn ask(&mut self, kind: &str, form: &str, payload: &str) -> Result<Kept, TestCaseError> {
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
        Ok(Kept {
            json: whole(reply.json.unwrap().get()),
            bytes: reply.proto.as_ref().map(from_hex),
        })
    }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the peers live; whoever says where has put them there, and else it is done here.
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

/// `./test quick` does without peers.
fn quick() -> bool {
    std::env::var_os("ATTACHE_QUICK").is_some_and(|value| value == "1")
}

/// Puts a JSON document before a peer.
fn ask(
    peer: &Mutex<SdkProcess>,
    kind: &str,
    form: &str,
    payload: &[u8],
) -> Result<Kept, TestCaseError> {
    let payload = std::str::from_utf8(payload).unwrap();
    peer.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .ask(kind, form, payload)
}

/// Puts bytes before a peer.
fn ask_bytes(peer: &Mutex<SdkProcess>, kind: &str, bytes: &[u8]) -> Result<Kept, TestCaseError> {
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

/// What the peer kept, read by us, is what was meant.
fn means<T: PartialEq + Debug>(kept: &str, read: Result<T, Error>, meant: &T) -> CaseResult {
    let read = or_fail(read).map_err(|fault| TestCaseError::fail(format!("{fault}\n{kept}")))?;
    prop_assert_eq!(&read, meant, "{}", kept);
    Ok(())
}

/// Numbers inside JSON are doubles in protobuf, and Python prints a whole one as `1.0`.
fn whole(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut inside, mut escaped) = (false, false);
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
fn a_whole_number_is_whole_and_texts_are_left_alone() {
    assert_eq!(
        whole(r#"{"a.0":[1.0,-2.0,0.05,1.05,1e-07,"3.0 \" 4.0","\\"],"b":5.0}"#),
        r#"{"a.0":[1,-2,0.05,1.05,1e-07,"3.0 \" 4.0","\\"],"b":5}"#
    );
}

/// What the golden tests compare us with is sound: the peers take every document, and have the same bytes for it.
#[test]
fn golden_documents_are_those_of_the_official_packages() {
    if quick() {
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
