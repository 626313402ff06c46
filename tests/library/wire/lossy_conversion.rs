//! Documented losses of conversions to older versions, rule by rule. The round-trip tests fail on
//! any other loss.

use std::collections::BTreeSet;
use std::sync::Arc;

use attache::model::{
    AgentCard, Artifact, Content, ListPushConfigsRequest, Message, OAuth2SecurityScheme,
    OAuthFlows, Object, Part, PushConfig, Request, Response, SecurityRequirement, SecurityScheme,
    SendMessageResponse, StreamResponse, Task, TaskStatus, Version,
};
use attache::wire::Dialect;
use attache::wire::card::CardForm;
use attache::wire::errors::{jsonrpc_code, reason};
use attache::{Error, ErrorKind};

/// Wire form that a client can select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    V1,
    V03,
    V03Rest,
    #[cfg(feature = "grpc")]
    V03Grpc,
}

impl Form {
    /// The JSON forms.
    pub(crate) const ALL: [Self; 3] = [Self::V1, Self::V03, Self::V03Rest];

    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::V1 => Dialect::V1,
            Self::V03 => Dialect::V03,
            Self::V03Rest => Dialect::V03Rest,
            // JSON equivalent of 0.3 gRPC.
            #[cfg(feature = "grpc")]
            Self::V03Grpc => Dialect::V03Rest,
        }
    }

    pub(crate) fn version(self) -> Version {
        self.dialect().version()
    }

    /// Whether the form is 0.3 gRPC.
    fn is_grpc(self) -> bool {
        !Self::ALL.contains(&self)
    }
}

/// Value that some form cannot represent completely.
pub(crate) trait Lossy: Clone {
    /// Removes everything that the form loses.
    fn remove_lost(&mut self, form: Form);

    /// Returns the value after a round trip in this form.
    fn after_round_trip(&self, form: Form) -> Self {
        let mut left = self.clone();
        left.remove_lost(form);
        left
    }
}

impl<T: Lossy> Lossy for Arc<T> {
    fn remove_lost(&mut self, form: Form) {
        Arc::make_mut(self).remove_lost(form);
    }
}

impl<T: Lossy> Lossy for Vec<T> {
    fn remove_lost(&mut self, form: Form) {
        self.iter_mut().for_each(|item| item.remove_lost(form));
    }
}

impl<T: Lossy> Lossy for Option<T> {
    fn remove_lost(&mut self, form: Form) {
        self.iter_mut().for_each(|item| item.remove_lost(form));
    }
}

/// 08 §3: versions before 1.0 omit empty metadata; protobuf keeps it.
fn omit_empty(metadata: &mut Option<Object>, form: Form) {
    if matches!(form, Form::V03 | Form::V03Rest) {
        *metadata = metadata.take().filter(|metadata| !metadata.is_empty());
    }
}

impl Lossy for Part {
    fn remove_lost(&mut self, form: Form) {
        if matches!(self.content, Content::Raw(_) | Content::Url(_)) {
            let mut metadata = self.metadata().cloned();
            omit_empty(&mut metadata, form);
            let name = self.filename().map(str::to_owned);
            let media_type = self.media_type().map(str::to_owned);
            *self = Self::from(self.content.clone());
            self.clone_from(&metadata.into_iter().fold(self.clone(), Self::with_metadata));
            self.clone_from(&name.into_iter().fold(self.clone(), Self::with_filename));
            self.clone_from(
                &media_type
                    .into_iter()
                    .fold(self.clone(), Self::with_media_type),
            );
            return;
        }
        if form == Form::V1 {
            return;
        }
        // 08 §5: media type and filename of text and data parts.
        let mut metadata = self.metadata().cloned();
        if let Content::Data(data) = &self.content {
            // 08 §3: data that is not an object is marked in its metadata, and empty metadata is
            // omitted.
            if Object::try_from(data.clone()).is_err() {
                metadata = metadata.filter(|metadata| !metadata.is_empty());
            }
        }
        omit_empty(&mut metadata, form);
        *self = Self::from(self.content.clone());
        if let Some(metadata) = metadata {
            *self = self.clone().with_metadata(metadata);
        }
    }
}

impl Lossy for Message {
    fn remove_lost(&mut self, form: Form) {
        self.parts.remove_lost(form);
        omit_empty(&mut self.metadata, form);
        if form.dialect() == Dialect::V03Rest {
            // 08 §5: REST and gRPC have no field for references.
            self.reference_task_ids.clear();
        }
    }
}

impl Lossy for Artifact {
    fn remove_lost(&mut self, form: Form) {
        self.parts.remove_lost(form);
        omit_empty(&mut self.metadata, form);
    }
}

impl Lossy for TaskStatus {
    fn remove_lost(&mut self, form: Form) {
        self.message.remove_lost(form);
    }
}

impl Lossy for Task {
    fn remove_lost(&mut self, form: Form) {
        self.status.remove_lost(form);
        self.artifacts.remove_lost(form);
        self.history.remove_lost(form);
    }
}

impl Lossy for StreamResponse {
    fn remove_lost(&mut self, form: Form) {
        match self {
            Self::Task(task) => task.remove_lost(form),
            Self::Message(message) => message.remove_lost(form),
            Self::StatusUpdate(event) => event.status.remove_lost(form),
            Self::ArtifactUpdate(event) => event.artifact.remove_lost(form),
        }
    }
}

impl Lossy for PushConfig {
    fn remove_lost(&mut self, form: Form) {
        match form {
            // 08 §5: additional authentication schemes.
            Form::V1 => self.other_schemes.clear(),
            // 08 §5: tenant.
            _ => self.tenant = None,
        }
        if form.is_grpc() && self.id.is_none() {
            // 02 §9: the resource name consists of both ids; without a config id there is no task
            // id.
            self.task_id = None;
        }
    }
}

/// 08 §1: in 0.3 a history length of 0 means all.
fn lose_zero(length: &mut Option<i32>) {
    *length = length.filter(|length| *length != 0);
}

impl Lossy for Request {
    fn remove_lost(&mut self, form: Form) {
        let old = form != Form::V1;
        let tenant = match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => {
                request.message.remove_lost(form);
                if form.is_grpc() {
                    // 04 §3.1: always written, because servers disagree on the default.
                    request.configuration.get_or_insert_default();
                }
                if let Some(configuration) = &mut request.configuration {
                    configuration
                        .task_push_notification_config
                        .remove_lost(form);
                    if old {
                        lose_zero(&mut configuration.history_length);
                    }
                }
                &mut request.tenant
            }
            Self::GetTask(request) => {
                if old {
                    lose_zero(&mut request.history_length);
                }
                &mut request.tenant
            }
            Self::ListTasks(request) => &mut request.tenant,
            Self::CancelTask(request) => {
                // 02 §9: the 0.3 proto has no metadata here.
                request.metadata = request
                    .metadata
                    .take()
                    .filter(|_| form.dialect() != Dialect::V03Rest);
                &mut request.tenant
            }
            Self::SubscribeToTask(request) => &mut request.tenant,
            Self::CreatePushConfig(config) => {
                let task = config.task_id.clone();
                config.remove_lost(form);
                if form.is_grpc() {
                    // 04 §3.7: without an id, the configuration has the id of its task.
                    config.id = config
                        .id
                        .take()
                        .or_else(|| Some(task.as_ref()?.as_str().into()));
                    config.task_id = task;
                }
                &mut config.tenant
            }
            Self::GetPushConfig(request) => {
                // Not on the wire: the version determines whether the id may be absent.
                request.allow_missing_id = old && !form.is_grpc();
                &mut request.tenant
            }
            Self::ListPushConfigs(request) => {
                if form == Form::V03 {
                    // 08 §5: paging of push configurations; in the 0.3 proto, but not in its
                    // JSON-RPC (02 §9).
                    *request = ListPushConfigsRequest {
                        page_size: 0,
                        page_token: None,
                        ..request.clone()
                    };
                }
                &mut request.tenant
            }
            Self::DeletePushConfig(request) => &mut request.tenant,
            Self::GetExtendedAgentCard(request) => &mut request.tenant,
        };
        if old {
            // 08 §5: tenant.
            *tenant = None;
        }
    }
}

impl Lossy for Response {
    fn remove_lost(&mut self, form: Form) {
        let old = form != Form::V1;
        match self {
            Self::SendMessage(SendMessageResponse::Task(task)) | Self::Task(task) => {
                task.remove_lost(form)
            }
            Self::SendMessage(SendMessageResponse::Message(message)) => message.remove_lost(form),
            // 08 §2: in 0.3 only an alias in JSON-RPC; REST responds in the same form.
            Self::ListTasks(page) if form == Form::V03Rest => page.tasks.remove_lost(Form::V03),
            Self::ListTasks(page) => page.tasks.remove_lost(form),
            Self::PushConfig(config) => config.remove_lost(form),
            Self::ListPushConfigs(list) => {
                list.configs.remove_lost(form);
                if old && !form.is_grpc() {
                    // 08 §2: 0.3 returns all of them at once.
                    list.next_page_token.clear();
                }
            }
            Self::Empty => {}
            Self::AgentCard(card) => {
                **card = card_after(card, card_form(form)).unwrap_or_default();
                if form.is_grpc() {
                    lose_presence(card);
                }
            }
        }
    }
}

/// Returns the form of a card in a response.
pub(crate) fn card_form(form: Form) -> CardForm {
    match form {
        Form::V1 => CardForm::V1,
        Form::V03 => CardForm::V03,
        Form::V03Rest => CardForm::V03Wrapped,
        #[cfg(feature = "grpc")]
        Form::V03Grpc => CardForm::V03,
    }
}

/// 01 §5: fields without presence in `a2a.v1` are absent if they have their default.
fn lose_presence(card: &mut AgentCard) {
    card.documentation_url = card.documentation_url.take().filter(|url| !url.is_empty());
    card.icon_url = card.icon_url.take().filter(|url| !url.is_empty());
    let capabilities = &mut card.capabilities;
    capabilities.streaming = capabilities.streaming.filter(|streaming| *streaming);
    capabilities.push_notifications = capabilities.push_notifications.filter(|push| *push);
    // 02 §9: missing in the revision of the 0.3 Python SDK.
    capabilities.state_transition_history = None;
}

/// Returns the card after a round trip in a form; `None` if the form cannot represent it.
pub(crate) fn card_after(card: &AgentCard, form: CardForm) -> Option<AgentCard> {
    let mut card = card.clone();
    let is_older = |version: &str| version.is_empty() || version.starts_with("0.");
    let older = card
        .supported_interfaces
        .iter()
        .any(|interface| is_older(&interface.protocol_version));
    match (form, older) {
        (CardForm::Union, true) => return Some(card),
        (CardForm::V1 | CardForm::Union, _) => {
            // 08 §5: stateTransitionHistory, which 1.0 dropped.
            card.capabilities.state_transition_history = None;
            return Some(card);
        }
        (_, false) => return None,
        (CardForm::V03 | CardForm::V03Wrapped | CardForm::V02, true) => {}
    }
    // 08 §4: only interfaces before 1.0, one version for all, no tenant, no duplicates.
    card.supported_interfaces
        .retain(|interface| is_older(&interface.protocol_version));
    let version = card.supported_interfaces[0].protocol_version.clone();
    let version = if matches!(&*version, "" | "0.3.0") {
        "0.3".to_owned()
    } else {
        version
    };
    // 08 §7: a 0.2 card has a 0.2 version.
    let newer = form == CardForm::V02 && !version.starts_with("0.2");
    let version = if newer { "0.2.5".to_owned() } else { version };
    let mut seen = BTreeSet::new();
    card.supported_interfaces.retain(|interface| {
        seen.insert((interface.url.clone(), interface.protocol_binding.clone()))
    });
    for interface in &mut card.supported_interfaces {
        interface.tenant = None;
        interface.protocol_version.clone_from(&version);
    }
    // 03 §7: omitted if false.
    card.capabilities.extended_agent_card = card
        .capabilities
        .extended_agent_card
        .filter(|extended| *extended);
    lose_schemes(&mut card, form);
    if form == CardForm::V02 {
        // 03 §1: 0.2 has no signatures and no requirements of skills.
        card.signatures.clear();
        card.skills
            .iter_mut()
            .for_each(|skill| skill.security_requirements.clear());
    }
    Some(card)
}

fn lose_schemes(card: &mut AgentCard, form: CardForm) {
    card.security_schemes.retain(|_, scheme| match scheme {
        // 08 §5: the device code flow and its scheme.
        SecurityScheme::OAuth2(OAuth2SecurityScheme {
            flows: Some(OAuthFlows::DeviceCode(_)),
            ..
        }) => false,
        // 03 §1: 0.2 has no mutual TLS.
        SecurityScheme::MutualTls(_) => form != CardForm::V02,
        _ => true,
    });
    // 08 §4: requirements that name a lost scheme.
    let known = |requirement: &SecurityRequirement| {
        requirement
            .schemes
            .keys()
            .all(|name| card.security_schemes.contains_key(name))
    };
    card.security_requirements.retain(known);
    card.skills
        .iter_mut()
        .for_each(|skill| skill.security_requirements.retain(known));
    for scheme in card.security_schemes.values_mut() {
        let SecurityScheme::OAuth2(scheme) = scheme else {
            continue;
        };
        if form == CardForm::V02 {
            // 03 §1: 0.2 has no OAuth metadata URL.
            scheme.oauth2_metadata_url = None;
        }
        if let (Some(OAuthFlows::AuthorizationCode(flow)), true) =
            (&mut scheme.flows, form != CardForm::V03Wrapped)
        {
            // 08 §5: `pkceRequired`. The wrapped form contains the 1.0 shape, including the flag.
            flow.pkce_required = false;
        }
    }
}

/// Binding of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    JsonRpc,
    Rest,
    #[cfg(feature = "grpc")]
    Grpc,
}

/// Returns the error as a client reads it. The retry delay is in a header, and in the details of
/// gRPC.
pub(crate) fn error_after(error: &Error, carrier: Carrier, version: Version) -> Error {
    let kind = error.kind();
    let all = ErrorKind::ALL.into_iter();
    let read = match (carrier, version) {
        // 06 §1: four kinds share -32000; only the typed details of 1.0 distinguish them.
        (Carrier::JsonRpc, Version::V1) if jsonrpc_code(kind) == -32000 => kind,
        (Carrier::JsonRpc, Version::V03) if jsonrpc_code(kind) == -32000 => {
            ErrorKind::Other(-32000)
        }
        (Carrier::JsonRpc, _) => all
            .clone()
            .find(|other| jsonrpc_code(*other) == jsonrpc_code(kind))
            .unwrap_or(kind),
        // 06 §1: some kinds share a reason; REST and gRPC have no custom codes.
        (_, _) => all
            .clone()
            .find(|other| reason(*other) == reason(kind))
            .unwrap_or(ErrorKind::Internal),
    };
    let card = ErrorKind::ExtendedAgentCardNotConfigured;
    let message = match version {
        // 06 §1: 0.3 has another message for one error.
        Version::V03 if kind == card && error.message() == card.message() => {
            "Authenticated Extended Card is not configured"
        }
        Version::V03 | Version::V1 => error.message(),
    };
    let mut left = Error::new(read).with_message(message.to_owned());
    #[cfg(feature = "grpc")]
    if carrier == Carrier::Grpc {
        left = error
            .retry_after()
            .into_iter()
            .fold(left, Error::with_retry_after);
    }
    // 08 §5: typed details. 06 §2: 0.3 JSON-RPC has a data object with the details, without violations.
    let typed = carrier != Carrier::JsonRpc || version == Version::V1;
    left = error.metadata().fold(left, |left, (key, value)| {
        left.with_detail(key.to_owned(), value)
    });
    let violations = error.violations().iter().filter(|_| typed).cloned();
    violations.fold(left, Error::with_violation)
}
