//! Questions of agent authors, platform teams and client developers, with the sections that answer them.

use super::search::Index;

/// A question, and addresses of sections with the answer. `limits#*` stands for any section of the page.
const QUESTIONS: &[(&str, &[&str])] = &[
    (
        "stop an agent from calling itself in a loop",
        &["delegation", "delegation#*"],
    ),
    (
        "upgrade to a new version without losing data",
        &["backup#upgrade", "backup"],
    ),
    (
        "allow a web page to call my agent cors",
        &["serve#tls-proxies-and-browsers"],
    ),
    (
        "keep my api key out of the shell history",
        &["examples/auth#shell"],
    ),
    (
        "hide an agent from people without a login",
        &[
            "cards#hide-an-agent-from-callers-without-a-login",
            "configure#agents",
            "reference/configuration#agents",
        ],
    ),
    (
        "tell the caller that the agent needs a login",
        &["agents", "agents#*"],
    ),
    ("where do I put the model api key", &["assistant#the-model"]),
    ("what is a context id", &["glossary"]),
    ("check my agent in CI", &["conformance", "conformance#*"]),
    (
        "how does attache work internally",
        &["concepts", "concepts#*"],
    ),
    (
        "what does exit code 4 mean",
        &["reference/errors#exit-codes", "cli#output"],
    ),
    ("use agents in claude or cursor", &["mcp-tools"]),
    ("mock server for client tests", &["mock"]),
    ("mask personal data in messages", &["hooks", "hooks#*"]),
    (
        "how many streams can one server hold",
        &["capacity", "capacity#*"],
    ),
    (
        "how do I stream partial output from a command",
        &["command", "script-to-agent"],
    ),
    (
        "how can my agent ask the user a question",
        &[
            "script-to-agent#ask-the-caller",
            "command#json-lines",
            "agents",
            "agents#*",
        ],
    ),
    ("python script as agent", &["script-to-agent"]),
    (
        "how do I cancel a running agent",
        &[
            "examples/tasks",
            "examples/tasks#*",
            "agents#what-happens-when-a-client-cancels-a-running-task",
            "command#cancellation-and-cleanup",
        ],
    ),
    (
        "return a file from an agent",
        &[
            "command",
            "command#json-lines",
            "agents#methods-of-a-turn",
            "examples/files",
            "http#*",
        ],
    ),
    (
        "which environment variables does a command get",
        &["command", "command#environment-variables"],
    ),
    (
        "run an agent again after a crash",
        &[
            "tutorials/first-agent#kill-the-server",
            "configure#agents",
            "command#cancellation-and-cleanup",
            "operate#*",
            "agents#after-a-crash-or-restart",
        ],
    ),
    ("use ollama as a model", &["assistant"]),
    ("create an api key", &["auth#api-keys", "examples/auth"]),
    (
        "prometheus metrics endpoint",
        &["operate#metrics", "reference/metrics"],
    ),
    (
        "nginx buffering sse",
        &["proxy", "proxy#*", "serve#tls-proxies-and-browsers"],
    ),
    (
        "delete old tasks retention",
        &["backup#retention-and-the-clock"],
    ),
    ("limit requests per caller", &["limits"]),
    ("restore a backup", &["backup", "backup#restore"]),
    (
        "how to reload the configuration without restart",
        &["configure#reload"],
    ),
    (
        "webhook retry policy dead letter",
        &["push#retries-and-dead-letters"],
    ),
    (
        "resume a stream after disconnect",
        &["examples/stream#resume-after-a-disconnect"],
    ),
    (
        "verify webhook signature",
        &["push#webhook-signatures-sign-and-verify"],
    ),
    (
        "what does -32001 mean",
        &["reference/errors", "reference/errors#*"],
    ),
    (
        "prevent duplicate task on retry",
        &[
            "examples/errors#curl-retry-without-a-duplicate-task",
            "tutorials/durable-client",
            "tutorials/durable-client#three-rules",
        ],
    ),
    (
        "a2a-sdk python client connect",
        &["examples/send", "examples/send#python-a2a-sdk-13"],
    ),
    (
        "list my tasks with pagination",
        &[
            "examples/tasks#python-list-all-pages",
            "examples/tasks#shell-list-tasks",
            "examples/tasks#curl-list-with-a-filter",
            "examples/tasks",
        ],
    ),
    (
        "how do I write an agent in rust",
        &["tutorials/first-agent", "agents"],
    ),
    (
        "turn a python script into an agent",
        &["script-to-agent", "command"],
    ),
    (
        "stream tokens to the caller",
        &["examples/stream", "agents", "agents#*"],
    ),
    (
        "ask the user for confirmation before a tool runs",
        &[
            "approval",
            "tutorials/approval",
            "approval#*",
            "tutorials/approval#*",
        ],
    ),
    ("how do I use ollama", &["assistant"]),
    (
        "expose my MCP server as an agent",
        &["mcp#an-mcp-server-as-an-agent", "mcp"],
    ),
    (
        "call another agent from my agent",
        &["delegation", "tutorials/two-servers", "remote"],
    ),
    (
        "cancel a running task",
        &[
            "examples/tasks#shell-cancel-a-running-task",
            "examples/tasks",
        ],
    ),
    (
        "how to install and start a server in production",
        &["operate", "operate#start-and-stop"],
    ),
    (
        "require an api key",
        &["auth#api-keys", "examples/auth", "auth"],
    ),
    ("limit requests per minute of a caller", &["limits"]),
    (
        "monitor with prometheus and grafana",
        &["reference/metrics", "operate#metrics"],
    ),
    (
        "back up the database and restore it",
        &["backup", "backup#back-up", "backup#restore"],
    ),
    (
        "nginx buffering and forwarded headers",
        &["proxy", "proxy#*"],
    ),
    (
        "what happens to tasks when the server crashes",
        &[
            "store#durability",
            "tutorials/first-agent#kill-the-server",
            "agents#after-a-crash-or-restart",
        ],
    ),
    (
        "how much memory does a stream need",
        &["capacity", "capacity#*"],
    ),
    (
        "send a file with curl",
        &["examples/files#curl", "examples/files"],
    ),
    (
        "resume a stream after a lost connection",
        &[
            "examples/stream#resume-after-a-disconnect",
            "tutorials/durable-client",
            "tutorials/durable-client#*",
        ],
    ),
    (
        "avoid executing a message twice when I retry",
        &[
            "examples/errors#curl-retry-without-a-duplicate-task",
            "client#limits",
            "tutorials/durable-client",
            "tutorials/durable-client#three-rules",
            "agents#end-of-a-turn",
        ],
    ),
    (
        "verify the signature of a webhook",
        &["push#webhook-signatures-sign-and-verify"],
    ),
    (
        "error -32602 invalid params",
        &["reference/errors", "reference/errors#codes"],
    ),
    ("migrate from a2a-sdk", &["migrate/a2a-sdk"]),
    (
        "which cargo features do I need",
        &["embed#features", "embed"],
    ),
    (
        "default timeout of a turn",
        &[
            "reference/configuration#limits",
            "reference/configuration#*",
        ],
    ),
    (
        "emit progress updates from my script",
        &[
            "command#json-lines",
            "script-to-agent#ask-the-caller",
            "command",
        ],
    ),
    (
        "give an agent memory of the conversation",
        &["assistant", "assistant#*", "agents#methods-of-a-turn"],
    ),
    (
        "use tools with an LLM agent",
        &["assistant", "assistant#tools", "mcp#tools-of-an-assistant"],
    ),
    (
        "set the name and description on the agent card",
        &[
            "configure",
            "configure#agents",
            "reference/configuration#agents",
        ],
    ),
    (
        "add skills to the agent card",
        &[
            "configure",
            "configure#agents",
            "reference/configuration#agents",
        ],
    ),
    (
        "test my agent without network",
        &[
            "embed",
            "embed#run-it-in-your-process",
            "client#other-transports",
            "mock",
        ],
    ),
    (
        "timeout of an agent",
        &[
            "reference/configuration",
            "reference/configuration#limits",
            "agents#limits",
            "command",
            "configure",
        ],
    ),
    ("run with docker", &["container", "container#*"]),
    (
        "how do I deploy it with docker or kubernetes",
        &["container", "container#*"],
    ),
    (
        "what happens when a client cancels a running task",
        &["agents#what-happens-when-a-client-cancels-a-running-task"],
    ),
    (
        "what happens in my agent when a caller cancels a running task",
        &[
            "agents#what-happens-when-a-client-cancels-a-running-task",
            "command#cancellation-and-cleanup",
        ],
    ),
    (
        "kubernetes readiness probe",
        &["container", "container#*", "operate#health"],
    ),
    (
        "enable https",
        &["tls", "tls#*", "serve#tls-proxies-and-browsers"],
    ),
    ("rotate an api key", &["auth#api-keys"]),
    (
        "block webhooks to internal network ssrf",
        &["push#allowed-targets", "security", "security#*"],
    ),
    (
        "where is the data stored on disk",
        &["store#files", "store", "backup"],
    ),
    (
        "multiple tenants isolation",
        &[
            "serve#several-agents-and-tenants",
            "auth#access-rules",
            "security#*",
        ],
    ),
    (
        "log as json",
        &["operate#logs", "reference/configuration#telemetry"],
    ),
    ("jwt oidc login for callers", &["auth", "auth#*"]),
    (
        "call the agent with curl",
        &["examples/send", "examples/send#*"],
    ),
    (
        "get notified when a task is done",
        &["push", "examples/webhooks", "examples/webhooks#*"],
    ),
    (
        "how do I know if a task failed in a shell script",
        &[
            "examples/tasks#*",
            "examples/errors",
            "examples/errors#*",
            "cli#*",
        ],
    ),
    (
        "upload a pdf",
        &["examples/files", "examples/files#*", "cli"],
    ),
    (
        "grpc client",
        &["client", "client#*", "serve", "serve#*", "compatibility"],
    ),
    (
        "http 429 too many requests",
        &["limits", "reference/errors", "reference/errors#*"],
    ),
    (
        "which protocol versions are supported",
        &["compatibility", "compatibility#*", "index", "serve#*"],
    ),
    (
        "openai sdk base url",
        &["chat-completions", "examples/send#openai-client"],
    ),
];

#[test]
fn questions_find_their_answer_in_the_first_three_results() {
    let index = Index::build();
    let mut failures = Vec::new();
    for (question, answers) in QUESTIONS {
        let found = index.search(question, 3).into_iter();
        let found: Vec<String> = found.map(|section| section.address()).collect();
        let is_answer = |address: &String| {
            let page = address.split('#').next().unwrap();
            answers.contains(&address.as_str()) || answers.contains(&format!("{page}#*").as_str())
        };
        if !found.iter().any(is_answer) {
            failures.push(format!("{question}: {found:?} instead of {answers:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn answers_are_sections_that_exist() {
    for (question, answers) in QUESTIONS {
        for answer in *answers {
            let name = answer.trim_end_matches("#*");
            let is_known = super::pages::find_section(name).is_some();
            assert!(is_known, "{question}: {answer}");
        }
    }
}
