//! Section `[console]`: the web console of the admin API.

use attache::ContentVisibility;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Web console of the admin API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConsoleSection {
    /// Serve no web console, and open no console address on loopback.
    pub(crate) disabled: bool,
    /// URL of the console for browsers, if it is behind a proxy: the folder that contains `console/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Name of the server in the console. Default: the name of the agent at the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Whether operators see the content of messages: `show`, `on_request` (each view is recorded) or `never`. Default: `show` on
    /// loopback, else `on_request`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<ConsoleContent>,
    /// Refuse changes by operators of every role.
    pub(crate) read_only: bool,
}

/// Visibility of message content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConsoleContent {
    Show,
    OnRequest,
    Never,
}

impl From<ConsoleContent> for ContentVisibility {
    fn from(content: ConsoleContent) -> Self {
        match content {
            ConsoleContent::Show => Self::Show,
            ConsoleContent::OnRequest => Self::OnRequest,
            ConsoleContent::Never => Self::Never,
        }
    }
}
