//! nginx in front of a server, configured by `packaging/nginx.conf`: streams are not buffered, resume works, gRPC passes,
//! and the server knows the addresses of clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::harness::{DEADLINE, attache, call, serve, serve_in};
use crate::keys::{bearer, keys};

pub(crate) struct Nginx {
    process: Child,
    /// HTTP/1.
    pub(crate) plain: String,
    /// HTTP/2 only.
    grpc: String,
    _folder: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master process ends its workers.
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

/// Starts nginx in front of a server; `None` in quick mode.
fn start_nginx(server: &str) -> Option<Nginx> {
    let shipped = include_str!("../../../packaging/nginx.conf");
    start_nginx_with(server, shipped, free())
}

/// Starts nginx with a changed configuration, on the given address; `None` in quick mode.
pub(crate) fn start_nginx_with(server: &str, site: &str, plain: String) -> Option<Nginx> {
    if std::env::var_os("ATTACHE_QUICK").is_some() {
        return None;
    }
    let host = server
        .strip_prefix("http://")
        .unwrap()
        .trim_end_matches('/');
    let grpc = free();
    let folder = TempDir::new().unwrap();
    let at = folder.path().display();
    let site = site
        .replace("127.0.0.1:41241", host)
        .replace("127.0.0.1:8080", &plain)
        .replace("127.0.0.1:8443", &grpc);
    let whole = format!(
        "daemon off; pid {at}/pid; error_log stderr;\nevents {{}}\nhttp {{ access_log off;
         client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
         uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n{site}\n}}"
    );
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, whole).unwrap();
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(folder.path())
        .arg("-c")
        .arg(&file)
        .stdin(Stdio::null());
    let process = command
        .spawn()
        .expect("nginx is installed: tests/peers/setup");
    let nginx = Nginx {
        process,
        plain: format!("http://{plain}/"),
        grpc: format!("http://{grpc}/"),
        _folder: folder,
    };
    let begun = Instant::now();
    while TcpStream::connect(&plain).is_err() {
        assert!(begun.elapsed() < DEADLINE, "nginx does not listen");
        std::thread::yield_now();
    }
    Some(nginx)
}

/// A free address.
pub(crate) fn free() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

/// Opens a stream with an additional header, and returns its lines.
fn stream(
    url: &str,
    method: &str,
    params: &Value,
    header: &str,
) -> impl Iterator<Item = String> + use<> {
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n\
         {header}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    BufReader::new(stream).lines().map(Result::unwrap)
}

fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// The event ids of a stream.
fn positions(lines: impl Iterator<Item = String>) -> Vec<u64> {
    lines
        .filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok())
        .collect()
}

#[test]
fn nginx_does_not_buffer_streams_and_passes_resumption() {
    let server = serve(&["demo"]);
    let url = server.line("Listening on ");
    let Some(nginx) = start_nginx(&url) else {
        return;
    };
    let mut lines = stream(
        &nginx.plain,
        "SendStreamingMessage",
        &message("slow 3"),
        "X-None: x",
    );
    let data = lines
        .by_ref()
        .find_map(|line| Some(line.strip_prefix("data:")?.to_owned()))
        .unwrap();
    let first: Value = serde_json::from_str(&data).unwrap();
    let id = first["result"]["task"]["id"].clone();
    assert!(id.is_string(), "{first}");
    // The event arrives while the task is running: nginx does not buffer the stream.
    let now = call(&url, "GetTask", &json!({"id": id}));
    assert_ne!(
        now["result"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{now}"
    );
    let cut_at: u64 = lines
        .by_ref()
        .find_map(|line| line.strip_prefix("id:")?.trim().parse().ok())
        .unwrap();
    drop(lines);
    let last_seen = format!("Last-Event-ID: {cut_at}");
    let rest = positions(stream(
        &nginx.plain,
        "SubscribeToTask",
        &json!({"id": id}),
        &last_seen,
    ));
    // The whole stream, directly from the server.
    let task = call(&url, "GetTask", &json!({"id": id}));
    assert_eq!(
        task["result"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{task}"
    );
    assert!(rest.len() >= 3, "{rest:?}");
    assert!(
        rest.iter().all(|position| *position > cut_at),
        "nothing twice: {cut_at} {rest:?}"
    );
    assert!(rest.is_sorted(), "{rest:?}");
}

#[test]
fn grpc_passes_nginx() {
    let server = serve(&["demo"]);
    let url = server.line("Listening on ");
    let Some(nginx) = start_nginx(&url) else {
        return;
    };
    for version in ["1.0", "0.3"] {
        let args = [
            "send",
            "-e",
            &nginx.grpc,
            "--transport",
            "grpc",
            "--a2a-version",
            version,
            "-o",
            "json",
        ];
        for stream in ["--stream=false", "--stream=true"] {
            let output = attache(&args).args([stream, "stream 3"]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{version} {stream}: {output:?}");
            assert!(text.contains("chunk 3 of 3"), "{version} {stream}: {text}");
        }
    }
}

/// Connects to an address from a loopback address of its own.
fn connect_from(source: &str, target: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
        socket.connect(target.parse().unwrap()).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Lists tasks from a loopback address with a key, and returns the status.
fn list_from(source: &str, url: &str, key: &str) -> u16 {
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = connect_from(source, host);
    let credential = bearer(key);
    write!(
        stream,
        "GET /tasks HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nX-Forwarded-For: 127.0.0.9\r\n{credential}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1);
    status
        .unwrap_or_else(|| panic!("{answer}"))
        .parse()
        .unwrap()
}

/// The shipped configurations of nginx and the server, with a lower limit.
#[test]
fn d06_wrong_keys_behind_nginx_lock_out_only_wrong_keys_of_their_sender() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let shipped = include_str!("../../../packaging/agents.toml");
    let limited = shipped.replace("[auth]\n", "[auth]\nmax_failed_logins_per_minute = 3\n");
    assert_ne!(limited, shipped);
    std::fs::write(&file, limited).unwrap();
    let key = keys(folder.path(), &["add", "ann"]);
    let server = serve_in(&["serve", file.to_str().unwrap()], folder);
    let port = server.line("Listening on ");
    let Some(nginx) = start_nginx(&port) else {
        return;
    };
    let statuses: Vec<_> = (0..5)
        .map(|_| list_from("127.0.0.2", &nginx.plain, "att_wrong"))
        .collect();
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    assert_eq!(list_from("127.0.0.2", &nginx.plain, &key), 200);
    assert_eq!(list_from("127.0.0.3", &nginx.plain, &key), 200);
    assert_eq!(list_from("127.0.0.3", &nginx.plain, "att_wrong"), 401);
}
