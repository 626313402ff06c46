//! Configuration files: `serve`, `check` and `init`.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{attache, run_expecting_error, send, send_text, serve_in};

fn folder(text: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, text).unwrap();
    (folder, file.display().to_string())
}

/// Runs the program, and returns its output.
fn run_program(args: &[&str]) -> String {
    let output = attache(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[cfg(unix)]
#[test]
fn every_agent_of_a_file_is_served() {
    let (folder, file) = folder(
        r#"
        [server]
        root = "shout"
        [store]
        kind = "memory"
        [agents.words]
        type = "command"
        command = ["wc", "-w"]
        [agents.shout]
        type = "command"
        name = "Shout"
        description = "Says it louder"
        command = "tr a-z A-Z"
        [[agents.shout.skills]]
        id = "louder"
        description = "Makes text loud"
        [agents.tea]
        type = "script"
        file = "tea.toml"
        "#,
    );
    let tea = "[[rule]]\nword = \"tea\"\nabout = \"Makes tea\"\nsteps = [{ complete = \"here\" }]";
    std::fs::write(folder.path().join("tea.toml"), tea).unwrap();
    let server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    let text = |task: &Value| {
        task["artifacts"][0]["parts"][0]["text"]
            .as_str()
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(text(&send_text(&url, "hello")), "HELLO");
    assert_eq!(
        text(&send_text(&format!("{url}agents/shout/"), "hello")),
        "HELLO"
    );
    assert_eq!(
        text(&send_text(&format!("{url}agents/words/"), "one two three")),
        "3"
    );
    assert_eq!(
        send_text(&format!("{url}agents/tea/"), "tea")["status"]["message"]["parts"],
        json!([{"text": "here"}])
    );
    let card = send(
        &server.line("Card: "),
        "GET",
        &["Accept: application/json"],
        "",
    );
    assert_eq!(
        (&card["name"], &card["skills"][0]["id"]),
        (&json!("Shout"), &json!("louder"))
    );
    assert_eq!(
        card["defaultInputModes"],
        json!(["text/plain", "application/json", "*/*"]),
        "what a command reads"
    );
    assert_eq!(card["defaultOutputModes"], json!(["text/plain"]));
    let card = send(
        &format!("{url}agents/tea/.well-known/agent-card.json"),
        "GET",
        &["Accept: application/json"],
        "",
    );
    assert_eq!(card["skills"][0]["description"], "Makes tea");
    assert_eq!(
        (&card["defaultInputModes"], &card["defaultOutputModes"]),
        (&json!(["*/*"]), &json!(["*/*"]))
    );
    server.line("Tasks: ");
    for (name, title) in [("shout", "Shout"), ("words", "words"), ("tea", "tea")] {
        let line = server.line(&format!("Agent {name}: {url}agents/{name}/ (-a "));
        assert_eq!(line, format!("'{url}#{title}')"));
    }
    // An agent is resolved by its URL, its card URL and its catalog name.
    for agent in [
        format!("{url}agents/words"),
        format!("{url}agents/words/"),
        format!("{url}#words"),
    ] {
        assert!(
            run_program(&["send", "-a", &agent, "one two"]).contains("  2\n"),
            "{agent}"
        );
    }
    let (code, complaint) =
        run_expecting_error(&["send", "-a", &format!("{url}agents/none"), "hi"]);
    assert_eq!(code, Some(3), "{complaint}");
}

#[test]
fn d02_d05_check_refuses_impossible_limits() {
    for (line, expected) in [
        ("max_connections = 0", "max_connections"),
        (
            "max_connections = 10\nmax_connections_per_address = 11",
            "max_connections_per_address is 11; it must be 1 to max_connections = 10",
        ),
        ("reserved_connections = 0", "reserved_connections"),
        ("max_outgoing_bytes = 0", "max_outgoing_bytes"),
        (
            "max_outgoing_bytes = 10\nmax_outgoing_bytes_per_caller = 11",
            "max_outgoing_bytes_per_caller is 11; it must be 1 to max_outgoing_bytes = 10",
        ),
        (
            "max_buffered_body_bytes_per_caller = 0",
            "max_buffered_body_bytes_per_caller",
        ),
        ("admin_max_connections = 0", "server.admin_max_connections"),
    ] {
        let (_folder, file) = folder(&format!("[server]\n{line}\n[agents.echo]\ntype = \"echo\""));
        let error = run_expecting_error(&["check", &file]).1;
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn check_validates_a_file_without_serving_it() {
    let (_folder, file) = folder("[agents.echo]\ntype = \"echo\"");
    assert_eq!(
        run_program(&["check", &file]),
        format!("{file} is fine: one agent\n")
    );
    let (_folder, file) = folder("[agents.echo]\n\ntype = \"ecko\"");
    for args in [["check", &file], ["serve", &file]] {
        let (code, text) = run_expecting_error(&args);
        assert_eq!(code, Some(1));
        assert_eq!(
            text,
            format!(
                "Error: ATTACHE_ERR_CONFIG\nMessage: {file}:3: agents.echo.type: unknown type of agent `ecko`; did you mean `echo`?\n"
            )
        );
    }
    for (text, why) in [
        (
            "[agents.a]\ntype = \"script\"\nfile = \"none.toml\"",
            "toml:3: agents.a.file: cannot read",
        ),
        (
            "[server]\nroot = \"b\"\n[agents.a]\ntype = \"echo\"",
            "toml:2: server.root: there is no agent `b`",
        ),
        #[cfg(unix)]
        (
            "[agents.a]\ntype = \"command\"\ncommand = \"a 'b\"",
            "toml:3: agents.a.command: a quote is not closed",
        ),
    ] {
        let (_folder, file) = folder(text);
        let (code, text) = run_expecting_error(&["check", &file]);
        assert!(code == Some(1) && text.contains(why), "{text}");
    }
    let agent = "[agents.a]\ntype = \"echo\"\n";
    let (data, _) = folder("");
    let key = data.path().join("key.pem");
    std::fs::write(&key, "no key").unwrap();
    let signed = format!(
        "[server]\ncard_signing_key = {:?}\n{agent}",
        key.display().to_string()
    );
    for (text, why) in [
        (
            "[server]\nlisten = \"127.0.0.1:0\"",
            "has no agents; add one: [agents.<name>]",
        ),
        (
            &format!("[server]\nlisten = \"nowhere\"\n{agent}"),
            "cannot listen on nowhere",
        ),
        (
            &format!("[server]\nlisten = \"0.0.0.0:80\"\n{agent}"),
            "other machines can reach 0.0.0.0:80",
        ),
        (
            &format!("[server]\ntls_cert = \"none.pem\"\n{agent}"),
            "TLS needs a private key",
        ),
        (
            &format!("[server]\ntls_cert = \"none.pem\"\ntls_key = \"none.pem\"\n{agent}"),
            "cannot read",
        ),
        (
            &format!("{agent}[agents.a.auth]\nscopes = [\"x\"]"),
            "callers are not authenticated",
        ),
        #[cfg(unix)]
        (&signed, "other users can read the key"),
    ] {
        let none = data.path().join("none");
        let (_folder, file) = folder(&format!(
            "[store]\ndata_dir = {:?}\n{text}",
            none.display().to_string()
        ));
        for verb in ["check", "serve"] {
            let (code, text) = run_expecting_error(&[verb, &file]);
            assert!(
                code == Some(1) && text.contains(why),
                "{verb}: {text}\n{text}"
            );
        }
        assert!(!none.exists(), "nothing is made");
    }
}

#[test]
fn a_broken_pipe_is_not_reported() {
    let (folder, file) = folder("[agents.echo]\ntype = \"echo\"");
    let data = folder.path().display().to_string();
    assert!(
        attache(&["keys", "add", "ci", "--data-dir", &data])
            .output()
            .unwrap()
            .status
            .success()
    );
    for args in [
        &["check", "--schema"][..],
        &["check", &file],
        &["serve", "--print-config", &file],
        &["init", "-"],
        &["keys", "list", "--data-dir", &data],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = attache(args).stdout(writer).output().unwrap();
        assert_eq!(
            (ended.status.code(), &*ended.stderr),
            (Some(141), &b""[..]),
            "{args:?} {ended:?}"
        );
    }
}

#[test]
fn print_config_shows_sources() {
    let (_folder, file) =
        folder("[server]\nlisten = \"127.0.0.1:1\"\n[agents.echo]\ntype = \"echo\"");
    let printed = run_program(&["serve", "--print-config", "--listen", "127.0.0.1:2", &file]);
    let listen = printed
        .lines()
        .find(|line| line.starts_with("listen = "))
        .unwrap();
    assert!(
        listen.contains("127.0.0.1:2") && listen.ends_with("# --listen"),
        "{listen}"
    );
    assert!(
        printed
            .lines()
            .any(|line| line.starts_with("type = \"echo\"") && line.ends_with("agents.toml:4")),
        "{printed}"
    );
}

#[cfg(unix)]
#[test]
fn init_writes_a_starter_file_once() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml").display().to_string();
    assert!(run_program(&["init", &file]).contains(&format!("attache serve {file}")));
    let (code, complaint) = run_expecting_error(&["init", &file]);
    assert!(
        code == Some(1) && complaint.contains("--force"),
        "{complaint}"
    );
    run_program(&["init", "--force", &file]);
    assert!(run_program(&["check", &file]).ends_with("2 agents\n"));
    let server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    assert_eq!(
        send_text(&url, "one two")["artifacts"][0]["parts"][0]["text"]
            .as_str()
            .unwrap()
            .trim(),
        "2"
    );
}

/// Every configuration in `docs/` and `examples/` can be served.
#[cfg(unix)]
#[test]
fn every_documented_configuration_can_be_served() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut shown = 0;
    for page in files(&root.join("docs"), "md") {
        let text = std::fs::read_to_string(&page).unwrap();
        let blocks = text
            .split("```toml\n")
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap());
        // `tests/docs` makes the certificates of blocks with TLS, and checks those blocks.
        let is_served = |block: &&str| block.contains("[agents.") && !block.contains("tls_cert");
        for block in blocks.filter(is_served) {
            started(block, &page.display().to_string());
            shown += 1;
        }
    }
    for file in files(&root.join("examples"), "toml") {
        started(
            &std::fs::read_to_string(&file).unwrap(),
            &file.display().to_string(),
        );
        shown += 1;
    }
    assert!(shown >= 3, "{shown}");
}

fn files(folder: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

/// Serves a configuration in a directory with the files it refers to, and gets the card of every agent.
#[cfg(unix)]
fn started(text: &str, shown_in: &str) {
    let (folder, file) = folder(text);
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/files");
    let below = folder.path().join("files");
    std::fs::create_dir(&below).unwrap();
    for entry in std::fs::read_dir(&files).unwrap() {
        let entry = entry.unwrap();
        for folder in [folder.path(), &below] {
            std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    let key = folder.path().join("delegation.pem");
    std::fs::write(&key, include_str!("../../../src/jws/tests/p256.pem")).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let server = serve_in(&["serve", "--store", "memory", &file], folder);
    let line = server.lines.recv_timeout(crate::harness::DEADLINE);
    let line = line.unwrap_or_else(|_| panic!("not served: {shown_in}\n{text}"));
    let url = line
        .strip_prefix("Listening on ")
        .unwrap_or_else(|| panic!("{shown_in}: {line}"));
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("[agents.")?.strip_suffix(']'));
    for name in names.filter(|name| !name.contains('.')) {
        let section = text.split(&format!("[agents.{name}]")).nth(1);
        let section = section.unwrap_or_default().split("\n[").next();
        let is_private =
            section.is_some_and(|keys| keys.contains(r#"card_access = "authenticated""#));
        let card = send(
            &format!("{url}agents/{name}/.well-known/agent-card.json"),
            "GET",
            &["Accept: application/json"],
            "",
        );
        if is_private {
            assert_eq!(card["error"]["code"], 401, "{shown_in}: {name}: {card}");
            continue;
        }
        assert!(
            card["skills"][0]["id"].is_string(),
            "{shown_in}: {name}: {card}"
        );
    }
}

#[cfg(unix)]
#[test]
fn s82_a_secret_in_a_readable_file_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    for (value, mode, is_warned) in [
        ("Bearer canary", 0o644, true),
        ("Bearer canary", 0o640, true),
        ("Bearer canary", 0o600, false),
        ("Bearer ${CANARY}", 0o644, false),
    ] {
        let (folder, file) = folder(&format!(
            "[agents.a]\ntype = \"http\"\nurl = \"http://127.0.0.1:9/\"\nheaders = {{ Authorization = \"{value}\" }}\n"
        ));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = attache(&["check", &file])
            .env("CANARY", "canary")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let wanted = format!(
            "warning: other users can read {file}, and agents.a.headers.Authorization is a secret: chmod 600"
        );
        assert_eq!(
            stderr.contains(&wanted),
            is_warned,
            "{value} {mode:o}: {stderr}"
        );
        assert!(!stderr.contains("canary"), "{stderr}");
        drop(folder);
    }
}

#[cfg(unix)]
#[test]
fn check_and_serve_read_agents_toml_of_the_working_directory() {
    let (folder, _) = folder("[agents.a]\ntype = \"echo\"\n");
    let in_folder = |args: &[&str]| {
        let mut command = attache(args);
        command.current_dir(folder.path()).output().unwrap()
    };
    let checked = in_folder(&["check"]);
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(checked.stdout, b"agents.toml is fine: one agent\n");
    let printed = in_folder(&["serve", "--print-config", "-o", "json"]);
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let settings = printed["settings"].as_array().unwrap();
    let find = |key: &str| settings.iter().find(|one| one["key"] == key).unwrap();
    assert_eq!(find("agents.a.type")["source"], "agents.toml:2");
    assert_eq!(find("server.listen")["source"], "default");
    assert!(
        find("server.tls_cert")["value"].is_null(),
        "keys that are not set"
    );
    let empty = TempDir::new().unwrap();
    for verb in ["check", "serve"] {
        let output = attache(&[verb]).current_dir(empty.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("Hint: write one with `attache init`"),
            "{text}"
        );
    }
}

#[cfg(unix)]
#[test]
fn check_reports_all_errors_in_both_formats() {
    let (data, file) = folder(
        "[server]\nlisten = 5\n[agents.a]\ntype = \"command\"\ncommand = [\"no-such-program\"]\n[agents.b]\ntype = \"ecco\"\n",
    );
    let (code, text) = run_expecting_error(&["check", &file]);
    assert_eq!(code, Some(1));
    assert!(text.starts_with("Error: ATTACHE_ERR_CONFIG\n"), "{text}");
    assert_eq!(text.matches("Message: ").count(), 3, "{text}");
    for place in [":2: ", ":5: ", ":7: "] {
        assert!(text.contains(&format!("{file}{place}")), "{text}");
    }
    let output = attache(&["check", &file, "-o", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        (&report["schema"], &report["valid"]),
        (&json!("attache.check/1"), &json!(false))
    );
    assert_eq!(report["errors"].as_array().unwrap().len(), 3, "{report}");
    // A relative directory of the file, and one of the flag.
    let valid = data.path().join("valid.toml");
    std::fs::write(&valid, "[agents.a]\ntype = \"echo\"\n").unwrap();
    let args = [
        "check",
        valid.to_str().unwrap(),
        "--data-dir",
        data.path().to_str().unwrap(),
    ];
    assert!(run_program(&args).ends_with("is fine: one agent\n"));
}

#[test]
fn verbs_without_an_agent_have_the_same_errors_and_formats() {
    let empty = TempDir::new().unwrap();
    let missing = empty.path().join("missing").display().to_string();
    for verb in [&["keys", "list"][..], &["db", "check"], &["reload"]] {
        let args = [verb, &["--data-dir", &missing]].concat();
        let (code, text) = run_expecting_error(&args);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.starts_with("Error: ATTACHE_ERR_FAILED\nMessage: "),
            "{text}"
        );
        let output = attache(&[&args[..], &["-o", "json"]].concat())
            .output()
            .unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            envelope["error"]["code"], "ATTACHE_ERR_FAILED",
            "{envelope}"
        );
    }
    let folder = empty.path().display().to_string();
    let run = |args: &[&str]| -> Value {
        let all = [args, &["--data-dir", &folder, "-o", "json"]].concat();
        serde_json::from_str(&run_program(&all)).unwrap()
    };
    let added = run(&["keys", "add", "ada"]);
    assert_eq!(
        (&added["name"], added["key"].is_string()),
        (&json!("ada"), true)
    );
    let listed = run(&["keys", "list"]);
    assert_eq!(listed["keys"][0]["id"], added["id"]);
    assert!(listed["keys"][0]["key"].is_null(), "{listed}");
    assert_eq!(run(&["keys", "revoke", "ada"])["revoked"], 1);
}
