//! Who comes, and what becomes of it: the one place where a call of any binding is let in, counted and marked.

use std::net::IpAddr;

use http::header::{CACHE_CONTROL, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::connections::Peer;
use super::incoming::{asking, mark};
use super::reply::{self, Reply};
use super::routes::Routes;
use crate::auth::{Access, Credentials, Identity, Left, Spender, UnderWay, Word};
use crate::metrics;
use crate::model::{Call, Caller, Error, Operation, Request, Response, Result, Version};
use crate::service::{Answer, Resident};

/// Somebody whom we serve.
pub(super) struct Guest {
    identity: Identity,
    word: Word,
    peer: IpAddr,
}

impl Guest {
    /// Somebody of whom nothing is asked.
    pub(super) fn unasked(peer: &Peer) -> Self {
        Self { identity: Identity::anonymous(), word: Word::Own, peer: peer.address.ip() }
    }

    pub(super) fn caller(&self) -> &Caller {
        self.identity.caller()
    }
}

/// A call that was let in.
pub(super) struct Entered<'a> {
    resident: &'a Resident,
    access: Option<&'a Access>,
    identity: Identity,
    call: Call,
    operation: Operation,
    left: Option<Left>,
    _under_way: Option<UnderWay>,
}

impl Routes {
    /// Says who sends a request. Nothing of its body has been read.
    ///
    /// # Errors
    /// Unauthenticated; unavailable.
    pub(super) async fn admit(&self, peer: &Peer, request: &HttpRequest<Incoming>) -> Result<Guest> {
        let Some(access) = &self.access else { return Ok(Guest::unasked(peer)) };
        let (ip, certificate) = (peer.address.ip(), peer.certificate.as_deref());
        let credentials = Credentials::new(request.headers(), request.uri().query(), ip, certificate);
        let (identity, word) = access.admit(&credentials, self.trusts(peer)).await?;
        Ok(Guest { identity, word, peer: ip })
    }

    /// Lets a call in, whatever carries it: which agent and tenant it is for, whether the guest may do that, and whether they
    /// have not done enough of it.
    ///
    /// # Errors
    /// Not found, permission denied, unauthenticated or rate limited; invalid: what the headers say.
    pub(super) fn enter<'a>(
        &'a self,
        resident: &'a Resident,
        Guest { identity, word, peer }: Guest,
        headers: &HeaderMap,
        version: Version,
        request: &mut Request,
        bytes: usize,
    ) -> Result<Entered<'a>> {
        word.hold(request)?;
        let asking = asking(identity.caller().clone(), headers, version)?;
        let (resident, call) = self.directory.enter(resident, asking, request)?;
        let operation = request.operation();
        if let Some(access) = &self.access {
            access.check(&identity, &resident.name, &call.scope.tenant, request)?;
        }
        let (left, _under_way) = match &self.meter {
            Some(meter) => meter.spend(&Spender::new(call.scope.agent.clone(), &identity, peer), bytes)?,
            None => (None, None),
        };
        Ok(Entered { resident, access: self.access.as_ref(), identity, call, operation, left, _under_way })
    }

    /// A refusal says what to bring.
    pub(super) fn challenge(&self, reply: &mut Reply) {
        let (Some(access), StatusCode::UNAUTHORIZED) = (&self.access, reply.status()) else { return };
        for challenge in access.challenges().filter_map(|text| HeaderValue::try_from(text).ok()) {
            reply.headers_mut().append(WWW_AUTHENTICATE, challenge);
        }
    }
}

impl Entered<'_> {
    /// Does what is asked.
    pub(super) async fn call(&self, request: Request) -> Result<Answer> {
        let answer = self.resident.service.call(&self.call, request).await;
        let failed = answer.as_ref().err().map(Error::kind);
        metrics::call(&self.resident.name, self.operation, self.call.version, failed);
        let answer = answer?;
        Ok(match (answer, self.access) {
            (Answer::One(Response::AgentCard(card)), Some(access)) => {
                let card = access.shown(&self.identity, &self.resident.name, *card);
                Answer::One(Response::AgentCard(Box::new(card)))
            }
            (answer, _) => answer,
        })
    }

    /// Says in the answer what goes with every one: its version, what is left to the caller, and that a card which is not for
    /// everybody is not kept for everybody.
    pub(super) fn mark(&self, answer: &mut HeaderMap, asked: &HeaderMap) {
        mark(answer, asked, &self.call);
        if let Some(Left { limit, remaining, reset }) = self.left {
            reply::rate_limit(
                answer,
                limit,
                remaining,
                reset.as_secs() + u64::from(reset.subsec_nanos() > 0),
            );
        }
        if self.operation == Operation::GetExtendedAgentCard {
            answer.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        }
    }
}
