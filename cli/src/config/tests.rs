//! Tests of configuration layers, sections and error messages.

use super::*;

/// Loads a file with this text.
fn read(text: &str, environment: Environment<'_>, flags: &FlagValues) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, text).unwrap();
    let result = Config::load(Some(&file), environment, flags);
    result.map_err(|error| {
        error
            .to_string()
            .replace(&format!("{}/", folder.path().display()), "")
    })
}

fn plain(text: &str) -> Result<Config, String> {
    read(text, &|_| None, &FlagValues::default())
}

#[test]
fn flag_before_environment_before_file_before_default() {
    let file = "[server]\nlisten = \"file:1\"\n[store]\nkind = \"memory\"";
    let environment = |name: &str| match name {
        "ATTACHE_LISTEN" => Some("environment:1".to_owned()),
        "TASK_STORE_TYPE" => Some("null".to_owned()),
        "ATTACHE_ALLOW_ANONYMOUS" => Some("yes".to_owned()),
        "ATTACHE_PUBLIC_URL" => Some(String::new()),
        _ => None,
    };
    let mut flags = FlagValues::default();
    flags.set("server.listen", "flag:1");
    assert_eq!(plain("").unwrap().server, ServerSection::default());
    assert_eq!(plain(file).unwrap().server.listen, "file:1");
    let config = read(file, &environment, &FlagValues::default()).unwrap();
    assert_eq!(
        (&*config.server.listen, config.store.kind),
        ("environment:1", StoreKind::Null)
    );
    assert!(config.server.allow_anonymous && config.server.public_url.is_none());
    let config = read(file, &environment, &flags).unwrap();
    assert_eq!(
        (&*config.server.listen, config.store.kind),
        ("flag:1", StoreKind::Null)
    );
}

#[test]
fn store_kinds_accept_the_names_of_older_programs() {
    for (name, kind) in [
        ("local", StoreKind::Memory),
        ("memory", StoreKind::Memory),
        ("null", StoreKind::Null),
        ("sqlite", StoreKind::Sqlite),
    ] {
        let environment = |variable: &str| (variable == "TASK_STORE_TYPE").then(|| name.to_owned());
        assert_eq!(
            read("", &environment, &FlagValues::default())
                .unwrap()
                .store
                .kind,
            kind
        );
    }
    let error = read(
        "",
        &|name| (name == "TASK_STORE_TYPE").then(|| "redis".to_owned()),
        &FlagValues::default(),
    );
    let error = error.unwrap_err();
    assert!(
        error.starts_with("TASK_STORE_TYPE: store.kind: unknown value `redis`"),
        "{error}"
    );
}

#[test]
fn every_section_reaches_its_settings() {
    let config = plain(
        r#"
        [server]
        max_body_bytes = "1MiB"
        heartbeat = "never"
        trusted_proxies = ["10.0.0.1"]
        card_form = "v03"
        [store]
        max_age = "7d"
        max_tasks = 5
        [limits]
        max_turn_time = "10m"
        max_parts = 7
        on_restart = { run_again = { attempts = 3 } }
        on_waiting = { fail_after = "1h" }
        [agents.words]
        type = "command"
        command = "wc -w"
        timeout = "1m30s"
        max_output = "1KiB"
        [agents.words.limits]
        max_turns = 2
        max_silence = "5s"
        "#,
    )
    .unwrap();
    let seconds = std::time::Duration::from_secs;
    assert_eq!(
        (
            config.server_settings.max_body_bytes,
            config.server_settings.heartbeat
        ),
        (1 << 20, None)
    );
    assert_eq!(
        config.server_settings.trusted_proxies,
        [std::net::IpAddr::from([10, 0, 0, 1])]
    );
    assert_eq!(
        (config.engine.max_age, config.engine.max_tasks),
        (Some(seconds(604_800)), Some(5))
    );
    assert_eq!(
        (config.engine.max_turn_time, config.limits.max_parts),
        (Some(seconds(600)), 7)
    );
    assert_eq!(
        config.engine.on_restart,
        attache::RestartPolicy::RunAgain { attempts: 3 }
    );
    assert_eq!(
        config.engine.on_waiting,
        attache::UnansweredPolicy::FailAfter(seconds(3600))
    );
    let agent = &config.agents[0];
    assert_eq!(
        (agent.settings.max_turns, agent.settings.max_silence),
        (Some(2), Some(seconds(5)))
    );
}

#[test]
fn auth_and_egress_sections_reach_their_settings() {
    let config = plain(
        r#"
        [auth]
        keys = true
        [auth.limits]
        calls_per_second = "unlimited"
        bytes_per_minute = "1MiB"
        waiting_tasks = 3
        [[auth.issuers]]
        issuer = "https://login.example.com"
        audience = "agents"
        algorithms = ["ES256", "EdDSA"]
        [[auth.rules]]
        scopes = ["cancel"]
        operations = ["cancel_task"]
        agent = "a"
        [push]
        timeout = "3s"
        first_retries = ["1s", "5s"]
        [egress]
        allow = ["*.example.com", "10.1.0.0/16"]
        allow_only = true
        [agents.a]
        type = "echo"
        [agents.a.auth]
        scopes = ["talk"]
        audience = "a-alone"
        skills = { deploy = ["deploy"] }
        operations = [{ operations = ["list_tasks"], scopes = ["list"] }]
        "#,
    )
    .unwrap();
    let caller_limits = &config.caller_limits;
    assert_eq!(
        (caller_limits.calls_per_second, caller_limits.waiting_tasks),
        (None, Some(3))
    );
    assert_eq!(caller_limits.bytes_per_minute.unwrap().get(), 1 << 20);
    let push = config.push(true);
    let seconds = std::time::Duration::from_secs;
    assert_eq!(
        (push.timeout, push.first_retries),
        (seconds(3), vec![seconds(1), seconds(5)])
    );
    assert!(push.egress.loopback && push.egress.allow_only && push.egress.allow.len() == 2);
    assert!(!config.push(false).egress.loopback);
    assert!(
        config
            .access(Some(attache::auth::ApiKeys::new()))
            .unwrap()
            .is_some()
    );
    assert!(config.has_skill_rules(&config.agents[0]));
    for (rules, expected) in [
        ("", false),
        ("[[auth.rules]]\nscopes = [\"x\"]\n", false),
        ("[[auth.rules]]\nscopes = [\"x\"]\nskill = \"s\"\n", true),
        (
            "[[auth.rules]]\nscopes = [\"x\"]\nskill = \"s\"\nagent = \"a\"\n",
            true,
        ),
        (
            "[[auth.rules]]\nscopes = [\"x\"]\nskill = \"s\"\nagent = \"b\"\n",
            false,
        ),
    ] {
        let config = plain(&format!(
            "{rules}[agents.a]\ntype = \"echo\"\n[agents.b]\ntype = \"echo\"\n"
        ))
        .unwrap();
        assert_eq!(
            config.has_skill_rules(&config.agents[0]),
            expected,
            "{rules}"
        );
    }
    let router = "[agents.a]\ntype = \"echo\"\n[agents.b]\ntype = \"router\"\nagents = [\"a\"]\n";
    let config = plain(&format!(
        "{router}[agents.b.auth]\nskills = {{ s = [\"x\"] }}\n"
    ))
    .unwrap();
    assert!(
        config.has_skill_rules(
            config
                .agents
                .iter()
                .find(|agent| agent.name == "a")
                .unwrap()
        ),
        "behind b"
    );
    let config = plain(router).unwrap();
    assert!(!config.has_skill_rules(&config.agents[0]));
    let nothing = plain("").unwrap();
    assert!(nothing.access(None).unwrap().is_none());
}

#[test]
fn s36_a_rule_without_effect_is_refused() {
    let echo = "[agents.a]\ntype = \"echo\"\n";
    for (text, error) in [
        (
            "[agents.a.auth]\nscopes = [\"x\"]",
            "auth: there are rules or delegates, but callers are not authenticated",
        ),
        (
            "[[auth.delegation]]\ncaller = \"key:b\"\nkey_set = \"http://b/keys\"",
            "auth: there are rules or delegates, but callers are not authenticated",
        ),
        (
            "[[auth.rules]]\nscopes = []\nagent = \"b\"",
            "auth.rules.0.agent: there is no agent `b`",
        ),
        (
            "[[auth.certificates]]\nname = \"ci\"",
            "auth.certificates: there is no authority for client certificates",
        ),
        (
            "[[auth.issuers]]\nissuer = \"nonsense\"\naudience = \"a\"",
            "auth.issuers.0.issuer: ",
        ),
    ] {
        let config = plain(&format!("{echo}{text}")).unwrap();
        let message = config.access(None).err().unwrap().to_string();
        assert!(message.contains(error), "{message}");
    }
    for (text, error) in [
        (
            "[[auth.rules]]\nscope = []",
            "unknown key `scope`; did you mean `scopes`?",
        ),
        (
            "[[auth.rules]]\noperations = [\"cancel\"]",
            "unknown value `cancel`; did you mean `cancel_task`?",
        ),
        ("[auth.limits]\nburst = 0", "auth.limits.burst: "),
        (
            "[auth.limits]\ncalls_per_second = 0",
            "expected a number above 0, or \"unlimited\"",
        ),
        ("[egress]\nallow = [\"http://x\"]", "must be a host name"),
        ("[push]\ntimeout = 3", "expected a duration"),
    ] {
        let message = plain(text).unwrap_err();
        assert!(message.contains(error), "{message}");
    }
}

#[test]
fn errors_have_their_place_and_a_suggestion() {
    for (text, error) in [
        (
            "\n[sever]\n",
            "agents.toml:2: sever: unknown section `sever`; did you mean `server`?",
        ),
        (
            "[server]\n\nmax_body_byte = 1",
            "agents.toml:3: server.max_body_byte: unknown key `max_body_byte`; did you mean `max_body_bytes`? (server)",
        ),
        (
            "[limits]\nmax_age = \"1d\"",
            "agents.toml:2: limits.max_age: unknown key `max_age`; ",
        ),
        (
            "[server]\nmax_body_bytes = \"8 stone\"",
            "agents.toml:2: server.max_body_bytes: invalid value: string \"8 stone\", expected a size",
        ),
        (
            "[server]\nheartbeat = 5",
            "agents.toml:2: server.heartbeat: invalid value: integer `5`, expected a duration",
        ),
        (
            "[server]\nlisten = 5",
            "agents.toml:2: server.listen: invalid type",
        ),
        (
            "[store]\nkind = \"sqlit\"",
            "agents.toml:2: store.kind: unknown value `sqlit`; did you mean `sqlite`?",
        ),
        ("[agents.a]\n", "agents.toml:1: agents.a: has no type; "),
        (
            "[agents.a]\ntype = \"comand\"",
            "agents.toml:2: agents.a.type: unknown type of agent `comand`; did you mean `command`?",
        ),
        (
            "[agents.a]\ntype = \"command\"\ncomand = \"ls\"",
            "agents.toml:3: agents.a.comand: unknown key `comand`; did you mean `command`? (agents.a)",
        ),
        (
            "[agents.a]\ntype = \"echo\"\n[agents.a.limits]\nmax_turn = 1",
            "agents.toml:4: agents.a.limits.max_turn: unknown key `max_turn`; did you mean `max_turns`?",
        ),
        (
            "[agents.a]\ntype = \"echo\"\n[[agents.a.skills]]\nid = \"x\"\ndescription = \"y\"\ntag = []",
            "agents.toml:6: agents.a.skills.0.tag: unknown key `tag`; did you mean `tags`?",
        ),
        (
            "[agents.a]\ntype = \"remote\"\nurl = \"http://x\"\na2a_version = \"7.7\"",
            "agents.toml:4: agents.a.a2a_version: unknown value `7.7`; ",
        ),
        (
            "[agents.a]\ntype = \"remote\"\nurl = \"http://x\"\nv03_files = \"gzip\"",
            "agents.toml:4: agents.a.v03_files: unknown value `gzip`; ",
        ),
        (
            "[agents.a]\ntype = \"echo\"\na2a_version = \"1.0\"",
            "agents.toml:3: agents.a.a2a_version: unknown key `a2a_version`; ",
        ),
        (
            "[agents.\"a b\"]\ntype = \"echo\"",
            "agents.toml:1: agents.a b: the name of an agent",
        ),
        ("agents = 5", "agents.toml:1: agents: must be a table"),
        ("[server\n", "agents.toml:1: "),
        (
            "[server]\nlisten = \"${UNSET}\"",
            "agents.toml:2: server.listen: the variable UNSET is not set",
        ),
    ] {
        let message = plain(text).unwrap_err();
        assert!(
            message.starts_with(error),
            "{text:?}\n  {message}\n  {error}"
        );
    }
    let error = Config::load(
        Some(Path::new("/nonexistent.toml")),
        &|_| None,
        &FlagValues::default(),
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .starts_with("/nonexistent.toml: cannot be read")
    );
}

#[test]
fn s38_the_printed_configuration_has_origins_and_no_secrets() {
    let environment = |name: &str| match name {
        "TOKEN" => Some("hunter2".to_owned()),
        "ATTACHE_STORE" => Some("memory".to_owned()),
        _ => None,
    };
    let text = r#"
        [agents.a]
        type = "command"
        command = ["x", "${TOKEN}"]
        description = "with ${TOKEN}"
        env = { A = "${TOKEN}", B = "swordfish" }
        [auth]
        keys = true
        rules = [{ scopes = ["x-${TOKEN}"], agent = "a" }]
        [[auth.issuers]]
        issuer = "https://login.example.com"
        audience = "agents"
        key_set = "https://login.example.com/keys?with=${TOKEN}"
        [egress]
        allow = ["${TOKEN}.example.com"]
    "#;
    let config = read(text, &environment, &FlagValues::default()).unwrap();
    let printed = print(&config).unwrap();
    let line = |beginning: &str| {
        let line = printed.lines().find(|line| line.starts_with(beginning));
        line.unwrap_or_else(|| panic!("{beginning}: {printed}"))
            .to_owned()
    };
    assert!(line("listen = \"127.0.0.1:41241\"").ends_with("# default"));
    assert!(line("kind = \"memory\"").ends_with("# ATTACHE_STORE"));
    assert!(line("description = \"with ${TOKEN}\"").ends_with("agents.toml:5"));
    assert!(line("env = { A = \"***\", B = \"***\" }").ends_with("agents.toml:6"));
    assert!(
        !printed.contains("hunter2") && !printed.contains("swordfish"),
        "{printed}"
    );
    let reread = read(&printed, &environment, &FlagValues::default()).unwrap();
    assert_eq!(
        (reread.server_settings, reread.engine, reread.limits),
        (config.server_settings, config.engine, config.limits)
    );
    assert_eq!(
        (
            reread.auth,
            reread.caller_limits,
            reread.push_settings,
            reread.egress
        ),
        (
            config.auth,
            config.caller_limits,
            config.push_settings,
            config.egress
        )
    );
}

#[test]
fn the_starter_and_its_commented_keys_are_valid() {
    assert_eq!(plain(STARTER).unwrap().agents.len(), 2);
    let shown = STARTER.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.contains(" = ") && !rest.starts_with("env") => rest,
        _ => line,
    });
    let shown = shown.collect::<Vec<_>>().join("\n");
    let config = plain(&shown).unwrap();
    assert_eq!(
        config.server,
        ServerSection {
            public_url: Some("https://agents.example.com".to_owned()),
            ..ServerSection::default()
        }
    );
}

#[test]
fn the_protocol_version_of_a_remote_agent_is_not_that_of_its_card() {
    let remote = "[agents.a]\ntype = \"remote\"\nurl = \"http://x\"\n";
    let config = plain(&format!("{remote}version = \"7.7\"\na2a_version = \"0.3\""));
    let printed = print(&config.unwrap()).unwrap();
    assert!(printed.contains("version = \"7.7\""), "{printed}");
    assert!(printed.contains("a2a_version = \"0.3\""), "{printed}");
}

#[test]
fn the_schema_in_the_docs_is_current() {
    let published: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/attache.schema.json")).unwrap();
    assert!(
        published == schema(),
        "regenerate it: attache check --schema > docs/attache.schema.json"
    );
}

/// Keys of all sections except `agents`, with default and description: the rows of the table in `docs/operate.md`.
fn reference_table() -> String {
    let printed = print(&plain("").unwrap()).unwrap();
    let mut section = "";
    let mut defaults = BTreeMap::new();
    for line in printed.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once(" = ") {
            let value = value.split("  # ").next().unwrap_or(value).trim();
            defaults.insert(
                format!("{section}.{key}"),
                value.trim_matches('"').to_owned(),
            );
        }
    }
    let schema = schema();
    let sections = schema["properties"].as_object().unwrap();
    let mut rows = BTreeMap::new();
    for (section, about) in sections.iter().filter(|(section, _)| *section != "agents") {
        for (key, about) in about["properties"].as_object().unwrap() {
            let key = format!("{section}.{key}");
            let default = defaults.get(&key).filter(|default| !default.is_empty());
            let default = default.map_or_else(String::new, |default| format!("`{default}`"));
            let about = about["description"].as_str().unwrap_or_default();
            let about = about.replace('\n', " ").replace('|', "\\|");
            let about = about.trim_end_matches('.');
            rows.insert(key.clone(), format!("| `{key}` | {default} | {about} |\n"));
        }
    }
    rows.into_values().collect()
}

#[test]
fn the_reference_table_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate.md");
    let page = std::fs::read_to_string(path).unwrap();
    let header = "| --- | --- | --- |\n";
    let (before, table) = page.split_once("## Every key").unwrap();
    let (head, rows) = table.split_once(header).unwrap();
    let end = rows.find("\n\n").map_or(rows.len(), |end| end + 1);
    let expected = reference_table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let after = &rows[end..];
        let page = format!("{before}## Every key{head}{header}{expected}{after}");
        std::fs::write(path, page).unwrap();
        return;
    }
    assert!(
        rows[..end] == expected,
        "regenerate it: UPDATE_DOCS=1 cargo test -p attache-cli the_reference_table_is_current"
    );
}
