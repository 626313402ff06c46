//! Extended card: read with the method of every protocol generation, and kept in place of the public card.

use ::http::Uri;
use ::http::uri::PathAndQuery;

use super::http::ClientRequest;
use super::{Client, jsonrpc};
use crate::model::{
    AgentCard, Binding, Error, ErrorKind, GetExtendedAgentCardRequest, Operation, Request,
    Response, Result,
};
use crate::wire::card::read_card;
use crate::wire::errors::read_rest_error;
use crate::wire::{into_invalid_agent_response, method};

/// Path of the extended card of 0.2, beside the endpoint (09, 1.23).
const V02_PATH: &str = "/agent/authenticatedExtendedCard";

impl Client {
    /// Reads the extended card for authenticated callers. From then on, [`card`](Self::card) returns it for this client
    /// and its clones.
    ///
    /// A JSON-RPC peer that does not know the method is asked with those of other versions, and with the HTTP request of
    /// 0.2.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message): the error of the first method.
    pub async fn get_extended_agent_card(&self) -> Result<AgentCard> {
        let request = Request::GetExtendedAgentCard(GetExtendedAgentCardRequest {
            tenant: self.endpoint.tenant.clone(),
        });
        let card = match self.call(request.clone()).await {
            Err(error) if is_unknown_method(&error) => {
                self.find_extended_card(&request).await.ok_or(error)?
            }
            answer => into_card(answer?)?,
        };
        let _ = self.extended_card.set(card.clone());
        Ok(card)
    }

    /// Tries the methods of other versions.
    async fn find_extended_card(&self, request: &Request) -> Option<AgentCard> {
        let client = self.active_client();
        if client.endpoint.binding != Binding::JsonRpc {
            return None;
        }
        let tried = method::method_name(Operation::GetExtendedAgentCard, client.endpoint.version);
        let others = method::EXTENDED_CARD_METHODS.into_iter();
        for method in others.filter(|method| Some(*method) != tried) {
            match jsonrpc::call_method(&client, request, method).await {
                Ok(response) => return into_card(response).ok(),
                Err(error) if is_unknown_method(&error) => {}
                Err(_) => return None,
            }
        }
        client.get_v02_extended_card().await.ok()
    }

    async fn get_v02_extended_card(&self) -> Result<AgentCard> {
        let url = beside_endpoint(&self.endpoint.url)?;
        let failure = |status, body: &[u8]| read_rest_error(status, &String::from_utf8_lossy(body));
        let response = self.exchange(ClientRequest::get(url, "application/json"));
        let body = response
            .await?
            .with_limit(self.settings.max_card_bytes)
            .read(failure)
            .await?;
        read_card(&body).map_err(into_invalid_agent_response)
    }
}

/// Returns the URL `{url}/..` with the path of the extended card.
fn beside_endpoint(url: &Uri) -> Result<Uri> {
    let path = url.path().trim_end_matches('/');
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut parts = url.clone().into_parts();
    let path: PathAndQuery = format!("{parent}{V02_PATH}")
        .parse()
        .map_err(Error::internal)?;
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(Error::internal)
}

/// Whether the peer does not know the method, in this version or at this URL.
fn is_unknown_method(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed | ErrorKind::VersionNotSupported
    )
}

fn into_card(response: Response) -> Result<AgentCard> {
    match response {
        Response::AgentCard(card) => Ok(*card),
        other => Err(super::operations::mismatched_response(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_1_59_the_card_of_0_2_is_beside_the_endpoint() {
        for (url, expected) in [
            ("http://a", "http://a/agent/authenticatedExtendedCard"),
            ("http://a/a2a", "http://a/agent/authenticatedExtendedCard"),
            (
                "http://a/x/a2a/?k=v",
                "http://a/x/agent/authenticatedExtendedCard",
            ),
        ] {
            let found = beside_endpoint(&url.parse().expect("valid URL")).expect("valid URL");
            assert_eq!(found.to_string(), expected);
        }
    }
}
