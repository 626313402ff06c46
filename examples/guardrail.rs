//! An echo agent behind a guardrail: refuses passwords and masks e-mail addresses in messages and artifacts.
//!
//! `cargo run --example guardrail`, then `attache send -a http://127.0.0.1:8080 "write to ann@example.com"`.

use attache::model::{Part, Request, StreamResponse};
use attache::{
    AgentCard, Hook, HookContext, HookError, Interceptor, Outcome, Server, Turn, async_trait,
};

struct Guardrail;

#[async_trait]
impl Interceptor for Guardrail {
    async fn before_call(
        &self,
        _: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = request {
            if send.message.text().contains("password") {
                return Err(HookError::deny("do not send passwords"));
            }
            send.message.parts.iter_mut().for_each(mask);
        }
        Ok(())
    }

    async fn on_event(
        &self,
        _: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), HookError> {
        if let StreamResponse::ArtifactUpdate(update) = event {
            update.artifact.parts.iter_mut().for_each(mask);
        }
        Ok(())
    }
}

/// Replaces every word with an `@`.
fn mask(part: &mut Part) {
    let Some(text) = part.as_text() else { return };
    let words = text
        .split(' ')
        .map(|word| if word.contains('@') { "***" } else { word });
    *part = Part::text(words.collect::<Vec<_>>().join(" "));
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let echo = async |turn: Turn| {
        turn.write("echo", turn.text()).await;
        Ok(Outcome::Completed)
    };
    Server::new(AgentCard::new("Echo", "Echoes the message"), echo)
        .hook(Hook::new("guardrail", Guardrail))
        .serve("127.0.0.1:8080")
        .await
}
