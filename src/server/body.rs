//! Reading of request bodies: content type check, size limits, timeout, and a memory budget shared
//! by all requests.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::settings::ServerSettings;
use crate::model::{Error, ErrorKind, Result};

/// Suffix of JSON media types (RFC 6839).
const JSON_SUFFIX: &str = "+json";
/// Allocates at most 4 times the bytes received so far, whatever `Content-Length` says. A client
/// cannot reserve memory without sending data.
const MAX_OVERALLOCATION: usize = 4;
/// Bytes of an oversized body that are read and discarded, so that a client that is still sending
/// gets the error reply.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// First bytes of each body that the shared budget does not count. Most bodies fit, and need no
/// atomic operation.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// `Retry-After` of a request that exceeds the shared budget.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Refuses requests that are not JSON, or are compressed. A missing `Content-Type` is accepted.
///
/// A browser cannot send a JSON content type to another site without a CORS preflight (S79). Bodies
/// are never decompressed, so there are no decompression bombs.
///
/// # Errors
/// Unsupported media type.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<()> {
    // The first comparison covers almost all requests.
    let is_json_type =
        |value: &HeaderValue| value == "application/json" || value.to_str().is_ok_and(is_json);
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let is_uncompressed = headers.get_all(CONTENT_ENCODING).iter().all(is_identity);
    if is_uncompressed && headers.get_all(CONTENT_TYPE).iter().all(is_json_type) {
        Ok(())
    } else {
        Err(ErrorKind::UnsupportedMediaType.into())
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let suffix = essence
        .len()
        .checked_sub(JSON_SUFFIX.len())
        .and_then(|start| essence.get(start..));
    essence.eq_ignore_ascii_case("application/json")
        || (essence.contains('/')
            && suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(JSON_SUFFIX)))
}

/// Bytes that all bodies being read occupy together. Bounds the memory that slow senders can hold
/// (S62).
#[derive(Debug, Default)]
pub(super) struct BodyBudget(AtomicUsize);

/// Share of a [`BodyBudget`] that one body occupies. Released on drop.
struct BodyReservation<'a> {
    budget: &'a BodyBudget,
    reserved: usize,
    /// Limit of the whole budget.
    limit: usize,
}

impl<'a> BodyReservation<'a> {
    fn new(budget: &'a BodyBudget, limit: usize) -> Self {
        Self {
            budget,
            reserved: 0,
            limit,
        }
    }

    /// Extends the reservation to a body of `length` bytes. The first 64 KiB are not counted.
    ///
    /// # Errors
    /// Unavailable: the budget is exhausted.
    fn grow(&mut self, length: usize) -> Result<()> {
        let more = length.saturating_sub(self.reserved + UNCOUNTED_BYTES);
        self.reserved += more;
        if more > 0 && self.budget.0.fetch_add(more, Ordering::Relaxed) + more > self.limit {
            let message = format!(
                "too many request bodies in memory (limit: max_buffered_body_bytes = {})",
                self.limit
            );
            return Err(Error::new(ErrorKind::Unavailable)
                .with_message(message)
                .with_retry_after(RETRY_AFTER));
        }
        Ok(())
    }
}

impl Drop for BodyReservation<'_> {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.reserved, Ordering::Relaxed);
    }
}

/// Reads a whole body within `max_body_bytes`, `body_timeout` and the shared budget.
///
/// # Errors
/// Payload too large; request timeout; unavailable: the budget is exhausted; canceled: the
/// connection failed.
pub(super) async fn read(
    body: Incoming,
    settings: &ServerSettings,
    budget: &BodyBudget,
) -> Result<Bytes> {
    let reservation = BodyReservation::new(budget, settings.max_buffered_body_bytes);
    let mut read = pin!(read_at_most(body, settings.max_body_bytes, reservation));
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

/// Received part of a body. A body that arrives in one frame, as most do, is not copied.
enum BodyBuffer {
    Empty,
    Single(Bytes),
    Joined(Vec<u8>),
}

/// Bounds for the allocation of a [`BodyBuffer`].
#[derive(Clone, Copy)]
struct ExpectedLength {
    /// Bytes that `Content-Length` announces, 0 if unknown.
    announced: usize,
    /// Limit on the body.
    max: usize,
}

impl BodyBuffer {
    /// Returns the capacity for `more` bytes: the announced length, or else twice the bytes
    /// received.
    ///
    /// It is at most `expected.max`, and at most [`MAX_OVERALLOCATION`] times the bytes received.
    fn capacity_for(&self, more: usize, expected: ExpectedLength) -> usize {
        let (length, capacity) = match self {
            Self::Empty => return more,
            Self::Single(first) => (first.len(), 0),
            Self::Joined(all) => (all.len(), all.capacity()),
        };
        let received = length + more;
        if received <= capacity {
            return capacity;
        }
        let wanted = if expected.announced >= received {
            expected.announced
        } else {
            2 * received
        };
        wanted
            .min(expected.max)
            .min(MAX_OVERALLOCATION * received)
            .max(received)
    }

    /// Appends a frame. The capacity is reserved before it is allocated.
    ///
    /// # Errors
    /// Unavailable: the budget is exhausted.
    fn push(
        self,
        data: Bytes,
        expected: ExpectedLength,
        reservation: &mut BodyReservation<'_>,
    ) -> Result<Self> {
        let capacity = self.capacity_for(data.len(), expected);
        reservation.grow(capacity)?;
        let mut all = match self {
            Self::Empty => return Ok(Self::Single(data)),
            Self::Single(first) => {
                let mut all = Vec::with_capacity(capacity);
                all.extend_from_slice(&first);
                all
            }
            Self::Joined(all) => all,
        };
        all.reserve_exact(capacity.saturating_sub(all.len()));
        all.extend_from_slice(&data);
        Ok(Self::Joined(all))
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::Single(frame) => frame,
            Self::Joined(all) => all.into(),
        }
    }
}

async fn read_at_most(
    mut body: Incoming,
    max: usize,
    mut reservation: BodyReservation<'_>,
) -> Result<Bytes> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let expected = ExpectedLength { announced, max };
    let mut buffer = BodyBuffer::Empty;
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        // The connection failed, so no reply reaches the client.
        let frame = frame.map_err(|cause| Error::new(ErrorKind::Canceled).with_source(cause))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length <= max {
            buffer = buffer.push(data, expected, &mut reservation)?;
        } else if length > max.saturating_add(MAX_DISCARDED_BYTES) {
            break;
        }
    }
    if length <= max {
        return Ok(buffer.into_bytes());
    }
    let message = format!("Payload too large: more than {max} bytes (max_body_bytes)");
    Err(Error::new(ErrorKind::PayloadTooLarge).with_message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 8 << 20;

    fn frame(length: usize) -> Bytes {
        Bytes::from(vec![b' '; length])
    }

    #[test]
    fn s62_concurrent_bodies_share_one_budget() {
        let budget = BodyBudget::default();
        let mut one = BodyReservation::new(&budget, 1_000);
        let mut two = BodyReservation::new(&budget, 1_000);
        one.grow(UNCOUNTED_BYTES).unwrap();
        one.grow(UNCOUNTED_BYTES + 900).unwrap();
        let refused = two.grow(UNCOUNTED_BYTES + 200).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert_eq!(refused.retry_after(), Some(RETRY_AFTER));
        drop(one);
        drop(two);
        BodyReservation::new(&budget, 1_000)
            .grow(UNCOUNTED_BYTES + 1_000)
            .unwrap();
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn s62_allocation_follows_received_bytes_and_is_reserved_first() {
        for (announced, lengths, max_capacity) in [
            (
                8 << 20,
                &[1, UNCOUNTED_BYTES][..],
                4 * (UNCOUNTED_BYTES + 1),
            ),
            (
                8 << 20,
                &[1, UNCOUNTED_BYTES, 4 * UNCOUNTED_BYTES],
                4 * (5 * UNCOUNTED_BYTES + 1),
            ),
            (
                8 << 20,
                &[1, UNCOUNTED_BYTES, 63 * UNCOUNTED_BYTES],
                8 << 20,
            ),
            (
                9 << 20,
                &[1, UNCOUNTED_BYTES, 63 * UNCOUNTED_BYTES],
                8 << 20,
            ),
            (0, &[1, 1_000, 5_000, 20_000, 70_000, 70_000], 2 * 166_001),
            (0, &[1, 5 << 20, 2 << 20], 8 << 20),
            (100_000, &[60_000, 40_000], 100_000),
            (
                8 << 20,
                &[UNCOUNTED_BYTES / 8, UNCOUNTED_BYTES / 8],
                UNCOUNTED_BYTES,
            ),
        ] {
            let budget = BodyBudget::default();
            let mut reservation = BodyReservation::new(&budget, usize::MAX);
            let expected = ExpectedLength {
                announced,
                max: LIMIT,
            };
            let mut buffer = BodyBuffer::Empty;
            for length in lengths {
                buffer = buffer
                    .push(frame(*length), expected, &mut reservation)
                    .unwrap();
            }
            let BodyBuffer::Joined(all) = &buffer else {
                panic!("several frames are joined")
            };
            let capacity = all.capacity();
            assert!(capacity <= max_capacity, "{capacity} of {announced}");
            assert_eq!(
                budget.0.load(Ordering::Relaxed),
                capacity.saturating_sub(UNCOUNTED_BYTES)
            );
            assert_eq!(buffer.into_bytes().len(), lengths.iter().sum::<usize>());
        }
    }

    #[test]
    fn s62_allocation_beyond_the_budget_is_refused() {
        let budget = BodyBudget::default();
        let mut reservation = BodyReservation::new(&budget, 2 * UNCOUNTED_BYTES);
        let expected = ExpectedLength {
            announced: LIMIT,
            max: LIMIT,
        };
        let buffer = BodyBuffer::Empty
            .push(frame(1), expected, &mut reservation)
            .unwrap();
        let refused = buffer
            .push(frame(UNCOUNTED_BYTES), expected, &mut reservation)
            .err()
            .unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn announced_length_is_allocated_once() {
        let budget = BodyBudget::default();
        let announced = 1_000_000;
        let mut reservation = BodyReservation::new(&budget, usize::MAX);
        let expected = ExpectedLength {
            announced,
            max: announced,
        };
        let mut buffer = BodyBuffer::Empty;
        for length in [100_000, 400_000] {
            buffer = buffer
                .push(frame(length), expected, &mut reservation)
                .unwrap();
        }
        assert!(matches!(buffer, BodyBuffer::Joined(all) if all.capacity() == announced));
    }

    #[test]
    fn s79_only_json_content_types_are_accepted() {
        for (media_type, accepted) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/a2a+json", true),
            ("application/vnd.x+json;v=1", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=application/json", false),
            ("json", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, media_type.parse().unwrap())]);
            assert_eq!(
                check_content_type(&headers).is_ok(),
                accepted,
                "{media_type}"
            );
        }
        assert!(check_content_type(&HeaderMap::new()).is_ok());
    }
}
