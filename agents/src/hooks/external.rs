//! Hooks outside of the server: one JSON document per call, response or event, and a decision in return.

#[cfg(unix)]
mod command;
mod decision;
mod document;
mod http;
mod push_secrets;

use attache::model::{Request, Response, StreamResponse};
use attache::{HookContext, HookError, HookPhase, Interceptor, async_trait};
use serde::Serialize;

#[cfg(unix)]
use command::CommandTransport;
#[cfg(unix)]
pub use command::{CommandHookSettings, CommandHookSettingsError};
pub use decision::DenialKind;
use decision::{Decision, decode};
use document::{HookDocument, RequestJson, ResponseJson, change_request, change_response};
use http::HttpTransport;
pub use http::{HttpHookSettings, HttpHookSettingsError};
use push_secrets::PushSecrets;

/// Hook outside of the server: an HTTP service, or a program.
///
/// It receives one JSON document for each call, response or event, and returns a decision: `allow`, `change` with the
/// changed request, response or event, or `deny` with a message. Anything else is a failure. Documents contain no
/// credentials: those of webhooks are left out, and stay if the hook changes the request.
///
/// ```
/// use attache::Hook;
/// use attache_agents::{ExternalHook, HttpHookSettings};
///
/// let settings = HttpHookSettings { url: "http://127.0.0.1:9000/policy".to_owned(), ..HttpHookSettings::default() };
/// let hook = Hook::new("policy", ExternalHook::http(settings)?).traced();
/// # Ok::<(), attache_agents::HttpHookSettingsError>(())
/// ```
#[derive(Debug)]
pub struct ExternalHook(Transport);

#[derive(Debug)]
enum Transport {
    Http(Box<HttpTransport>),
    #[cfg(unix)]
    Command(Box<CommandTransport>),
}

impl ExternalHook {
    /// Creates a hook that posts the documents to a URL. Does not connect.
    ///
    /// # Errors
    /// The URL, a header or a limit is invalid.
    pub fn http(settings: HttpHookSettings) -> Result<Self, HttpHookSettingsError> {
        let transport = HttpTransport::new(settings)?;
        Ok(Self(Transport::Http(Box::new(transport))))
    }

    /// Creates a hook that runs a program for each document: the document on stdin, the decision on stdout.
    ///
    /// # Errors
    /// The command or a limit is invalid.
    #[cfg(unix)]
    pub fn command(settings: CommandHookSettings) -> Result<Self, CommandHookSettingsError> {
        let transport = CommandTransport::new(settings)?;
        Ok(Self(Transport::Command(Box::new(transport))))
    }

    /// Sends a document and returns the decision.
    ///
    /// # Errors
    /// The document cannot be delivered, or the reply is no decision.
    async fn decide<T: Serialize>(
        &self,
        context: &HookContext<'_>,
        phase: HookPhase,
        subject: T,
    ) -> Result<Decision, HookError> {
        let document = HookDocument::new(context, phase, subject);
        let document = serde_json::to_vec(&document)?;
        let caller = context.caller_key();
        let reply = match &self.0 {
            Transport::Http(http) => http.exchange(caller, document).await?,
            #[cfg(unix)]
            Transport::Command(command) => command.exchange(context, caller, document).await?,
        };
        Decision::parse(&reply, phase)
    }
}

#[async_trait]
impl Interceptor for ExternalHook {
    async fn before_call(
        &self,
        context: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        let secrets = PushSecrets::take_from_request(request);
        let decision = self
            .decide(context, HookPhase::Call, RequestJson(request))
            .await;
        let applied = decision.and_then(|decision| match decision {
            Decision::Allow => Ok(()),
            Decision::Change(changed) => change_request(request, &changed),
            Decision::Deny(denial) => Err(denial.into()),
        });
        secrets.restore_to_request(request);
        applied
    }

    async fn after_call(
        &self,
        context: &HookContext<'_>,
        response: &mut Response,
    ) -> Result<(), HookError> {
        let secrets = PushSecrets::take_from_response(response);
        let decision = self
            .decide(context, HookPhase::Response, ResponseJson(response))
            .await;
        let applied = decision.and_then(|decision| match decision {
            Decision::Allow => Ok(()),
            Decision::Change(changed) => change_response(response, &changed),
            Decision::Deny(denial) => Err(denial.into()),
        });
        secrets.restore_to_response(response);
        applied
    }

    async fn on_event(
        &self,
        context: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), HookError> {
        match self.decide(context, HookPhase::Event, &*event).await? {
            Decision::Allow => Ok(()),
            Decision::Change(changed) => {
                *event = decode(&changed, "event")?;
                Ok(())
            }
            Decision::Deny(denial) => Err(denial.into()),
        }
    }
}
