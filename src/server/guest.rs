//! Who comes, and what becomes of it: the one place where a call of any binding is let in, counted and marked.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::body;
use super::connections::Peer;
use super::incoming::{Named, asking, mark};
use super::reply::{self, Reply};
use super::routes::Routes;
use crate::auth::{Access, Credentials, Identity, Left, Spender, UnderWay, Word};
use crate::metrics;
use crate::model::{Call, Caller, Error, ErrorKind, Operation, Request, Response, Result, Version};
use crate::service::{Answer, Called, Resident};

/// Somebody whom we serve, and what they have sent.
pub(super) struct Guest {
    identity: Identity,
    word: Word,
    peer: IpAddr,
    /// How much of a body has been read.
    bytes: usize,
    /// Whether the request has been counted.
    is_counted: bool,
}

impl Guest {
    /// Somebody of whom nothing is asked.
    pub(super) fn unasked(peer: &Peer) -> Self {
        Self::new(Identity::anonymous(), Word::Own, peer)
    }

    fn new(identity: Identity, word: Word, peer: &Peer) -> Self {
        Self {
            identity,
            word,
            peer: peer.address.ip(),
            bytes: 0,
            is_counted: false,
        }
    }

    pub(super) fn caller(&self) -> &Caller {
        self.identity.caller()
    }
}

/// A call that was let in.
pub(super) struct Entered<'a> {
    resident: &'a Resident,
    access: Option<&'a Access>,
    identity: &'a Identity,
    call: Call,
    operation: Operation,
    /// How it asks for the extensions that are active.
    named: Named,
    left: Option<Left>,
    _under_way: Option<UnderWay>,
}

impl Routes {
    /// Says who sends a request. Nothing of its body has been read.
    ///
    /// # Errors
    /// Unauthenticated; unavailable.
    pub(super) async fn admit(
        &self,
        peer: &Peer,
        request: &HttpRequest<Incoming>,
    ) -> Result<Guest> {
        let Some(access) = &self.access else {
            return Ok(Guest::unasked(peer));
        };
        let (ip, certificate) = (peer.address.ip(), peer.certificate.as_deref());
        let credentials =
            Credentials::new(request.headers(), request.uri().query(), ip, certificate);
        let (identity, word) = access.admit(&credentials, self.trusts(peer)).await?;
        Ok(Guest::new(identity, word, peer))
    }

    /// Reads the body of a guest's request, within the limits; it is part of what they spend.
    ///
    /// # Errors
    /// It is too large, or too late.
    pub(super) async fn read(&self, guest: &mut Guest, body: Incoming) -> Result<Bytes> {
        let read = body::read(body, &self.settings, &self.reading).await;
        guest.bytes = match &read {
            Ok(body) => body.len(),
            // So much at least.
            Err(error) if error.kind() == ErrorKind::PayloadTooLarge => {
                self.settings.max_body_bytes
            }
            Err(_) => 0,
        };
        read
    }

    /// Counts a request, whatever becomes of it.
    ///
    /// # Errors
    /// Rate limited.
    pub(super) fn count(
        &self,
        agent: &Arc<str>,
        guest: &mut Guest,
    ) -> Result<(Option<Left>, Option<UnderWay>)> {
        guest.is_counted = true;
        match &self.meter {
            Some(meter) => meter.spend(
                &Spender::new(agent.clone(), &guest.identity, guest.peer),
                guest.bytes,
            ),
            None => Ok((None, None)),
        }
    }

    /// What is said to a request that is refused. One that never became a call costs as much as a call: whoever sends nothing
    /// but those is told to wait like anybody else.
    pub(super) fn refuse(&self, resident: &Resident, guest: &mut Guest, error: Error) -> Error {
        match guest.is_counted {
            true => error,
            false => self
                .count(&resident.namespace, guest)
                .err()
                .unwrap_or(error),
        }
    }

    /// Lets a call in, whatever carries it: which agent and tenant it is for, whether the guest may do that, and whether they
    /// have not done enough of it.
    ///
    /// # Errors
    /// Not found, permission denied, unauthenticated or rate limited; invalid: what the headers say.
    pub(super) fn enter<'a>(
        &'a self,
        resident: &'a Resident,
        guest: &'a mut Guest,
        headers: &HeaderMap,
        version: Version,
        request: &mut Request,
    ) -> Result<Entered<'a>> {
        guest.word.hold(request)?;
        let asking = asking(guest.caller().clone(), headers, version)?;
        let (resident, call) = self.directory.enter(resident, asking, request)?;
        let operation = request.operation();
        let named = if call.extensions.is_empty() {
            Named::default()
        } else {
            Named::of(headers)
        };
        if let Some(access) = &self.access {
            access.check(&guest.identity, &resident.name, &call.scope.tenant, request)?;
        }
        let (left, _under_way) = self.count(&call.scope.agent, guest)?;
        let (access, identity) = (self.access.as_ref(), &guest.identity);
        Ok(Entered {
            resident,
            access,
            identity,
            call,
            operation,
            named,
            left,
            _under_way,
        })
    }

    /// A refusal says what to bring.
    pub(super) fn challenge(&self, reply: &mut Reply) {
        let (Some(access), StatusCode::UNAUTHORIZED) = (&self.access, reply.status()) else {
            return;
        };
        for challenge in access
            .challenges()
            .filter_map(|text| HeaderValue::try_from(text).ok())
        {
            reply.headers_mut().append(WWW_AUTHENTICATE, challenge);
        }
    }
}

impl Entered<'_> {
    /// Does what is asked. Whoever waits for it keeps no room for the request.
    pub(super) fn call(&self, request: Request) -> impl Future<Output = Result<Answer>> + Send {
        let called = self.resident.service.call(&self.call, request);
        async {
            let answer = match called {
                Ok(Called::Done(answer)) => Ok(answer),
                Ok(Called::Waits(answering)) => answering.await,
                Err(error) => Err(error),
            };
            let failed = answer.as_ref().err().map(Error::kind);
            metrics::call(
                &self.resident.name,
                self.operation,
                self.call.version,
                failed,
            );
            Ok(match (answer?, self.access) {
                (Answer::One(Response::AgentCard(card)), Some(access)) => {
                    let card = access.shown(self.identity, &self.resident.name, *card);
                    Answer::One(Response::AgentCard(Box::new(card)))
                }
                (answer, _) => answer,
            })
        }
    }

    /// Says in the answer what goes with every one: its version, what is left to the caller, and that a card which is not for
    /// everybody is not kept for everybody.
    pub(super) fn mark(&self, answer: &mut HeaderMap) {
        mark(answer, self.named, &self.call);
        if let Some(Left {
            limit,
            remaining,
            reset,
        }) = self.left
        {
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
