//! Examples of the verbs, and the common options that the help of each shows.

/// Verbs of the program under one title.
pub(super) struct VerbGroup {
    pub(super) title: &'static str,
    pub(super) verbs: &'static [&'static str],
}

/// All verbs of the program. Those of the last three groups, and `bench`, are additions to the CLI contract.
pub(super) const GROUPS: &[VerbGroup] = &[
    VerbGroup {
        title: "Call agents",
        verbs: &[
            "send",
            "chat",
            "task",
            "card",
            "auth",
            "doctor",
            "conformance",
            "bench",
        ],
    },
    VerbGroup {
        title: "Serve agents",
        verbs: &[
            "serve", "init", "check", "top", "reload", "keys", "push", "console", "mcp", "demo",
            "mock",
        ],
    },
    VerbGroup {
        title: "Look after the data of a server",
        verbs: &["db", "backup", "restore"],
    },
    VerbGroup {
        title: "This program",
        verbs: &["config", "completion", "docs"],
    },
];

/// The verbs to begin with, for the help without arguments.
pub(super) const FIRST_GROUPS: &[VerbGroup] = &[
    VerbGroup {
        title: "Call agents",
        verbs: &["send", "chat", "task", "card", "doctor"],
    },
    VerbGroup {
        title: "Serve agents",
        verbs: &["demo", "init", "serve", "check", "top"],
    },
    VerbGroup {
        title: "This program",
        verbs: &["config", "docs"],
    },
];

/// Additions to the help of a verb.
pub(super) struct VerbHelp {
    /// Full name, such as `task get`.
    pub(super) name: &'static str,
    /// Names of the common options that matter most for the verb.
    pub(super) common: &'static [&'static str],
    pub(super) examples: [&'static str; 2],
}

impl VerbHelp {
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        VERBS.iter().find(|help| help.name == name)
    }

    const fn new(
        name: &'static str,
        common: &'static [&'static str],
        examples: [&'static str; 2],
    ) -> Self {
        Self {
            name,
            common,
            examples,
        }
    }
}

/// Common options of a verb that reads from an agent.
const READ: &[&str] = &["agent-card", "output"];
/// Common options of a verb that follows a task.
const FOLLOW: &[&str] = &["agent-card", "output", "stream", "timeout"];
/// Common options of a verb without an agent.
const LOCAL: &[&str] = &["output"];
const NONE: &[&str] = &[];

pub(super) const VERBS: &[VerbHelp] = &[
    VerbHelp::new(
        "send",
        &[
            "agent-card",
            "output",
            "stream",
            "async",
            "timeout",
            "task-id",
            "context-id",
        ],
        [
            "attache send -a http://127.0.0.1:41241 hello",
            "attache send -a agent.example -o pretty 'look' --file plan.pdf",
        ],
    ),
    VerbHelp::new(
        "chat",
        &["agent-card", "context-id", "task-id", "verbose", "debug"],
        [
            "attache chat -a http://127.0.0.1:41241",
            "attache chat -a agent.example --context-id 6f0c",
        ],
    ),
    VerbHelp::new(
        "task get",
        &["agent-card", "output", "wait", "timeout", "poll-interval"],
        [
            "attache task get -a agent.example 6f0c",
            "attache task get -a agent.example --wait -o json 6f0c | jq .status.state",
        ],
    ),
    VerbHelp::new(
        "task cancel",
        READ,
        [
            "attache task cancel -a agent.example 6f0c",
            "attache task cancel -a agent.example -o json 6f0c",
        ],
    ),
    VerbHelp::new(
        "task list",
        &["agent-card", "output", "context-id"],
        [
            "attache task list -a agent.example -o pretty",
            "attache task list -a agent.example --status input-required --all",
        ],
    ),
    VerbHelp::new(
        "task subscribe",
        FOLLOW,
        [
            "attache task subscribe -a agent.example 6f0c",
            "attache task subscribe -a agent.example -o json --stream 6f0c",
        ],
    ),
    VerbHelp::new(
        "task download",
        READ,
        [
            "attache task download -a agent.example 6f0c",
            "attache task download -a agent.example --output-dir results --force 6f0c",
        ],
    ),
    VerbHelp::new(
        "task wait",
        FOLLOW,
        [
            "attache task wait -a agent.example --exit-on-outcome 6f0c",
            "attache task wait -a agent.example --through auth --timeout 1h 6f0c",
        ],
    ),
    VerbHelp::new(
        "task push-config create",
        READ,
        [
            "attache task push-config create -a agent.example --url https://me.example/hook 6f0c",
            "attache task push-config create -a agent.example --url https://me.example/hook --id w1 6f0c",
        ],
    ),
    VerbHelp::new(
        "task push-config get",
        READ,
        [
            "attache task push-config get -a agent.example --id w1 6f0c",
            "attache task push-config get -a agent.example --id w1 -o json 6f0c",
        ],
    ),
    VerbHelp::new(
        "task push-config list",
        READ,
        [
            "attache task push-config list -a agent.example 6f0c",
            "attache task push-config list -a agent.example -o json 6f0c",
        ],
    ),
    VerbHelp::new(
        "task push-config delete",
        READ,
        [
            "attache task push-config delete -a agent.example --id w1 6f0c",
            "attache task push-config delete -a agent.example --id w1 -o json 6f0c",
        ],
    ),
    VerbHelp::new(
        "card get",
        READ,
        [
            "attache card get agent.example",
            "attache card get agent.example --validate -o json",
        ],
    ),
    VerbHelp::new(
        "card lint",
        READ,
        [
            "attache card lint agent.example",
            "attache card lint ./card.json",
        ],
    ),
    VerbHelp::new(
        "card sign",
        READ,
        [
            "attache card sign card.json --signing-key key.pem --kid 2026-11 > signed.json",
            "attache card sign card.json --signing-key key.pem --kid 2026-11 --key-set keys.json",
        ],
    ),
    VerbHelp::new(
        "card verify",
        &["agent-card", "output", "jwks"],
        [
            "attache card verify signed.json --jwks keys.json",
            "attache card verify agent.example --jwks https://agent.example/keys.json",
        ],
    ),
    VerbHelp::new(
        "auth login",
        READ,
        [
            "attache auth login -a agent.example --client-id my-tool",
            "attache auth login -a agent.example --client-id my-tool --flow code",
        ],
    ),
    VerbHelp::new(
        "auth status",
        LOCAL,
        ["attache auth status", "attache auth status -o json"],
    ),
    VerbHelp::new(
        "auth logout",
        READ,
        [
            "attache auth logout -a agent.example",
            "attache auth logout -a agent.example -o json",
        ],
    ),
    VerbHelp::new(
        "push listen",
        &["agent-card"],
        [
            "attache push listen -a http://127.0.0.1:41241 --task-id 6f0c",
            "attache push listen --listen 127.0.0.1:9000 --count 1",
        ],
    ),
    VerbHelp::new(
        "push deliveries",
        NONE,
        ["attache push deliveries", "attache push deliveries 3"],
    ),
    VerbHelp::new(
        "push retry",
        NONE,
        ["attache push retry 3", "attache push retry --all"],
    ),
    VerbHelp::new(
        "config show",
        READ,
        ["attache config show", "attache config show -o json"],
    ),
    VerbHelp::new(
        "config set",
        LOCAL,
        [
            "attache config set output pretty",
            "attache config set agent-card http://127.0.0.1:41241",
        ],
    ),
    VerbHelp::new(
        "config unset",
        LOCAL,
        [
            "attache config unset output",
            "attache config unset agent-card",
        ],
    ),
    VerbHelp::new(
        "conformance",
        &["agent-card", "output", "transport", "verbose"],
        [
            "attache conformance -a http://127.0.0.1:41241 --slow 'slow 60' --ask ask",
            "attache conformance -a agent.example --exit-code -o json",
        ],
    ),
    VerbHelp::new(
        "doctor",
        &["agent-card", "output", "debug"],
        [
            "attache doctor http://127.0.0.1:41241",
            "attache doctor agent.example --message 'count to ten' -o pretty",
        ],
    ),
    VerbHelp::new(
        "bench",
        &["agent-card", "output", "transport"],
        [
            "attache bench -a http://127.0.0.1:41241",
            "attache bench send stream -c 8 --for 30s -a http://127.0.0.1:41241",
        ],
    ),
    VerbHelp::new(
        "completion",
        NONE,
        [
            "attache completion bash > ~/.local/share/bash-completion/completions/attache",
            "attache completion fish > ~/.config/fish/completions/attache.fish",
        ],
    ),
    VerbHelp::new(
        "demo",
        NONE,
        [
            "attache demo",
            "attache demo --listen 127.0.0.1:0 --store memory",
        ],
    ),
    VerbHelp::new(
        "serve",
        NONE,
        ["attache serve --watch", "attache serve --exec 'wc -w'"],
    ),
    VerbHelp::new(
        "mock",
        NONE,
        [
            "attache mock script.toml",
            "attache mock script.toml --listen 127.0.0.1:0",
        ],
    ),
    VerbHelp::new(
        "mcp",
        NONE,
        [
            "attache mcp -a http://127.0.0.1:41241",
            "attache mcp -a agent.example -a other.example",
        ],
    ),
    VerbHelp::new(
        "console",
        NONE,
        [
            "attache console",
            "attache console --data-dir data --no-open",
        ],
    ),
    VerbHelp::new("docs", NONE, ["attache docs", "attache docs push"]),
    VerbHelp::new(
        "docs search",
        NONE,
        [
            "attache docs search webhook retry",
            "attache docs search 'idempotency key'",
        ],
    ),
    VerbHelp::new(
        "docs list",
        NONE,
        ["attache docs list", "attache docs list | grep push"],
    ),
    VerbHelp::new(
        "docs build",
        NONE,
        [
            "attache docs build site",
            "attache docs build site --origin https://docs.example",
        ],
    ),
    VerbHelp::new(
        "check",
        NONE,
        [
            "attache check",
            "attache check --schema > attache.schema.json",
        ],
    ),
    VerbHelp::new(
        "top",
        NONE,
        [
            "attache top --data-dir data",
            "attache top -o json | jq .states",
        ],
    ),
    VerbHelp::new(
        "reload",
        NONE,
        ["attache reload", "attache reload --data-dir data"],
    ),
    VerbHelp::new(
        "init",
        NONE,
        ["attache init", "attache init other.toml --force"],
    ),
    VerbHelp::new(
        "keys add",
        NONE,
        [
            "attache keys add ada --days 90",
            "attache keys add operator --admin",
        ],
    ),
    VerbHelp::new(
        "keys list",
        NONE,
        ["attache keys list", "attache keys list --data-dir data"],
    ),
    VerbHelp::new(
        "keys revoke",
        NONE,
        [
            "attache keys revoke ada",
            "attache keys revoke 3f2a --data-dir data",
        ],
    ),
    VerbHelp::new(
        "db check",
        NONE,
        ["attache db check", "attache db check --data-dir data"],
    ),
    VerbHelp::new(
        "db export",
        NONE,
        [
            "attache db export > tasks.jsonl",
            "attache db export --data-dir data | jq .task.id",
        ],
    ),
    VerbHelp::new(
        "db vacuum",
        NONE,
        ["attache db vacuum", "attache db vacuum --data-dir data"],
    ),
    VerbHelp::new(
        "db migrate",
        NONE,
        ["attache db migrate", "attache db migrate --data-dir data"],
    ),
    VerbHelp::new("db key", NONE, ["attache db key", "attache db key -o json"]),
    VerbHelp::new(
        "backup",
        NONE,
        [
            "attache backup monday.tar --config agents.toml",
            "attache backup monday.tar --data-dir data",
        ],
    ),
    VerbHelp::new(
        "restore",
        NONE,
        [
            "attache restore monday.tar",
            "attache restore monday.tar --data-dir data --replace",
        ],
    ),
];
