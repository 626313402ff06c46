//! Reading of request bodies: content type check, size limits, timeout, and a memory budget for all
//! requests and for each caller.

mod budget;
mod buffer;
mod content_type;
#[cfg(feature = "grpc")]
mod counted_body;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use self::budget::BodyReservation;
use self::buffer::{BodyBuffer, ExpectedLength};
use super::settings::ServerSettings;
use crate::model::{CallerKey, Error, ErrorKind, Result};

pub(super) use self::budget::BodyBudget;
pub(super) use self::content_type::check_content_type;
#[cfg(feature = "grpc")]
pub(super) use self::counted_body::CountedBody;

/// Default of [`SizeLimit::max_discarded`].
const MAX_DISCARDED_BYTES: usize = 64 << 20;

/// Limit on the size of a body.
#[derive(Clone, Copy)]
pub(super) struct SizeLimit {
    max: usize,
    /// Bytes of a larger body that are read and discarded, so that an HTTP/1 client that is still
    /// sending gets the error reply.
    max_discarded: usize,
}

impl SizeLimit {
    /// Returns the limit of `max_body_bytes`.
    pub(super) fn from_settings(settings: &ServerSettings) -> Self {
        Self {
            max: settings.max_body_bytes,
            max_discarded: MAX_DISCARDED_BYTES,
        }
    }

    /// Returns a limit beyond which the body is not read. For HTTP/2, whose clients get the reply
    /// anyway.
    #[cfg(feature = "grpc")]
    pub(super) fn without_discarding(max: usize) -> Self {
        Self {
            max,
            max_discarded: 0,
        }
    }
}

/// Reads a whole body within `limit`, `body_timeout` and the budget of its caller. A body above
/// 256 KiB counts against the budget until it is dropped.
///
/// # Errors
/// Payload too large; request timeout; unavailable: the budget is exhausted; canceled: the
/// connection failed.
pub(super) async fn read(
    body: Incoming,
    limit: SizeLimit,
    settings: &ServerSettings,
    budget: &Arc<BodyBudget>,
    find_caller: impl FnOnce() -> CallerKey,
) -> Result<Bytes> {
    let reservation = BodyReservation::new(budget, settings.body_limits(), find_caller);
    let mut read = pin!(read_at_most(body, limit, reservation));
    // Most bodies arrive with the head and need no timer.
    let first_poll = poll_fn(|context| Poll::Ready(read.as_mut().poll(context)));
    if let Poll::Ready(read) = first_poll.await {
        return read;
    }
    match timeout(settings.body_timeout, read).await {
        Ok(read) => read,
        Err(_) => Err(body_timeout()),
    }
}

fn body_timeout() -> Error {
    Error::new(ErrorKind::RequestTimeout)
        .with_message("the body did not arrive in time (body_timeout)")
}

async fn read_at_most(
    mut body: Incoming,
    limit: SizeLimit,
    mut reservation: BodyReservation<'_, impl FnOnce() -> CallerKey>,
) -> Result<Bytes> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let max = limit.max;
    let expected = ExpectedLength { announced, max };
    let mut buffer = BodyBuffer::Empty;
    let mut length = 0;
    loop {
        let next_frame = poll_fn(|context| {
            let polled = Pin::new(&mut body).poll_frame(context);
            if polled.is_pending() {
                reservation.start_counting()?;
            }
            polled.map(Ok::<_, Error>)
        });
        let Some(frame) = next_frame.await? else {
            break;
        };
        // The connection failed, so no reply reaches the client.
        let frame = frame.map_err(|cause| Error::new(ErrorKind::Canceled).with_source(cause))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length <= max {
            buffer = buffer.push(data, expected, &mut reservation)?;
        } else if length > max.saturating_add(limit.max_discarded) {
            break;
        } else {
            buffer = BodyBuffer::Empty;
        }
    }
    if length <= max {
        return reservation.complete(buffer.into_bytes());
    }
    let message = format!("Payload too large: more than {max} bytes (max_body_bytes)");
    Err(Error::new(ErrorKind::PayloadTooLarge).with_message(message))
}
