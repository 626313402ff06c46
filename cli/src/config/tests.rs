//! Tests of configuration layers, sections and error messages.

use super::*;

/// The configuration as `serve --print-config` prints it.
fn print(config: &Config) -> anyhow::Result<String> {
    Ok(PrintedConfig::new(config)?.to_toml())
}

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

/// Printed defaults of all keys that are not keys of an agent.
fn printed_defaults() -> BTreeMap<String, String> {
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
    defaults
}

/// Row of a key in a table of the reference.
fn key_row(key: &str, default: &str, schema: &serde_json::Value) -> String {
    let about = schema["description"].as_str().unwrap_or_default();
    let about = about.replace('\n', " ").replace('|', "\\|");
    let about = about.trim_end_matches('.');
    let default = default.replace('|', "\\|");
    let default = if default.is_empty() {
        default
    } else {
        format!("`{default}`")
    };
    format!("| `{key}` | {default} | {about} |\n")
}

/// Keys with more dots have a table of their own in another place.
const MAX_KEY_DEPTH: usize = 2;

/// Rows of the keys of an object, and of the objects in it. `definitions` resolves references.
fn object_rows(
    prefix: &str,
    schema: &serde_json::Value,
    definitions: &serde_json::Value,
    rows: &mut BTreeMap<String, String>,
) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (key, schema) in properties {
        let key = format!("{prefix}{key}");
        let default = match &schema["default"] {
            serde_json::Value::String(text) => text.clone(),
            default @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_)) => {
                default.to_string()
            }
            _ => String::new(),
        };
        rows.insert(key.clone(), key_row(&key, &default, schema));
        if key.matches('.').count() < MAX_KEY_DEPTH {
            member_rows(&key, schema, definitions, rows);
        }
    }
}

/// Rows of the objects in a key: of its own members, of its named entries or of its list.
fn member_rows(
    key: &str,
    schema: &serde_json::Value,
    definitions: &serde_json::Value,
    rows: &mut BTreeMap<String, String>,
) {
    let resolve = |schema: &serde_json::Value| {
        let name = schema["$ref"].as_str().unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        definitions.get(name).unwrap_or(schema).clone()
    };
    object_rows(&format!("{key}."), &resolve(schema), definitions, rows);
    let entry = resolve(&schema["additionalProperties"]);
    object_rows(&format!("{key}.<name>."), &entry, definitions, rows);
    let item = resolve(&schema["items"]);
    object_rows(&format!("{key}[]."), &item, definitions, rows);
}

/// The page `docs/reference/configuration.md`.
fn configuration_page() -> String {
    let schema = schema();
    let defaults = printed_defaults();
    let table = "| key | default | description |\n| --- | --- | --- |\n";
    let mut page = "# Configuration keys\n\nAll keys of a configuration file. \
        [Configuration](../configure.md) explains the file, flags and reload. This page is generated from the schema, \
        which `attache check --schema` prints.\n"
        .to_owned();
    let sections = schema["properties"].as_object().unwrap();
    for (section, about) in sections
        .iter()
        .filter(|(section, _)| *section != "agents" && *section != "hooks")
    {
        let description = about["description"].as_str().unwrap_or_default();
        page += &format!("\n## {section}\n\n{description}\n\n{table}");
        for (key, schema) in about["properties"].as_object().unwrap() {
            let key = format!("{section}.{key}");
            let default = defaults.get(&key).map_or("", String::as_str);
            page += &key_row(&key, default, schema);
            let mut rows = BTreeMap::new();
            member_rows(&key, schema, &schema_definitions(), &mut rows);
            page.extend(rows.into_values());
        }
    }
    let rows = |schema: &serde_json::Value| {
        let mut rows = BTreeMap::new();
        object_rows("", schema, &schema_definitions(), &mut rows);
        rows
    };
    page += &format!("\n## hooks\n\nKeys of a `[[hooks]]` entry.\n\n{table}");
    page.extend(rows(&schema["definitions"]["HookSection"]).into_values());
    let kinds = schema["properties"]["agents"]["additionalProperties"]["oneOf"]
        .as_array()
        .unwrap();
    let plainest = kinds
        .iter()
        .find(|kind| kind["properties"]["type"]["const"] == "echo")
        .unwrap();
    let common = rows(plainest);
    page += &format!("\n## agents\n\nKeys of every `[agents.<name>]`.\n\n{table}");
    page.extend(common.values().map(String::as_str));
    for kind in kinds {
        let name = kind["properties"]["type"]["const"].as_str().unwrap();
        let own: Vec<String> = rows(kind)
            .into_iter()
            .filter(|(key, _)| !common.contains_key(key))
            .map(|(_, row)| row)
            .collect();
        if !own.is_empty() {
            page += &format!("\n## agents of type {name}\n\n{table}{}", own.concat());
        }
    }
    page
}

fn schema_definitions() -> serde_json::Value {
    schema()["definitions"].clone()
}

#[test]
fn the_configuration_page_is_current() {
    crate::docs::assert_generated("reference/configuration.md", &configuration_page());
}

#[test]
fn hooks_are_read_in_order_and_bad_keys_are_refused() {
    let hooks = "[[hooks]]\nname = \"pii\"\ntype = \"mask\"\npatterns = ['\\d{4}']\n[[hooks]]\nname = \"no\"\ntype = \"deny\"\npatterns = ['secret']\n";
    let built = plain(hooks).unwrap().build_hooks().unwrap();
    let names: Vec<_> = built.iter().map(attache::Hook::name).collect();
    assert_eq!(names, ["pii", "no"]);
    let hook = |more: &str| {
        let text = format!("[[hooks]]\nname = \"a\"\ntype = \"deny\"\n{more}");
        plain(&text).and_then(|config| config.build_hooks().map_err(|error| error.to_string()))
    };
    let refused = |more: &str| hook(more).unwrap_err();
    for (more, expected) in [
        ("patterns = ['(']", "hooks.0.patterns.0"),
        ("patterns = ['a*']", "matches the empty text"),
        ("patterns = []", "at least one"),
        (
            "patterns = ['a']\non = [\"event\"]",
            "does not run on `event`",
        ),
        (
            "patterns = ['a']\nmethods = [\"SendMesage\"]",
            "did you mean `SendMessage`",
        ),
        ("patterns = ['a']\npatern = 1", "did you mean `patterns`"),
        ("patterns = ['a']\non_failure = \"open\"", "on_failure"),
        ("patterns = ['a']\ntimeout = \"soon\"", "timeout"),
        ("patterns = ['a']\nerror = \"teapot\"", "error"),
        ("", "needs `patterns`"),
        ("patterns = ['a']\ntimeout = \"0s\"", "longer than 0 s"),
        ("patterns = ['a']\nurl = \"http://x\"", "has no such key"),
    ] {
        let error = refused(more);
        assert!(
            error.contains(expected) && error.contains("agents.toml"),
            "{more}: {error}"
        );
    }
}

#[test]
fn bad_keys_of_external_hooks_are_refused_with_their_place() {
    let refused = |kind: &str, more: &str| {
        let text = format!("[[hooks]]\nname = \"a\"\ntype = \"{kind}\"\n{more}");
        let built =
            plain(&text).and_then(|config| config.build_hooks().map_err(|error| error.to_string()));
        built.unwrap_err()
    };
    let url = "url = \"http://127.0.0.1:1/\"\n";
    let command = "command = \"cat\"\n";
    for (kind, more, expected) in [
        ("http", "", "needs `url`"),
        ("http", "url = \"ftp://x\"", "hooks.0.url"),
        ("http", "url = \"http://me:hunter2@x/\"", "no credentials"),
        (
            "http",
            &format!("{url}headers = {{\"a b\" = \"x\"}}"),
            "cannot be sent",
        ),
        ("http", &format!("{url}max_reply = 0"), "at least 1"),
        ("http", &format!("{url}max_reply = \"big\""), "a size"),
        ("http", &format!("{url}max_requests = 0"), "at least 1"),
        ("http", &format!("{url}max_request = 1"), "`max_requests`"),
        ("http", &format!("{url}{command}"), "has no such key"),
        ("http", &format!("{url}on = [\"calls\"]"), "on"),
        ("command", "", "needs `command`"),
        ("command", "command = \"\"", "empty"),
        ("command", "command = \"a 'b\"", "quote"),
        ("command", "command = \"grep {text}\"", "on stdin"),
        ("command", "command = 1", "a line of text"),
        (
            "command",
            &format!("{command}max_processes = 0"),
            "at least 1",
        ),
        (
            "command",
            &format!("{command}patterns = ['a']"),
            "it has command",
        ),
        ("commands", command, "did you mean `command`"),
    ] {
        let error = refused(kind, more);
        assert!(
            error.contains(expected) && error.contains("agents.toml"),
            "{kind} {more}: {error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
}
/// Builds the agents of a file and returns the card of the first one.
fn card(text: &str) -> attache::AgentCard {
    let config = plain(text).unwrap();
    config.build_agents().unwrap()[0].card().clone()
}

const ECHO: &str = "[agents.a]\ntype = \"echo\"\n";

#[test]
fn seed_0_28_seed_0_29_capabilities_of_the_card_are_configured() {
    let capabilities = card(ECHO).capabilities;
    assert_eq!(capabilities, Default::default());
    let more = "streaming = false\npush = false\nstate_transition_history = true\n";
    let capabilities = card(&format!("{ECHO}{more}")).capabilities;
    assert_eq!(capabilities.streaming, Some(false));
    assert_eq!(capabilities.push_notifications, Some(false));
    assert_eq!(capabilities.state_transition_history, Some(true));
}

#[test]
fn seed_1_20_extensions_of_the_card_are_configured() {
    let more = r#"
        [[agents.a.extensions]]
        uri = "https://example.com/ext/v1"
        description = "Units"
        required = true
        params = { units = ["m", "ft"], deep = { a = 1 } }
        [[agents.a.extensions]]
        uri = "urn:other"
    "#;
    let extensions = card(&format!("{ECHO}{more}")).capabilities.extensions;
    let written = serde_json::to_value(&extensions).unwrap();
    assert_eq!(
        written,
        serde_json::json!([
            {
                "uri": "https://example.com/ext/v1", "description": "Units", "required": true,
                "params": {"units": ["m", "ft"], "deep": {"a": 1}},
            },
            {"uri": "urn:other"},
        ])
    );
}

#[test]
fn seed_1_22_skills_have_media_types() {
    let more = r#"
        [[agents.a.skills]]
        id = "route"
        description = "Finds a route"
        input_modes = ["application/json", "text/plain"]
        output_modes = ["application/json"]
    "#;
    let skill = &card(&format!("{ECHO}{more}")).skills[0];
    assert_eq!(skill.input_modes, ["application/json", "text/plain"]);
    assert_eq!(skill.output_modes, ["application/json"]);
}

#[test]
fn seed_4_15_the_card_of_a_model_has_one_skill_per_tool() {
    let llm = r#"
        [agents.a]
        type = "llm"
        system = "A secret prompt"
        model = { url = "http://127.0.0.1:1/v1", name = "m" }
        [agents.a.tools.summarize]
        description = "Summarize a text"
        http = "http://127.0.0.1:1/summarize"
        [agents.a.tools.clock]
        client = true
    "#;
    let card = card(llm);
    let skills = serde_json::to_value(&card.skills).unwrap();
    assert_eq!(
        skills,
        serde_json::json!([
            {"id": "clock", "name": "clock", "description": "clock", "tags": ["tool"]},
            {"id": "summarize", "name": "summarize", "description": "Summarize a text", "tags": ["tool"]},
        ])
    );
    assert!(!serde_json::to_string(&card).unwrap().contains("secret"));
    let own = "[[agents.a.skills]]\nid = \"own\"\ndescription = \"Own\"\n";
    let skills = self::card(&format!("{llm}\n{own}")).skills;
    assert_eq!(skills.len(), 1);
    assert_eq!(skills[0].id, "own");
    let without =
        "[agents.a]\ntype = \"llm\"\nmodel = { url = \"http://127.0.0.1:1/v1\", name = \"m\" }";
    assert_eq!(self::card(without).skills[0].tags, ["llm"]);
}

#[cfg(unix)]
#[test]
fn seed_4_32_models_and_commands_accept_every_part_by_default() {
    let command = "[agents.a]\ntype = \"command\"\ncommand = \"cat\"\n";
    let llm =
        "[agents.a]\ntype = \"llm\"\nmodel = { url = \"http://127.0.0.1:1/v1\", name = \"m\" }\n";
    for text in [command, llm] {
        let modes = card(text).default_input_modes;
        assert_eq!(modes, ["text/plain", "application/json", "*/*"]);
        let declared = card(&format!("{text}input_modes = [\"text/plain\"]"));
        assert_eq!(declared.default_input_modes, ["text/plain"]);
    }
}

#[test]
fn card_keys_with_bad_values_are_refused_with_their_line() {
    for (more, expected) in [
        ("streaming = \"no\"", "agents.a.streaming"),
        ("push = 1", "agents.a.push"),
        (
            "state_transition_history = \"yes\"",
            "agents.a.state_transition_history",
        ),
        ("requires_text = \"yes\"", "agents.a.requires_text"),
        ("card_access = \"private\"", "agents.a.card_access"),
        ("card_form = \"v2\"", "agents.a.card_form"),
        (
            "extensions = [{ uri = \"\" }]",
            "agents.a.extensions.0.uri: must be a URI",
        ),
        (
            "extensions = [{ uri = \"a b\" }]",
            "must be a URI without commas and spaces",
        ),
        (
            "extensions = [{ uri = \"a,b\" }]",
            "must be a URI without commas and spaces",
        ),
        (
            "extensions = [{ uri = \"a\" }, { uri = \"a\" }]",
            "agents.a.extensions.1.uri: must not be listed twice",
        ),
        (
            "extensions = [{ uri = \"a\", require = true }]",
            "did you mean `required`",
        ),
        ("extensions = [{ required = true }]", "uri"),
        (
            "skills = [{ id = \"s\", description = \"d\", input_mode = [] }]",
            "did you mean `input_modes`",
        ),
        (
            "skills = [{ id = \"s\", description = \"d\", output_modes = \"text\" }]",
            "agents.a.skills.0.output_modes",
        ),
        (
            "skills = [{ id = \"s\", description = \"d\" }, { id = \"s\", description = \"d\" }]",
            "agents.a.skills.1.id",
        ),
        ("extended = { skill = [] }", "did you mean `skills`"),
        ("extended = { tenants = [] }", "agents.a.extended.tenants"),
        (
            "extended = { skills = [{ id = \"\", description = \"d\" }] }",
            "agents.a.extended.skills.0.id",
        ),
    ] {
        let error = plain(&format!("{ECHO}{more}")).unwrap_err();
        assert!(
            error.contains(expected) && error.contains("agents.toml"),
            "{more}: {error}"
        );
    }
    for (more, expected) in [
        ("bindings = [\"soap\"]", "server.bindings"),
        ("bindings = \"rest\"", "server.bindings"),
        ("grpc_on_card = \"v1\"", "server.grpc_on_card"),
        (
            "grpc_scheme_on_card = \"http\"",
            "server.grpc_scheme_on_card",
        ),
        ("agent_json_form = \"old\"", "server.agent_json_form"),
    ] {
        let error = plain(&format!("[server]\n{more}")).unwrap_err();
        assert!(
            error.contains(expected) && error.contains("agents.toml:2"),
            "{more}: {error}"
        );
    }
}

#[test]
fn card_and_binding_keys_are_printed_as_they_are_read() {
    let text = r#"
        [server]
        bindings = ["rest", "jsonrpc"]
        grpc_on_card = "all"
        grpc_scheme_on_card = true
        agent_json_form = "v02"
        [agents.a]
        type = "echo"
        streaming = false
        card_access = "authenticated"
        card_form = "v03"
        requires_text = true
        extensions = [{ uri = "urn:e", required = true, params = { a = 1 } }]
        skills = [{ id = "s", description = "d", input_modes = ["text/plain"] }]
        [agents.a.extended]
        name = "Extended"
        skills = [{ id = "t", description = "d" }]
    "#;
    let config = plain(text).unwrap();
    let printed = print(&config).unwrap();
    let again = plain(&printed).unwrap();
    assert_eq!(again.server_settings, config.server_settings, "{printed}");
    assert_eq!(again.agents[0].card, config.agents[0].card, "{printed}");
}

const DATABASE: &str = "postgres://me:s3cret@db.example/attache?sslmode=disable";

/// A valid webhook key.
const WEBHOOK_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

#[test]
fn a_database_url_selects_the_kind_of_store() {
    let of_file = format!("[store]\nkind = \"memory\"\nurl = \"{DATABASE}\"");
    let url_only = format!("[store]\nurl = \"{DATABASE}\"");
    let environment = |name: &str| (name == "ATTACHE_STORE_URL").then(|| DATABASE.to_owned());
    let none = FlagValues::default();
    let kind = |text: &str, environment: Environment<'_>, flags: &FlagValues| {
        read(text, environment, flags).unwrap().store.kind
    };
    assert_eq!(kind(&url_only, &|_| None, &none), StoreKind::Postgres);
    assert_eq!(kind(&of_file, &|_| None, &none), StoreKind::Memory);
    assert_eq!(kind(&of_file, &environment, &none), StoreKind::Postgres);
    let mut flags = FlagValues::default();
    flags.set("store.kind", "sqlite");
    assert_eq!(kind("", &environment, &flags), StoreKind::Sqlite);
    let mut flags = FlagValues::default();
    flags.set("store.kind", "postgres://flag@other/db");
    let config = read("", &environment, &flags).unwrap();
    assert_eq!(config.store.kind, StoreKind::Postgres);
    let printed = print(&config).unwrap();
    assert!(printed.contains("url = \"postgres://flag@other/db\""));
    assert!(printed.contains("# --store"), "{printed}");
}

#[test]
fn printed_database_urls_contain_no_password() {
    let environment = |name: &str| match name {
        "WHOLE" => Some(DATABASE.to_owned()),
        "HOST" => Some("db.example".to_owned()),
        "ATTACHE_WEBHOOK_KEY" => Some(WEBHOOK_KEY.to_owned()),
        _ => None,
    };
    for (url, expected) in [
        (
            DATABASE,
            "postgres://me:***@db.example/attache?sslmode=disable",
        ),
        (
            "postgres://me:s3cret@${HOST}/a",
            "postgres://me:***@${HOST}/a",
        ),
        ("${WHOLE}", "${WHOLE}"),
        (
            "postgres://db.example/a?user=me&password=s3cret",
            "postgres://db.example/a?user=me&password=***",
        ),
        ("postgres://me:s3cret/x@h/a", "postgres://me:***@h/a"),
    ] {
        let file = format!("[store]\nurl = \"{url}\"");
        let config = read(&file, &environment, &FlagValues::default()).unwrap();
        let printed = print(&config).unwrap();
        assert!(
            printed.contains(&format!("url = \"{expected}\"")),
            "{printed}"
        );
        let debug = format!("{:?}", config.store);
        assert!(!printed.contains("s3cret"), "{printed}");
        assert!(!debug.contains("s3cret"), "{debug}");
        let options = config.postgres_options(&environment).unwrap().unwrap();
        assert!(!format!("{options:?}").contains("s3cret"));
    }
    let error = plain("[store]\nurl = \"mysql://me:s3cret@h/a\"").unwrap_err();
    assert!(
        error.contains("store.url: the URL of the database is invalid"),
        "{error}"
    );
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn the_settings_of_a_database_are_checked() {
    let with_key = |name: &str| (name == "ATTACHE_WEBHOOK_KEY").then(|| WEBHOOK_KEY.to_owned());
    let error = |text: &str, environment: Environment<'_>| {
        let config = read(text, environment, &FlagValues::default()).unwrap();
        config
            .postgres_options(environment)
            .unwrap_err()
            .to_string()
    };
    let store = |rest: &str| format!("[store]\nurl = \"{DATABASE}\"\n{rest}");
    let missing = error("[store]\nkind = \"postgres\"", &with_key);
    assert!(
        missing.contains(":1: store: the key `url` is missing"),
        "{missing}"
    );
    let missing = error(&store(""), &|_| None);
    assert!(missing.contains("attache db key"), "{missing}");
    for (text, expected) in [
        (store("writers = 0"), ":3: store.writers: must be 1 to 255"),
        (
            store("readers = 1000"),
            ":3: store.readers: must be 1 to 255",
        ),
        (
            store("[cluster]\nlease = \"100ms\""),
            ":4: cluster.lease: must be 500ms to 60s",
        ),
        (store("client_cert = \"a.pem\""), "needs store.client_key"),
        (store("ca = \"none.pem\""), ":3: store.ca: cannot read "),
    ] {
        let found = error(&text, &with_key);
        assert!(found.contains(expected), "{found}");
    }
    let invalid = |name: &str| (name == "ATTACHE_WEBHOOK_KEY").then(|| "c2hvcnQ=".to_owned());
    let found = error(&store(""), &invalid);
    assert!(
        found.contains("ATTACHE_WEBHOOK_KEY: the webhook key is not 32 bytes"),
        "{found}"
    );
    let options = read(
        &store("[cluster]\nreplica_name = \"a\"\nlease = \"1s\""),
        &with_key,
        &FlagValues::default(),
    )
    .unwrap()
    .postgres_options(&with_key)
    .unwrap()
    .unwrap();
    assert_eq!(options.replica_name, "a");
    assert_eq!(options.lease, std::time::Duration::from_secs(1));
    assert!(
        plain("")
            .unwrap()
            .postgres_options(&|_| None)
            .unwrap()
            .is_none()
    );
}

#[test]
fn database_and_cluster_keys_need_a_restart() {
    let before = plain(&format!("[store]\nurl = \"{DATABASE}\"")).unwrap();
    let after =
        plain("[store]\nurl = \"postgres://other/db\"\nwriters = 4\n[cluster]\nlease = \"5s\"");
    let changed = before
        .restart_only()
        .changed_keys(&after.unwrap().restart_only());
    assert_eq!(changed, ["cluster.lease", "store.url", "store.writers"]);
}
