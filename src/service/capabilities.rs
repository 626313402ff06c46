//! Declared capabilities of an agent: streaming, push notifications, extended card, extensions, media types.
//!
//! Operations that the card does not declare are refused with the error that the protocol defines.

use super::modes::{EnforcedModes, MediaModes};
use crate::model::{AgentCard, Call, Error, ErrorKind, Operation, Request, Result, Version};

/// Capabilities that the agent card declares.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capabilities {
    streaming: bool,
    push: bool,
    extended_card: Option<Box<AgentCard>>,
    declares_extended_card: bool,
    extensions: Vec<Extension>,
    modes: MediaModes,
    requires_text: bool,
}

#[derive(Debug, Clone)]
struct Extension {
    uri: String,
    required: bool,
}

impl Capabilities {
    /// Reads the capabilities of the public card. `extended` is the card for authenticated callers.
    pub(crate) fn new(
        card: &AgentCard,
        extended: Option<AgentCard>,
        enforced: EnforcedModes,
    ) -> Self {
        let capabilities = &card.capabilities;
        let modes = MediaModes::new([card].into_iter().chain(&extended), enforced);
        let extensions = capabilities
            .extensions
            .iter()
            .filter(|extension| !extension.uri.is_empty());
        Self {
            streaming: capabilities.streaming == Some(true),
            push: capabilities.push_notifications == Some(true),
            extended_card: extended.map(Box::new),
            declares_extended_card: capabilities.extended_agent_card == Some(true),
            extensions: extensions
                .map(|extension| Extension {
                    uri: extension.uri.clone(),
                    required: extension.required == Some(true),
                })
                .collect(),
            modes,
            requires_text: false,
        }
    }

    /// Sets whether every message must have a text part.
    pub(crate) fn with_required_text(mut self, requires_text: bool) -> Self {
        self.requires_text = requires_text;
        self
    }

    /// Checks the parts of a message: their media types, and whether there is a text if the agent requires one.
    ///
    /// # Errors
    /// Content type not supported. Invalid parameters: a text part is missing.
    pub(super) fn check_parts(&self, request: &Request) -> Result<()> {
        match request {
            Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
                if self.requires_text && !request.message.has_text() {
                    return Err(Error::invalid(
                        "message.parts",
                        "must contain a text part, because this agent requires text",
                    ));
                }
                self.modes.check(request)
            }
            Request::GetTask(_)
            | Request::ListTasks(_)
            | Request::CancelTask(_)
            | Request::SubscribeToTask(_)
            | Request::CreatePushConfig(_)
            | Request::GetPushConfig(_)
            | Request::ListPushConfigs(_)
            | Request::DeletePushConfig(_)
            | Request::GetExtendedAgentCard(_) => Ok(()),
        }
    }

    /// Returns the requested extensions that the agent supports; others are ignored.
    pub(crate) fn activate_extensions<'a>(
        &self,
        requested: impl IntoIterator<Item = &'a str>,
    ) -> Vec<String> {
        let requested: Vec<&str> = requested.into_iter().collect();
        let known = self.extensions.iter().map(|extension| &extension.uri);
        known
            .filter(|uri| requested.contains(&uri.as_str()))
            .cloned()
            .collect()
    }

    /// Checks that the agent declares the operation and that the call activates all required extensions.
    ///
    /// # Errors
    /// Unsupported operation, push notifications not supported, or extension support required.
    pub(super) fn check(&self, operation: Operation, call: &Call) -> Result<()> {
        match operation {
            Operation::SendStreamingMessage | Operation::SubscribeToTask if !self.streaming => {
                return Err(ErrorKind::UnsupportedOperation.into());
            }
            Operation::CreatePushConfig
            | Operation::GetPushConfig
            | Operation::ListPushConfigs
            | Operation::DeletePushConfig
                if !self.push =>
            {
                return Err(ErrorKind::PushNotificationNotSupported.into());
            }
            // Exempt from required extensions: the client learns of them from the card.
            Operation::GetExtendedAgentCard => return Ok(()),
            Operation::SendMessage
            | Operation::SendStreamingMessage
            | Operation::GetTask
            | Operation::ListTasks
            | Operation::CancelTask
            | Operation::SubscribeToTask
            | Operation::CreatePushConfig
            | Operation::GetPushConfig
            | Operation::ListPushConfigs
            | Operation::DeletePushConfig => {}
        }
        let missing = |extension: &&Extension| {
            extension.required && !call.extensions.contains(&extension.uri)
        };
        match self.extensions.iter().find(missing) {
            Some(Extension { uri, .. }) => Err(Error::new(ErrorKind::ExtensionSupportRequired)
                .with_detail("extension", uri.as_str())),
            None => Ok(()),
        }
    }

    /// Whether the agent supports push notifications.
    pub(super) fn has_push(&self) -> bool {
        self.push
    }

    /// Returns the card for authenticated callers.
    ///
    /// # Errors
    /// The card does not declare one, or none is configured.
    pub(super) fn extended_card(&self, version: Version) -> Result<Box<AgentCard>> {
        match &self.extended_card {
            _ if !self.declares_extended_card => {
                Err(ErrorKind::undeclared_extended_card(version).into())
            }
            Some(card) => Ok(card.clone()),
            None => Err(ErrorKind::ExtendedAgentCardNotConfigured.into()),
        }
    }
}
