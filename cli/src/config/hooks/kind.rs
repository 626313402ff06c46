//! Types of hooks: their keys, phases and construction.

use attache::{Hook, HookPhase};
#[cfg(unix)]
use attache_agents::CommandHookSettings;
use attache_agents::{
    DenyHook, ExternalHook, HttpHookSettings, MaskHook, PatternError, Supervisor,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HookSection;
use crate::config::error::KeyError;

/// Text in place of a match, unless the hook sets another one.
const DEFAULT_REPLACEMENT: &str = "***";
/// Longest match across chunks in bytes, unless the hook sets another limit.
const DEFAULT_MAX_MATCH_BYTES: usize = 1024;
/// Message for the caller of a refused message, unless the hook sets another one.
const DEFAULT_MESSAGE: &str = "the message is not allowed";

/// Type of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum HookKind {
    /// Replaces matches in messages and events.
    Mask,
    /// Refuses messages with a match.
    Deny,
    /// Posts a JSON document to a URL, and reads the decision from the response.
    Http,
    /// Runs a program that reads a JSON document from stdin and writes the decision to stdout.
    #[cfg(unix)]
    Command,
}

impl HookKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mask => "mask",
            Self::Deny => "deny",
            Self::Http => "http",
            #[cfg(unix)]
            Self::Command => "command",
        }
    }

    /// Phases that hooks of this type have.
    pub(super) fn phases(self) -> &'static [HookPhase] {
        match self {
            Self::Mask => &[HookPhase::Call, HookPhase::Event],
            Self::Deny => &[HookPhase::Call],
            Self::Http => &HookPhase::ALL,
            #[cfg(unix)]
            Self::Command => &HookPhase::ALL,
        }
    }

    /// Keys of this type that must be set.
    fn required_keys(self) -> &'static [&'static str] {
        match self {
            Self::Mask | Self::Deny => &["patterns"],
            Self::Http => &["url"],
            #[cfg(unix)]
            Self::Command => &["command"],
        }
    }

    /// Keys of this type that may be set.
    fn optional_keys(self) -> &'static [&'static str] {
        match self {
            Self::Mask => &["replacement", "max_match_bytes"],
            Self::Deny => &["message", "error"],
            Self::Http => &["headers", "max_requests", "max_reply"],
            #[cfg(unix)]
            Self::Command => &[
                "shell",
                "folder",
                "pass_env",
                "env",
                "max_processes",
                "max_reply",
            ],
        }
    }
}

impl HookSection {
    /// Checks that the keys of the type are set, and no keys of another one.
    ///
    /// # Errors
    /// A required key is missing, or a key belongs to another type.
    pub(super) fn check_keys(&self) -> Result<(), KeyError> {
        let kind = self.kind.as_str();
        let required = self.kind.required_keys();
        let optional = self.kind.optional_keys();
        for (key, is_set) in self.kind_keys() {
            if is_set && !required.contains(&key) && !optional.contains(&key) {
                let known = [required, optional].concat().join(", ");
                let message = format!("a hook of type `{kind}` has no such key; it has {known}");
                return Err(KeyError::new(key, message));
            }
            if !is_set && required.contains(&key) {
                let message = format!("a hook of type `{kind}` needs `{key}`");
                return Err(KeyError::new("type", message));
            }
        }
        Ok(())
    }

    /// Keys that only some types have, and whether they are set.
    fn kind_keys(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("patterns", self.patterns.is_some()),
            ("replacement", self.replacement.is_some()),
            ("max_match_bytes", self.max_match_bytes.is_some()),
            ("message", self.message.is_some()),
            ("error", self.error.is_some()),
            ("url", self.url.is_some()),
            ("headers", self.headers.is_some()),
            ("max_requests", self.max_requests.is_some()),
            #[cfg(unix)]
            ("command", self.command.is_some()),
            #[cfg(unix)]
            ("shell", self.shell.is_some()),
            #[cfg(unix)]
            ("folder", self.folder.is_some()),
            #[cfg(unix)]
            ("pass_env", self.pass_env.is_some()),
            #[cfg(unix)]
            ("env", self.env.is_some()),
            #[cfg(unix)]
            ("max_processes", self.max_processes.is_some()),
            ("max_reply", self.max_reply.is_some()),
        ]
    }

    /// Builds the hook with its interceptor.
    ///
    /// # Errors
    /// A setting is invalid.
    pub(super) fn build_interceptor(
        &self,
        supervisor: Option<&Supervisor>,
    ) -> Result<Hook, KeyError> {
        match self.kind {
            HookKind::Mask => self.build_mask(),
            HookKind::Deny => self.build_deny(),
            HookKind::Http => self.build_http(),
            #[cfg(unix)]
            HookKind::Command => self.build_command(supervisor),
        }
    }

    fn build_mask(&self) -> Result<Hook, KeyError> {
        let replacement = self.replacement.as_deref().unwrap_or(DEFAULT_REPLACEMENT);
        let max_match_bytes = self.max_match_bytes.unwrap_or(DEFAULT_MAX_MATCH_BYTES);
        if max_match_bytes == 0 {
            return Err(KeyError::new("max_match_bytes", "must be at least 1"));
        }
        let patterns = self.patterns.as_deref().unwrap_or_default();
        let mask = MaskHook::new(patterns, replacement, max_match_bytes);
        let mask = mask.map_err(|error| pattern_error(&error))?;
        Ok(Hook::new(&self.name, mask))
    }

    fn build_deny(&self) -> Result<Hook, KeyError> {
        let kind = self.error.unwrap_or_default().into();
        let message = self.message.as_deref().unwrap_or(DEFAULT_MESSAGE);
        let patterns = self.patterns.as_deref().unwrap_or_default();
        let deny = DenyHook::new(patterns, kind, message);
        let deny = deny.map_err(|error| pattern_error(&error))?;
        Ok(Hook::new(&self.name, deny))
    }

    fn build_http(&self) -> Result<Hook, KeyError> {
        let default = HttpHookSettings::default();
        let http = ExternalHook::http(HttpHookSettings {
            url: self.url.clone().unwrap_or_default(),
            headers: self.headers.clone().unwrap_or_default(),
            max_reply: self.max_reply.unwrap_or(default.max_reply),
            max_requests: self.max_requests.unwrap_or(default.max_requests),
        });
        let http = http.map_err(|error| KeyError::new(error.key, &error))?;
        Ok(Hook::new(&self.name, http).traced())
    }

    #[cfg(unix)]
    fn build_command(&self, supervisor: Option<&Supervisor>) -> Result<Hook, KeyError> {
        let default = CommandHookSettings::default();
        let command = ExternalHook::command(CommandHookSettings {
            command: self.command.clone().unwrap_or(default.command),
            shell: self.shell.unwrap_or(default.shell),
            folder: self.folder.clone(),
            pass_env: self.pass_env.clone().unwrap_or_default(),
            env: self.env.clone().unwrap_or_default(),
            max_reply: self.max_reply.unwrap_or(default.max_reply),
            max_processes: self.max_processes.unwrap_or(default.max_processes),
            supervisor: supervisor.cloned(),
        });
        let command = command.map_err(|error| KeyError::new(error.key, &error))?;
        Ok(Hook::new(&self.name, command).traced())
    }
}

fn pattern_error(error: &PatternError) -> KeyError {
    KeyError::new(format!("patterns.{}", error.index), error)
}
