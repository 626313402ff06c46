//! The flags that every client verb accepts, declared once as data.
//!
//! This table generates:
//! - the clap arguments and their help ([`CommonFlags`](crate::args::CommonFlags));
//! - the environment variables and dotenv keys ([`SettingSources`](super::SettingSources));
//! - the rows of `config show`;
//! - the effective defaults below `--help`;
//! - the options of resume commands ([`ResumeHints`](crate::resume::ResumeHints)).

/// Declaration of one flag.
#[derive(Debug)]
pub(crate) struct Flag {
    /// Long name, without the dashes.
    pub(crate) name: &'static str,
    /// One-letter name.
    pub(crate) short: Option<char>,
    /// Other long names, shown in the help.
    pub(crate) aliases: &'static [&'static str],
    /// Values that the flag takes.
    pub(crate) kind: FlagKind,
    /// Placeholder of the value in the help.
    pub(crate) value_name: &'static str,
    /// Section of the help.
    pub(crate) heading: &'static str,
    /// Description in the help, without the name of the variable.
    pub(crate) about: &'static str,
    /// Prefix of the environment variable; `None` if only the command line sets the flag.
    pub(crate) variable_prefix: Option<&'static str>,
    /// Variable that precedes the other one while stdout is a terminal.
    pub(crate) terminal_variable: Option<&'static str>,
    /// Whether the value is a credential, which is never printed.
    pub(crate) is_secret: bool,
    /// Built-in default, as `config show` prints it.
    pub(crate) default: Option<&'static str>,
    /// Whether `config show` and `--help` list the flag.
    pub(crate) is_listed: bool,
    /// Whether the help omits the flag.
    pub(crate) is_hidden: bool,
    /// Whether a resume command repeats the flag.
    pub(crate) in_resume: bool,
}

/// Values that a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlagKind {
    /// `--flag`, `--flag=true` or `--flag=false`.
    Switch,
    /// One value.
    Value,
    /// A value per occurrence. In a variable, `separator` separates the values.
    List { separator: char },
}

/// Prefix of the variables that the CLI contract prescribes.
const CONTRACT_PREFIX: &str = "A2ACLI_";
/// Prefix of the variables of flags outside the contract.
const VENDOR_PREFIX: &str = "ATTACHE_";

const AGENT: &str = "Agent";
const OUTPUT_HEADING: &str = "Output";
const WAITING: &str = "Waiting";
const INTERACTION: &str = "Interaction";
const CREDENTIALS: &str = "Credentials";

macro_rules! flags {
    ($($name:ident = $flag:expr;)*) => {
        $(pub(crate) static $name: Flag = $flag;)*

        /// All flags, in the order of `config show` and of the help.
        pub(crate) static FLAGS: &[&Flag] = &[$(&$name),*];
    };
}

flags! {
    AGENT_CARD = Flag {
        short: Some('a'),
        in_resume: true,
        ..Flag::value("agent-card", "REF", AGENT, "Host, URL or file of the agent card, or CATALOG#NAME")
    };
    OUTPUT = Flag {
        short: Some('o'),
        default: Some("text"),
        terminal_variable: Some("ATTACHE_OUTPUT"),
        ..Flag::value("output", "FORMAT", OUTPUT_HEADING, "text, json, plain (only the answer) or pretty")
    };
    STREAM = Flag {
        variable_prefix: None,
        ..Flag::switch("stream", OUTPUT_HEADING, "Print events as they arrive; json: one per line")
    };
    ASYNC = Flag {
        aliases: &["return-immediately", "no-wait"],
        ..Flag::switch("async", WAITING, "Return the ids without waiting for the task")
    };
    WAIT = Flag {
        aliases: &["watch"],
        default: Some("true for send, false for task get"),
        ..Flag::switch("wait", WAITING, "Wait until the task ends or is interrupted; the default of send")
    };
    POLL_INTERVAL = Flag {
        default: Some("2s"),
        ..Flag::value("poll-interval", "DURATION", WAITING, "Time between polls: 500ms, 2s, 1m30s")
    };
    TIMEOUT = Flag {
        default: Some("none"),
        ..Flag::value("timeout", "DURATION", WAITING, "Time limit of the whole command")
    };
    TASK_ID = Flag::value("task-id", "ID", INTERACTION, "Continue this task");
    CONTEXT_ID = Flag::value("context-id", "ID", INTERACTION, "Context of the message, or of the listed tasks");
    TRANSPORT = Flag {
        kind: FlagKind::List { separator: ',' },
        default: Some("the order of the card"),
        in_resume: true,
        ..Flag::value("transport", "BINDING", AGENT, "Preferred binding: jsonrpc, http+json or grpc; may be repeated, most preferred first")
    };
    A2A_VERSION = Flag {
        default: Some("the highest common version, from 1.0 up"),
        in_resume: true,
        ..Flag::value("a2a-version", "VERSION", AGENT, "Protocol version to request; below 1.0 only if named: 0.3, 0.2, or auto for any")
    };
    BEARER = Flag {
        is_secret: true,
        ..Flag::value("bearer", "TOKEN", CREDENTIALS, "Bearer token. Visible in the process list and the shell history: A2ACLI_BEARER is safer")
    };
    API_KEY = Flag {
        is_secret: true,
        ..Flag::value("api-key", "KEY", CREDENTIALS, "API key. Visible in the process list and the shell history: A2ACLI_API_KEY is safer")
    };
    SVC_PARAM = Flag {
        kind: FlagKind::List { separator: '\n' },
        is_secret: true,
        ..Flag::value("svc-param", "NAME:VALUE", AGENT, "Header, or gRPC metadata, of every request; may be repeated")
    };
    METADATA = Flag::value("metadata", "JSON", INTERACTION, "JSON object for the metadata of the request");
    INSECURE = Flag {
        in_resume: true,
        ..Flag::switch("insecure", AGENT, "Do not verify certificates")
    };
    VERBOSE = Flag::switch("verbose", OUTPUT_HEADING, "Print ids, roles, media types, metadata and the message sent");
    DEBUG = Flag::switch("debug", OUTPUT_HEADING, "Log requests and responses to stderr, with credentials redacted");
    CONFIG = Flag {
        variable_prefix: None,
        is_listed: false,
        in_resume: true,
        ..Flag::value("config", "FILE", OUTPUT_HEADING, "Settings file instead of the nearest .env")
    };
    EXTENSION = Flag {
        kind: FlagKind::List { separator: ',' },
        in_resume: true,
        ..Flag::vendor("extension", "URI", AGENT, "Activate this extension, by URI; may be repeated")
    };
    V03_FILES = Flag {
        default: Some("auto"),
        in_resume: true,
        ..Flag::vendor("v03-files", "ENCODING", AGENT, "Content of files over gRPC and HTTP+JSON of 0.3: auto, raw, or base64 for Python SDKs")
    };
    ALLOW_HOST = Flag {
        kind: FlagKind::List { separator: ',' },
        in_resume: true,
        ..Flag::vendor("allow-host", "HOST", CREDENTIALS, "Send credentials to this host although the card is on another; may be repeated")
    };
    CARD_AUTH = Flag {
        kind: FlagKind::Switch,
        default: Some("false"),
        in_resume: true,
        ..Flag::vendor("card-auth", "BOOL", CREDENTIALS, "Send the credentials with the card request too; by default it carries none")
    };
    CATALOG = Flag {
        in_resume: true,
        ..Flag::vendor("catalog", "REF", AGENT, "Catalog that -a @name refers to: a host, a URL or a file")
    };
    NO_CACHE = Flag {
        kind: FlagKind::Switch,
        default: Some("false"),
        ..Flag::vendor("no-cache", "BOOL", AGENT, "Neither read nor write the card cache")
    };
    JWKS = Flag {
        in_resume: true,
        ..Flag::vendor("jwks", "FILE|URL", AGENT, "Keys that may sign the card: a key set in a file or at a URL")
    };
    REQUIRE_SIGNATURE = Flag {
        kind: FlagKind::Switch,
        default: Some("false"),
        in_resume: true,
        ..Flag::vendor("require-signature", "BOOL", AGENT, "Refuse cards that none of these keys has signed")
    };
    CA = Flag {
        in_resume: true,
        ..Flag::vendor("ca", "FILE", CREDENTIALS, "Additional trusted certificate authorities: a PEM file")
    };
    CERT = Flag {
        in_resume: true,
        ..Flag::vendor("cert", "FILE", CREDENTIALS, "Client certificate: a PEM file")
    };
    KEY = Flag {
        in_resume: true,
        ..Flag::vendor("key", "FILE", CREDENTIALS, "Private key of the client certificate: a PEM file")
    };
    ENDPOINT = Flag {
        short: Some('e'),
        variable_prefix: None,
        is_listed: false,
        is_hidden: true,
        in_resume: true,
        ..Flag::value("endpoint", "URL", AGENT, "URL of an interface, to use instead of a card")
    };
}

impl Flag {
    /// Declares a contract flag with a value.
    const fn value(
        name: &'static str,
        value_name: &'static str,
        heading: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            short: None,
            aliases: &[],
            kind: FlagKind::Value,
            value_name,
            heading,
            about,
            variable_prefix: Some(CONTRACT_PREFIX),
            terminal_variable: None,
            is_secret: false,
            default: None,
            is_listed: true,
            is_hidden: false,
            in_resume: false,
        }
    }

    /// Declares a contract switch (`=true` or `=false`), off by default.
    const fn switch(name: &'static str, heading: &'static str, about: &'static str) -> Self {
        Self {
            kind: FlagKind::Switch,
            default: Some("false"),
            ..Self::value(name, "BOOL", heading, about)
        }
    }

    /// Declares a flag outside the contract.
    const fn vendor(
        name: &'static str,
        value_name: &'static str,
        heading: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            variable_prefix: Some(VENDOR_PREFIX),
            ..Self::value(name, value_name, heading, about)
        }
    }

    /// Returns the environment variable, if the flag has one.
    pub(crate) fn variable(&self) -> Option<String> {
        let name = self.name.to_ascii_uppercase().replace('-', "_");
        Some(format!("{}{name}", self.variable_prefix?))
    }

    /// Whether the value belongs to one interaction, so that it is never stored.
    pub(crate) fn is_of_interaction(&self) -> bool {
        self.heading == INTERACTION
    }

    /// Returns the flag as typed: the short form if there is one.
    pub(crate) fn option(&self) -> String {
        match self.short {
            Some(short) => format!("-{short}"),
            None => format!("--{}", self.name),
        }
    }

    /// Returns the help text. It names the variable of a vendor flag, whose prefix users cannot guess.
    pub(crate) fn help(&self) -> String {
        match self.variable() {
            Some(variable) if self.variable_prefix == Some(VENDOR_PREFIX) => {
                format!("{} [{variable}]", self.about)
            }
            _ => self.about.to_owned(),
        }
    }

    /// Splits the value of a variable into the values of the flag.
    pub(crate) fn split(&self, value: &str) -> Vec<String> {
        let FlagKind::List { separator } = self.kind else {
            return vec![value.to_owned()];
        };
        let values = value.split(separator).map(str::trim);
        values
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_002_contract_flags_have_a2acli_variables_and_ours_have_attache_variables() {
        assert_eq!(AGENT_CARD.variable().as_deref(), Some("A2ACLI_AGENT_CARD"));
        assert_eq!(CARD_AUTH.variable().as_deref(), Some("ATTACHE_CARD_AUTH"));
        for flag in [&STREAM, &CONFIG, &ENDPOINT] {
            assert_eq!(flag.variable(), None, "{}", flag.name);
        }
    }

    #[test]
    fn flags_have_unique_names() {
        for (index, flag) in FLAGS.iter().enumerate() {
            let names = FLAGS[index + 1..].iter().map(|other| other.name);
            assert!(
                !names.into_iter().any(|name| name == flag.name),
                "{}",
                flag.name
            );
        }
    }

    #[test]
    fn interact_004_no_credential_is_part_of_a_resume_command() {
        assert!(!FLAGS.iter().any(|flag| flag.is_secret && flag.in_resume));
    }
}
