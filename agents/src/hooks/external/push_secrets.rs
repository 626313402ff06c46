//! Credentials of webhooks, which documents for external hooks do not contain.

use attache::model::{PushConfig, PushConfigId, Request, Response, SendMessageRequest};

/// Credentials of the push configurations of a request or response. They are taken before a hook runs, and put back after
/// it into the configurations that are still there.
#[derive(Default)]
pub(super) struct PushSecrets(Vec<PushConfig>);

impl PushSecrets {
    pub(super) fn take_from_request(request: &mut Request) -> Self {
        let mut taken = Self::default();
        request_config(request, |config| taken.take(config));
        taken
    }

    pub(super) fn restore_to_request(self, request: &mut Request) {
        request_config(request, |config| {
            if let Some(original) = self.0.first() {
                restore(config, original);
            }
        });
    }

    pub(super) fn take_from_response(response: &mut Response) -> Self {
        let mut taken = Self::default();
        response_configs(response, |config| taken.take(config));
        taken
    }

    pub(super) fn restore_to_response(self, response: &mut Response) {
        response_configs(response, |config| {
            if let Some(original) = self.find(config.id.as_ref()) {
                restore(config, original);
            }
        });
    }

    /// Moves the credentials of a configuration.
    fn take(&mut self, config: &mut PushConfig) {
        self.0.push(PushConfig {
            id: config.id.clone(),
            token: config.token.take(),
            authentication: config.authentication.take(),
            other_schemes: std::mem::take(&mut config.other_schemes),
            headers: std::mem::take(&mut config.headers),
            ..PushConfig::default()
        });
    }

    fn find(&self, id: Option<&PushConfigId>) -> Option<&PushConfig> {
        self.0.iter().find(|original| original.id.as_ref() == id)
    }
}

fn restore(config: &mut PushConfig, original: &PushConfig) {
    config.token.clone_from(&original.token);
    config.authentication.clone_from(&original.authentication);
    config.other_schemes.clone_from(&original.other_schemes);
    config.headers.clone_from(&original.headers);
}

/// Visits the push configuration of a request.
fn request_config(request: &mut Request, visit: impl FnOnce(&mut PushConfig)) {
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            inline_config(send).map(visit);
        }
        Request::CreatePushConfig(config) => visit(config),
        Request::GetTask(_)
        | Request::ListTasks(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::GetPushConfig(_)
        | Request::ListPushConfigs(_)
        | Request::DeletePushConfig(_)
        | Request::GetExtendedAgentCard(_) => {}
    }
}

fn inline_config(send: &mut SendMessageRequest) -> Option<&mut PushConfig> {
    let configuration = send.configuration.as_mut()?;
    configuration.task_push_notification_config.as_mut()
}

/// Visits the push configurations of a response.
fn response_configs(response: &mut Response, mut visit: impl FnMut(&mut PushConfig)) {
    match response {
        Response::PushConfig(config) => visit(config),
        Response::ListPushConfigs(list) => list.configs.iter_mut().for_each(visit),
        Response::SendMessage(_)
        | Response::Task(_)
        | Response::ListTasks(_)
        | Response::Empty
        | Response::AgentCard(_) => {}
    }
}
