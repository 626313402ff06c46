//! Version negotiation over HTTP: every cell of the JSON-RPC and HTTP+JSON matrix.

use std::sync::atomic::{AtomicU64, Ordering};

use attache::ServerSettings;
use serde_json::{Value, json};

use crate::harness::{Answer, Echo, Running, WireFormat, start_with};

/// Expected result of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    /// Served in the version of the route.
    Served,
    /// Refused with this code, in the format of this version.
    Refused(i64, &'static str),
}

/// Expected results by `A2A-Version`: absent, 0.3, 1.0, unsupported, and absent under `strict_version`.
struct Row {
    /// Format of the response.
    form: WireFormat,
    path: &'static str,
    body: Value,
    cells: [Cell; 5],
}

static NAMES: AtomicU64 = AtomicU64::new(0);

const V03: [&str; 5] = ["0.3", "0.3.0", "0.3.9", "0.2", "0.2.5"];
const V1: [&str; 3] = ["1.0", "1.0.0", "1.0.1"];
const OTHER: [&str; 8] = [
    "1.1", "2.0", "0.1", "1", "v1.0", "latest", "1.0, 0.3", "1.0.0.0",
];

fn rows() -> [Row; 5] {
    use Cell::{Refused, Served};
    let call = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": "call-1", "method": method, "params": params});
    let send = |form: WireFormat| json!({"message": form.message("hi", json!({}))});
    let first = json!({"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    let no_03 = Refused(-32009, "0.3");
    let no_1 = Refused(-32009, "1.0");
    // 1.0 has no method with a slash.
    let unknown = Refused(-32601, "1.0");
    let row = |form, path, body, cells| Row {
        form,
        path,
        body,
        cells,
    };
    [
        row(
            WireFormat::Rpc03,
            "/",
            call("message/send", send(WireFormat::Rpc03)),
            [Served, Served, unknown, no_03, Served],
        ),
        row(
            WireFormat::Rpc03,
            "/",
            call("tasks/send", first),
            [Served, Served, unknown, no_03, Served],
        ),
        row(
            WireFormat::Rpc1,
            "/",
            call("SendMessage", send(WireFormat::Rpc1)),
            [Served, no_1, Served, no_1, no_1],
        ),
        row(
            WireFormat::Rest03,
            "/v1/message:send",
            send(WireFormat::Rest03),
            [Served, Served, no_03, no_03, Served],
        ),
        row(
            WireFormat::Rest1,
            "/message:send",
            send(WireFormat::Rest1),
            [Served, no_1, Served, no_1, no_1],
        ),
    ]
}

async fn server(strict: bool) -> Running {
    let mut settings = ServerSettings::default();
    settings.strict_version = strict;
    start_with(Echo, |server| server.server_settings(settings)).await
}

impl Row {
    async fn check(&self, server: &Running, header: &str, query: &str, cell: Cell) {
        let head = format!(
            "POST {}{query} HTTP/1.1\r\nContent-Type: application/json{header}",
            self.path
        );
        // A 0.1 client chooses the ids of its tasks.
        let name = NAMES.fetch_add(1, Ordering::Relaxed).to_string();
        let body = self.body.to_string().replace("mine", &name);
        let answer = server.send(&head, body.as_bytes()).await;
        let asked = format!(
            "{:?} {:?} {query} {header:?}: {answer:?}",
            self.form, self.body["method"]
        );
        match cell {
            Cell::Served => self.served(&answer, &asked),
            Cell::Refused(code, version) => self.refused(&answer, code, version, &asked),
        }
    }

    fn served(&self, answer: &Answer, asked: &str) {
        assert_eq!(answer.status, 200, "{asked}");
        assert_eq!(
            answer.header("a2a-version"),
            Some(self.form.version()),
            "{asked}"
        );
        let payload = self.form.payload(&answer.body);
        let is_old = payload["kind"] == "task" && payload["status"]["state"] == "completed";
        assert_eq!(is_old, self.form == WireFormat::Rpc03, "{asked}");
        if self.form != WireFormat::Rpc03 {
            assert_eq!(
                payload["task"]["status"]["state"], "TASK_STATE_COMPLETED",
                "{asked}"
            );
            let parts = if self.form.is_v1() {
                "parts"
            } else {
                "content"
            };
            assert_eq!(
                payload["task"]["history"][0][parts],
                json!([{"text": "hi"}]),
                "{asked}"
            );
        }
    }

    fn refused(&self, answer: &Answer, code: i64, version: &str, asked: &str) {
        let form = if self.form.version() == version {
            self.form
        } else {
            self.form.other()
        };
        assert_eq!(form.refusal(answer).0, code, "{asked}");
        assert_eq!(
            answer.status,
            if form.is_rpc() { 200 } else { 400 },
            "{asked}"
        );
        if code == -32009 {
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            let details = match form {
                WireFormat::Rpc1 => &body["error"]["data"][0]["metadata"],
                WireFormat::Rpc03 => &body["error"]["data"],
                WireFormat::Rest1 | WireFormat::Rest03 => &body["error"]["details"][0]["metadata"],
            };
            assert_eq!(details["supported"], "1.0,0.3", "{asked}");
        }
    }
}

#[tokio::test]
async fn the_version_matrix_holds_on_the_wire() {
    for strict in [false, true] {
        let server = server(strict).await;
        for row in rows() {
            let [absent, v03, v1, other, when_strict] = row.cells;
            let absent = if strict { when_strict } else { absent };
            row.check(&server, "", "", absent).await;
            row.check(&server, "\r\nA2A-Version:", "?A2A-Version=", absent)
                .await;
            for (versions, cell) in [(&V03[..], v03), (&V1, v1), (&OTHER, other)] {
                for version in versions {
                    row.check(&server, &format!("\r\nA2A-Version: {version}"), "", cell)
                        .await;
                    row.check(&server, &format!("\r\na2a-VERSION:  {version} "), "", cell)
                        .await;
                    let query = version.replace(' ', "%20");
                    row.check(&server, "", &format!("?A2A-Version={query}"), cell)
                        .await;
                }
            }
        }
    }
}

#[tokio::test]
async fn s84_versions_that_disagree_are_never_chosen_from() {
    let server = server(false).await;
    for row in rows() {
        let conflict = row.cells[3];
        for (header, query) in [
            ("\r\nA2A-Version: 1.0\r\nA2A-Version: 0.3", ""),
            ("\r\nA2A-Version: 0.3\r\na2a-version: 1.0", ""),
            ("\r\nA2A-Version: 1.0", "?A2A-Version=0.3"),
            ("\r\nA2A-Version: 0.3", "?A2A-Version=1.0"),
            ("\r\nA2A-Version: 1.0", "?a2a-version=0.3"),
            ("", "?A2A-Version=1.0&A2A-Version=0.3"),
            ("", "?A2A-Version=0.3&a2a-version=1.0"),
            ("\r\nA2A-Version: 1.0, 0.3", ""),
        ] {
            row.check(&server, header, query, conflict).await;
        }
        let own = row.form.version();
        let agreed = row.cells[if row.form.is_v1() { 2 } else { 1 }];
        let twice = format!("\r\nA2A-Version: {own}\r\nA2A-Version: {own}");
        row.check(&server, &twice, &format!("?A2A-Version={own}.0"), agreed)
            .await;
    }
}
