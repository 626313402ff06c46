//! What can be typed to talk to an agent.
//!
//! Values stay text here: flags, variables and files say the same things, so `settings` reads all of them in one way.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What every verb that talks to an agent takes. A value here beats `A2ACLI_<NAME>`, which beats the files.
#[derive(Debug, Args, Default)]
pub(crate) struct Common {
    /// The agent: a host or origin, the url of a card, or a file
    #[arg(short = 'a', long, value_name = "REF", help_heading = "Agent")]
    pub(crate) agent_card: Option<String>,

    /// How results are printed: text or json
    #[arg(short = 'o', long, value_name = "FORMAT", help_heading = "Output")]
    pub(crate) output: Option<String>,

    /// Follow live; with json, one object per line
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Output")]
    pub(crate) stream: Option<String>,

    /// Return the ids at once
    #[arg(long = "async", visible_aliases = ["return-immediately", "no-wait"], num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Waiting")]
    pub(crate) detach: Option<String>,

    /// Wait until the task ends or needs something; send does it anyway
    #[arg(long, visible_alias = "watch", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Waiting")]
    pub(crate) wait: Option<String>,

    /// How often to look: 500ms, 2s, 1m30s
    #[arg(long, value_name = "DURATION", help_heading = "Waiting")]
    pub(crate) poll_interval: Option<String>,

    /// How long the whole wait may take
    #[arg(long, value_name = "DURATION", help_heading = "Waiting")]
    pub(crate) timeout: Option<String>,

    /// Continue this task
    #[arg(long, value_name = "ID", help_heading = "Interaction")]
    pub(crate) task_id: Option<String>,

    /// The context a message, or the tasks of a list, belong to
    #[arg(long, value_name = "ID", help_heading = "Interaction")]
    pub(crate) context_id: Option<String>,

    /// Preferred binding: jsonrpc, http+json or grpc; may be repeated, the first one first
    #[arg(long, value_name = "BINDING", help_heading = "Agent")]
    pub(crate) transport: Vec<String>,

    /// The version to signal; below 1.0 only when named: 0.3, 0.2, 0.1, or auto for any
    #[arg(long, value_name = "VERSION", help_heading = "Agent")]
    pub(crate) a2a_version: Option<String>,

    /// A bearer token. Visible in the process list and the shell history: A2ACLI_BEARER is safer
    #[arg(long, value_name = "TOKEN", help_heading = "Credentials")]
    pub(crate) bearer: Option<String>,

    /// An API key. Visible in the process list and the shell history: A2ACLI_API_KEY is safer
    #[arg(long, value_name = "KEY", help_heading = "Credentials")]
    pub(crate) api_key: Option<String>,

    /// A header, or gRPC metadata, for every request; may be repeated
    #[arg(long, value_name = "NAME:VALUE", help_heading = "Agent")]
    pub(crate) svc_param: Vec<String>,

    /// A JSON object for the metadata of the request
    #[arg(long, value_name = "JSON", help_heading = "Interaction")]
    pub(crate) metadata: Option<String>,

    /// Do not check certificates
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Agent")]
    pub(crate) insecure: Option<String>,

    /// Show ids, roles, media types, metadata and what was sent
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Output")]
    pub(crate) verbose: Option<String>,

    /// Show what passes on the wire on stderr, credentials masked
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Output")]
    pub(crate) debug: Option<String>,

    /// A file of settings in place of the nearest .env
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) config: Option<String>,

    /// Ask for this extension, by its URI; may be repeated [ATTACHE_EXTENSION]
    #[arg(long, value_name = "URI", help_heading = "Agent")]
    pub(crate) extension: Vec<String>,

    /// A host that may have our credentials although the card is elsewhere; may be repeated [ATTACHE_ALLOW_HOST]
    #[arg(long, value_name = "HOST", help_heading = "Credentials")]
    pub(crate) allow_host: Vec<String>,

    /// The keys that may sign the card: a key set in a file, or at a url [ATTACHE_JWKS]
    #[arg(long, value_name = "FILE|URL", help_heading = "Agent")]
    pub(crate) jwks: Option<String>,

    /// Use no card but one that is signed by one of these keys [ATTACHE_REQUIRE_SIGNATURE]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Agent")]
    pub(crate) require_signature: Option<String>,

    /// Trust the certificate authorities of this PEM file too [ATTACHE_CA]
    #[arg(long, value_name = "FILE", help_heading = "Credentials")]
    pub(crate) ca: Option<String>,

    /// Show this certificate to the agent: a PEM file [ATTACHE_CERT]
    #[arg(long, value_name = "FILE", help_heading = "Credentials")]
    pub(crate) cert: Option<String>,

    /// The private key of the certificate: a PEM file [ATTACHE_KEY]
    #[arg(long, value_name = "FILE", help_heading = "Credentials")]
    pub(crate) key: Option<String>,

    /// Another name for the address of an interface, without a card.
    #[arg(short = 'e', long, value_name = "URL", hide = true)]
    pub(crate) endpoint: Option<String>,
}

/// A message and its parts, in the order they were typed.
#[derive(Debug, Args)]
pub(crate) struct Send {
    /// A text to send
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) parts: Parts,
    /// The id of the message, for a second try of one that may have arrived [default: a fresh one]
    #[arg(long, value_name = "ID", help_heading = "Interaction")]
    pub(crate) message_id: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Parts may be repeated; they keep their order.
#[derive(Debug, Args, Default)]
pub(crate) struct Parts {
    /// A text part
    #[arg(
        long,
        alias = "text-part",
        value_name = "TEXT",
        allow_hyphen_values = true,
        help_heading = "Parts, in this order"
    )]
    pub(crate) text: Vec<String>,
    /// A file by its path, sent along, or by its url, sent as it is
    #[arg(long, alias = "file-part", value_name = "PATH|URL", help_heading = "Parts, in this order")]
    pub(crate) file: Vec<String>,
    /// JSON from a file, or from stdin with -
    #[arg(
        long,
        alias = "data-part",
        value_name = "PATH|-",
        allow_hyphen_values = true,
        help_heading = "Parts, in this order"
    )]
    pub(crate) data: Vec<String>,
    /// The media type of the part flag before it
    #[arg(long, value_name = "TYPE", help_heading = "Parts, in this order")]
    pub(crate) media_type: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Card {
    /// Show the card of an agent.
    Get(CardGet),
    /// Say what could be better about a card, beyond what the schema asks.
    Lint(CardLint),
    /// Sign a card, and print it.
    Sign(CardSign),
    /// Check the signatures of a card by the keys of --jwks.
    Verify(CardLint),
}

#[derive(Debug, Args)]
pub(crate) struct CardSign {
    /// The card, as with -a
    pub(crate) reference: Option<String>,
    /// The private key: a PEM file with an EC, Ed25519 or RSA key
    #[arg(long, value_name = "FILE")]
    pub(crate) signing_key: std::path::PathBuf,
    /// The name under which others know the key
    #[arg(long, value_name = "ID")]
    pub(crate) kid: String,
    /// Say in the signature that the key set is published here
    #[arg(long, value_name = "URL")]
    pub(crate) key_set_url: Option<String>,
    /// Write the public key to this file, as a key set to publish
    #[arg(long, value_name = "FILE")]
    pub(crate) key_set: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CardGet {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    /// Check it against the schema of 1.0
    #[arg(long)]
    pub(crate) validate: bool,
    /// The card that authenticated callers see
    #[arg(long)]
    pub(crate) extended: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CardLint {
    /// The agent, as with -a
    pub(crate) reference: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Show a task: its state, artifacts and history.
    Get(TaskGet),
    /// Cancel a task.
    Cancel(TaskOne),
    /// List tasks, a page at a time.
    List(TaskList),
    /// Follow a task, also across cuts.
    Subscribe(TaskOne),
    /// Write the artifacts of a task to files.
    Download(TaskDownload),
    /// Webhooks of a task.
    #[command(subcommand)]
    PushConfig(PushConfig),
    /// Wait for a task; the exit code can tell how it went.
    Wait(TaskWait),
}

/// A verb on one task.
#[derive(Debug, Args)]
pub(crate) struct TaskOne {
    /// The task
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct TaskGet {
    /// At most so many messages of history [default: what the server gives]
    #[arg(long, value_name = "N")]
    pub(crate) history: Option<i32>,
    #[command(flatten)]
    pub(crate) one: TaskOne,
}

#[derive(Debug, Args)]
pub(crate) struct TaskList {
    /// Only in this state: completed, input-required, TASK_STATE_WORKING
    #[arg(long, value_name = "STATE")]
    pub(crate) status: Option<String>,
    /// At most so many on a page
    #[arg(long, value_name = "N")]
    pub(crate) page_size: Option<i32>,
    /// Where the last page ended
    #[arg(long, value_name = "TOKEN")]
    pub(crate) page_token: Option<String>,
    /// All pages
    #[arg(long)]
    pub(crate) all: bool,
    /// Only with a status of this time or later, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// With artifacts
    #[arg(long)]
    pub(crate) include_artifacts: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct TaskDownload {
    /// Where to write [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<std::path::PathBuf>,
    /// Only this artifact, by its id; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) artifact: Vec<String>,
    /// Overwrite files that are there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) one: TaskOne,
}

#[derive(Debug, Args)]
pub(crate) struct TaskWait {
    /// Wait through an interruption that is resolved elsewhere: auth or input; may be repeated
    #[arg(long, value_name = "WHAT")]
    pub(crate) through: Vec<String>,
    /// Wait for this state, or an end
    #[arg(long, value_name = "STATE")]
    pub(crate) until: Option<String>,
    /// Exit with 10 failed, 11 rejected, 12 canceled, 13 input required, 14 auth required
    #[arg(long)]
    pub(crate) exit_on_outcome: bool,
    #[command(flatten)]
    pub(crate) one: TaskOne,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PushConfig {
    /// Register a webhook.
    Create(PushCreate),
    /// Show a registration.
    Get(PushOne),
    /// List the registrations of a task.
    List(TaskOne),
    /// Remove a registration.
    Delete(PushOne),
}

#[derive(Debug, Args)]
pub(crate) struct PushCreate {
    /// Where to post
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,
    /// The id of the registration [default: the server makes one]
    #[arg(long = "id", value_name = "ID")]
    pub(crate) config_id: Option<String>,
    /// Sent along with every notification; better ATTACHE_PUSH_TOKEN
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The HTTP authentication scheme of the webhook, such as Bearer
    #[arg(long, value_name = "SCHEME")]
    pub(crate) auth_scheme: Option<String>,
    /// What follows the scheme; better ATTACHE_PUSH_CREDENTIALS
    #[arg(long, value_name = "CREDENTIALS", requires = "auth_scheme")]
    pub(crate) auth_credentials: Option<String>,
    #[command(flatten)]
    pub(crate) one: TaskOne,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Push {
    /// Listen for push notifications, and print them. With --task-id the agent is told to send those of that task.
    Listen(Box<PushListen>),
    /// List the webhooks that a running server has given up, or what one of them did not get.
    Deliveries(PushDeliveries),
    /// Call webhooks that were given up again, from where they were left.
    #[command(arg_required_else_help = true)]
    Retry(PushRetry),
}

#[derive(Debug, Args)]
pub(crate) struct PushDeliveries {
    /// The number of a webhook.
    pub(crate) number: Option<u64>,

    /// The folder of the agent, as it is given to `serve` [default: `attache` in your data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PushRetry {
    /// Their numbers.
    #[arg(conflicts_with = "all")]
    pub(crate) numbers: Vec<u64>,

    /// All of them.
    #[arg(long)]
    pub(crate) all: bool,

    /// The folder of the agent, as it is given to `serve` [default: `attache` in your data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PushListen {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    /// Where the agent reaches it, if that is not where it listens
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Refuse notifications without this token; better ATTACHE_PUSH_TOKEN [default with --task-id: a random one]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Refuse notifications without an Authorization of this scheme
    #[arg(long, value_name = "SCHEME")]
    pub(crate) auth_scheme: Option<String>,
    /// What follows the scheme; better ATTACHE_PUSH_CREDENTIALS
    #[arg(long, value_name = "CREDENTIALS", requires = "auth_scheme")]
    pub(crate) auth_credentials: Option<String>,
    /// End after so many [default: with the task, or with Ctrl-C]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PushOne {
    /// The id of the registration
    #[arg(long = "id", value_name = "ID")]
    pub(crate) config_id: String,
    #[command(flatten)]
    pub(crate) one: TaskOne,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Auth {
    /// Get a token as the card says, and keep it: it goes along from then on.
    Login(AuthLogin),
    /// Show the logins that are kept, without their tokens.
    Status(Talk),
    /// Forget the tokens for an agent.
    Logout(AuthLogout),
}

#[derive(Debug, Args)]
pub(crate) struct AuthLogin {
    /// The security scheme of the card [default: the first that can be logged in to]
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// How: device for people, client for programs [default: as the card says]
    #[arg(long, value_name = "FLOW")]
    pub(crate) flow: Option<crate::commands::Flow>,
    /// The client that this program is registered as [ATTACHE_CLIENT_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// A scope to ask for; may be repeated [default: those of the card]
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Vec<String>,
    /// A file with the secret of the client; ATTACHE_CLIENT_SECRET is the other way
    #[arg(long, value_name = "FILE")]
    pub(crate) client_secret_file: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct AuthLogout {
    /// Only this security scheme
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// Forget everything
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// Exit with 10 if a rule is broken
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// A url that the agent accepts as a webhook; it is registered and removed, and never called
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show the settings in force, and where each comes from.
    Show(Talk),
}

/// A verb without options of its own.
#[derive(Debug, Args)]
pub(crate) struct Talk {
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Common {
    /// What was typed, by the name of the setting.
    pub(crate) fn given(&self, name: &str) -> Vec<String> {
        let one = |value: &Option<String>| value.iter().cloned().collect();
        match name {
            "agent-card" => one(&self.agent_card),
            "output" => one(&self.output),
            "stream" => one(&self.stream),
            "async" => one(&self.detach),
            "wait" => one(&self.wait),
            "poll-interval" => one(&self.poll_interval),
            "timeout" => one(&self.timeout),
            "task-id" => one(&self.task_id),
            "context-id" => one(&self.context_id),
            "transport" => self.transport.clone(),
            "a2a-version" => one(&self.a2a_version),
            "bearer" => one(&self.bearer),
            "api-key" => one(&self.api_key),
            "svc-param" => self.svc_param.clone(),
            "metadata" => one(&self.metadata),
            "insecure" => one(&self.insecure),
            "verbose" => one(&self.verbose),
            "debug" => one(&self.debug),
            "extension" => self.extension.clone(),
            "allow-host" => self.allow_host.clone(),
            "jwks" => one(&self.jwks),
            "require-signature" => one(&self.require_signature),
            "ca" => one(&self.ca),
            "cert" => one(&self.cert),
            "key" => one(&self.key),
            _ => Vec::new(),
        }
    }
}
