//! `attache backup` and `attache restore`, and a server whose keys were not restored.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{ServerProcess, attache, run_expecting_error, send, serve, serve_in};
use crate::keys::{bearer, keys};

const CONFIG: &str = "[server]\nallow_anonymous = false\n[agents.echo]\ntype = \"echo\"\n";

/// A JSON-RPC call with a key.
fn call(url: &str, key: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let header = bearer(key);
    let headers = [
        "Content-Type: application/json",
        "A2A-Version: 1.0",
        &header,
    ];
    send(url, "POST", &headers, &body.to_string())
}

fn send_message(url: &str, key: &str) {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    let sent = call(url, key, "SendMessage", json!({"message": message}));
    assert!(sent["result"]["task"].is_object(), "{sent}");
}

/// Runs a command that succeeds, and returns its stderr.
fn run(args: &[&str]) -> String {
    let output = attache(args).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

/// Runs a command that fails, and returns its message.
fn refuse(args: &[&str]) -> String {
    let (code, text) = run_expecting_error(args);
    assert_eq!(code, Some(1), "{text}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server with a key, a configuration file and a task, and an archive of it.
struct Archived {
    server: ServerProcess,
    key: String,
    elsewhere: TempDir,
}

impl Archived {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let elsewhere = TempDir::new().unwrap();
        let config = elsewhere.path().join("my.toml");
        fs::write(&config, CONFIG).unwrap();
        let key = keys(folder.path(), &["add", "ann"]);
        let server = serve_in(&["serve", text(&config)], folder);
        send_message(&server.line("Listening on "), &key);
        let archived = Self {
            server,
            key,
            elsewhere,
        };
        let note = run(&[
            "backup",
            &archived.path("backup.tar"),
            "--config",
            text(&config),
            "--data-dir",
            text(archived.server.folder.path()),
        ]);
        assert!(
            note.contains("tasks.db, attache.key, keys.json, agents.toml"),
            "{note}"
        );
        archived
    }

    /// A path beside the archive.
    fn path(&self, name: &str) -> String {
        text(&self.elsewhere.path().join(name)).to_owned()
    }

    fn restore(&self, folder: &Path, more: &[&str]) -> std::process::Output {
        let archive = self.path("backup.tar");
        let args = ["restore", &archive, "--data-dir", text(folder)];
        attache(&[&args, more].concat()).output().unwrap()
    }
}

#[test]
fn e01_an_archive_restores_tasks_keys_and_configuration() {
    let archived = Archived::new();
    let archive = archived.path("backup.tar");
    let mode = fs::metadata(&archive).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // An archive is not overwritten, and a directory without data is not archived.
    let folder = archived.server.folder.path();
    let again = refuse(&["backup", &archive, "--data-dir", text(folder)]);
    assert!(again.contains("exists already"), "{again}");
    let empty = TempDir::new().unwrap();
    let nothing = refuse(&[
        "backup",
        &archived.path("x"),
        "--data-dir",
        text(empty.path()),
    ]);
    assert!(nothing.contains("nothing to back up"), "{nothing}");
    let restored = TempDir::new().unwrap();
    let output = archived.restore(restored.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    for name in ["tasks.db", "attache.key", "keys.json"] {
        let mode = fs::metadata(restored.path().join(name))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
    }
    let config = restored.path().join("agents.toml");
    assert_eq!(fs::read_to_string(&config).unwrap(), CONFIG);
    let config = text(&config).to_owned();
    let server = serve_in(&["serve", &config], restored);
    let url = server.line("Listening on ");
    let listed = call(&url, &archived.key, "ListTasks", json!({}));
    assert_eq!(listed["result"]["totalSize"], 1, "{listed}");
    let refused = call(&url, "att_wrong", "ListTasks", json!({}));
    assert_eq!(refused["error"]["code"], -31401);
}

#[test]
fn e01_a_restore_changes_nothing_before_all_checks() {
    let archived = Archived::new();
    let folder = archived.server.folder.path();
    let output = archived.restore(folder, &["--replace"]);
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && why.contains("stop it first"),
        "{why}"
    );
    // A flipped byte of the database, and a missing end.
    let archive = archived.path("backup.tar");
    let sound = fs::read(&archive).unwrap();
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let mut short = sound.clone();
    short.truncate(middle);
    let target = archived.elsewhere.path().join("target");
    for content in [damaged, short, b"not an archive".repeat(100)] {
        fs::write(&archive, content).unwrap();
        let output = archived.restore(&target, &[]);
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && why.contains("cannot be restored"),
            "{why}"
        );
        assert!(!target.exists(), "the directory was created: {why}");
    }
    fs::write(&archive, sound).unwrap();
    // Existing files are replaced only on request, and kept.
    assert!(archived.restore(&target, &[]).status.success());
    fs::write(target.join("keys.json"), "old").unwrap();
    let output = archived.restore(&target, &[]);
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && why.contains("--replace"),
        "{why}"
    );
    assert_eq!(fs::read(target.join("keys.json")).unwrap(), b"old");
    let output = archived.restore(&target, &["--replace"]);
    assert!(output.status.success(), "{output:?}");
    let names = fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let aside: Vec<_> = names
        .filter(|path| text(path).contains("/replaced-"))
        .collect();
    assert_eq!(fs::read(aside[0].join("keys.json")).unwrap(), b"old");
    assert!(aside[0].join("tasks.db").is_file());
    assert_ne!(fs::read(target.join("keys.json")).unwrap(), b"old");
}

#[test]
fn e01_a_restore_does_not_lower_protection() {
    let archived = Archived::new();
    let folder = archived.server.folder.path();
    // The archive of a protected server without its keys.
    let keys_file = folder.join("keys.json");
    let kept = fs::read(&keys_file).unwrap();
    fs::remove_file(&keys_file).unwrap();
    let keyless = archived.path("keyless.tar");
    let note = run(&["backup", &keyless, "--data-dir", text(folder)]);
    assert!(note.contains("neither keys.json nor"), "{note}");
    let target = TempDir::new().unwrap();
    let into = ["--data-dir", text(target.path())];
    let why = refuse(&[&["restore", &keyless][..], &into].concat());
    assert!(
        why.contains("callers of the archived server had credentials"),
        "{why}"
    );
    assert_eq!(
        fs::read_dir(target.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().path().ends_with("tasks.db") })
            .count(),
        0
    );
    // The archive of an open server, into the directory of a protected one.
    let open = serve(&["serve", "--echo"]);
    open.line("Listening on ");
    let plain = archived.path("plain.tar");
    run(&["backup", &plain, "--data-dir", text(open.folder.path())]);
    fs::write(target.path().join("keys.json"), kept).unwrap();
    let why = refuse(&[&["restore", &plain, "--replace"][..], &into].concat());
    assert!(why.contains("need credentials"), "{why}");
    assert!(target.path().join("keys.json").is_file());
    run(&[
        &["restore", &plain, "--replace", "--allow-anonymous"][..],
        &into,
    ]
    .concat());
    assert!(!target.path().join("keys.json").exists());
}

/// Another owner can be tested only as root; as another user the test has one owner.
#[test]
fn e03_restored_files_belong_to_the_owner_of_the_directory() {
    use std::os::unix::fs::{MetadataExt, chown};
    let archived = Archived::new();
    let target = TempDir::new().unwrap();
    let is_root = fs::metadata(target.path()).unwrap().uid() == 0;
    if is_root {
        chown(target.path(), Some(12_345), Some(12_345)).unwrap();
    }
    let owner = fs::metadata(target.path()).unwrap().uid();
    assert!(archived.restore(target.path(), &[]).status.success());
    keys(target.path(), &["add", "bob"]);
    for entry in fs::read_dir(target.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().uid(), owner, "{entry:?}");
    }
    assert!(target.path().join("keys.json.lock").exists());
}

/// The manual restore that earlier documentation described: without `keys.json`.
#[test]
fn e01_a_server_that_lost_its_keys_is_not_opened_to_everyone() {
    let archived = Archived::new();
    let restored = TempDir::new().unwrap();
    assert!(archived.restore(restored.path(), &[]).status.success());
    fs::remove_file(restored.path().join("keys.json")).unwrap();
    let data = text(restored.path()).to_owned();
    let serve_args = [
        "serve",
        "--echo",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &data,
    ];
    let public = ["--public-url", "https://agents.example.com"];
    let why = refuse(&[&serve_args[..], &public].concat());
    for expected in [
        "key:ann",
        "had credentials",
        "attache restore",
        "--allow-anonymous",
    ] {
        assert!(why.contains(expected), "{why}");
    }
    // On loopback the operator is warned.
    let mut command = attache(&serve_args);
    let log = archived.elsewhere.path().join("log");
    command.stderr(fs::File::create(&log).unwrap());
    let server = crate::harness::serve_command(&mut command, restored);
    server.line("Listening on ");
    let warning = fs::read_to_string(log).unwrap();
    assert!(
        warning.contains("key:ann") && warning.contains("auth.keys"),
        "{warning}"
    );
}
