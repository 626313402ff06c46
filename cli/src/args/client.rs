//! What can be typed to talk to an agent.
//!
//! Values stay text here: flags, variables and files say the same things, so `settings` reads all of them in one way.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What every verb that talks to an agent takes. A value here beats `A2ACLI_<NAME>`, which beats the files.
#[derive(Debug, Args, Default)]
pub(crate) struct CommonFlags {
    /// The agent: a host or origin, the url of a card, a file, or CATALOG#NAME
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

    /// The version to signal; below 1.0 only when named: 0.3, 0.2, or auto for any
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

    /// Send the credentials for the card too; it is read without them otherwise [ATTACHE_CARD_AUTH]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Credentials")]
    pub(crate) card_auth: Option<String>,

    /// The catalog that -a @name is in: a host, a url or a file [ATTACHE_CATALOG]
    #[arg(long, value_name = "REF", help_heading = "Agent")]
    pub(crate) catalog: Option<String>,

    /// Read the card anew, and keep no copy of it [ATTACHE_NO_CACHE]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Agent")]
    pub(crate) no_cache: Option<String>,

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
pub(crate) struct SendArgs {
    /// A text to send; - reads it from stdin
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartFlags,
    /// The id of the message, for a second try of one that may have arrived [default: a fresh one]
    #[arg(long, value_name = "ID", help_heading = "Interaction")]
    pub(crate) message_id: Option<String>,
    /// The skill that the message is for, by its id on the card
    #[arg(long, value_name = "ID", help_heading = "Interaction")]
    pub(crate) skill: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

/// Parts may be repeated; they keep their order.
#[derive(Debug, Args, Default)]
pub(crate) struct PartFlags {
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
    #[arg(
        long,
        alias = "file-part",
        value_name = "PATH|URL",
        help_heading = "Parts, in this order"
    )]
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

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// Exit with 10 if a rule is broken
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Runs the test kit of the protocol instead: the folder of a checkout of a2a-tck with what it needs installed
    #[arg(long, value_name = "DIR", conflicts_with_all = ["webhook", "slow", "ask"])]
    pub(crate) kit: Option<PathBuf>,
    /// A url that the agent accepts as a webhook; it is registered and removed, and never called
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// A message that keeps the agent busy, to cancel and follow its task while it runs
    #[arg(long, value_name = "TEXT")]
    pub(crate) slow: Option<String>,
    /// A message that makes the agent ask back, to answer and cancel its task while it waits
    #[arg(long, value_name = "TEXT")]
    pub(crate) ask: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the settings in force, and where each comes from.
    Show(ClientArgs),
}

/// A verb without options of its own.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

impl CommonFlags {
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
            "card-auth" => one(&self.card_auth),
            "catalog" => one(&self.catalog),
            "no-cache" => one(&self.no_cache),
            "jwks" => one(&self.jwks),
            "require-signature" => one(&self.require_signature),
            "ca" => one(&self.ca),
            "cert" => one(&self.cert),
            "key" => one(&self.key),
            _ => Vec::new(),
        }
    }
}
