//! What an agent offers beyond the core, as its card says, and who asks for more than that.

use super::modes::{EnforcedModes, MediaModes};
use crate::model::{AgentCard, Call, Error, ErrorKind, Operation, Request, Result, Version};

/// What an agent offers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capabilities {
    streaming: bool,
    push: bool,
    extended_card: Option<Box<AgentCard>>,
    declares_extended_card: bool,
    extensions: Vec<Extension>,
    modes: MediaModes,
}

#[derive(Debug, Clone)]
struct Extension {
    uri: String,
    required: bool,
}

impl Capabilities {
    /// What the public card promises; `extended` is what authenticated callers see instead of it.
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
        }
    }

    /// Refuses a message of a kind that the agent does not take, and a caller who takes nothing of what it gives.
    ///
    /// # Errors
    /// The content type is not supported.
    pub(super) fn check_modes(&self, request: &Request) -> Result<()> {
        match request {
            Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
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

    /// Those of the extensions asked for that we know; the rest is ignored.
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

    /// Refuses an operation that was not offered, and a caller who does not know an extension that is needed.
    ///
    /// # Errors
    /// The one that the protocol has for each.
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
            // A card is read before anything is known of what it needs.
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

    /// Whether webhooks may be registered.
    pub(super) fn has_push(&self) -> bool {
        self.push
    }

    /// The card that authenticated callers see.
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
