//! Reading of request bodies: content type check, size limits, timeout, and a memory budget for all
//! requests and for each caller.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
#[cfg(feature = "grpc")]
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Incoming};
#[cfg(feature = "grpc")]
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use super::body_decoder::MAX_INLINE_BYTES;
use super::settings::ServerSettings;
use crate::model::{CallerKey, Error, ErrorKind, Result};
use crate::rt::{BudgetLimits, ExceededLimit, KeyedBudget};
#[cfg(feature = "grpc")]
use crate::service::StreamPermit;
use crate::telemetry::metrics;

/// Suffix of JSON media types (RFC 6839).
const JSON_SUFFIX: &str = "+json";
/// Allocates at most 4 times the bytes received so far, whatever `Content-Length` says. A client
/// cannot reserve memory without sending data.
const MAX_OVERALLOCATION: usize = 4;
/// Default of [`SizeLimit::max_discarded`].
const MAX_DISCARDED_BYTES: usize = 64 << 20;
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

/// Bytes that the bodies occupy until they are decoded. Bounds the memory of slow senders (S62), and of bodies that wait for
/// a decoder thread (D5).
pub(super) type BodyBudget = KeyedBudget<CallerKey>;

/// Share of a [`BodyBudget`] that one body occupies. Released on drop.
///
/// Bytes are counted when the body waits for more of them. Most bodies arrive in one frame, and are
/// parsed before anything else runs. A large body is counted until it is decoded.
struct BodyReservation<'a, K: FnOnce() -> CallerKey> {
    budget: &'a Arc<BodyBudget>,
    limits: BudgetLimits,
    bytes: usize,
    /// Returns the caller, until bytes are counted.
    find_caller: Option<K>,
    /// Caller whose share the bytes count against, once they do.
    caller: Option<CallerKey>,
}

impl<K: FnOnce() -> CallerKey> BodyReservation<'_, K> {
    /// Counts the bytes so far and all further ones. A body without bytes occupies nothing yet.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    fn start_counting(&mut self) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let Some(find_caller) = self.find_caller.take() else {
            return Ok(());
        };
        let caller = find_caller();
        self.reserve(&caller, self.bytes)?;
        self.caller = Some(caller);
        Ok(())
    }

    /// Extends the reservation to a body of `length` bytes.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    fn grow(&mut self, length: usize) -> Result<()> {
        let more = length.saturating_sub(self.bytes);
        if let Some(caller) = &self.caller {
            self.reserve(caller, more)?;
        }
        self.bytes += more;
        Ok(())
    }

    fn reserve(&self, caller: &CallerKey, bytes: usize) -> Result<()> {
        let reserved = self.budget.reserve(caller, bytes, self.limits);
        reserved.map_err(|exceeded| budget_exceeded(exceeded, self.limits))
    }

    /// Returns the complete body. It holds the reservation if it is to be decoded on another thread.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    fn complete(mut self, body: Bytes) -> Result<Bytes> {
        if body.len() <= MAX_INLINE_BYTES {
            return Ok(body);
        }
        self.start_counting()?;
        let Some(caller) = self.caller.take() else {
            return Ok(body);
        };
        Ok(Bytes::from_owner(CountedBytes {
            body,
            budget: self.budget.clone(),
            caller,
            reserved: self.bytes,
        }))
    }
}

/// Complete body that counts against the budget until it is dropped.
struct CountedBytes {
    body: Bytes,
    budget: Arc<BodyBudget>,
    caller: CallerKey,
    reserved: usize,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.budget.release(&self.caller, self.reserved);
    }
}

impl<K: FnOnce() -> CallerKey> Drop for BodyReservation<'_, K> {
    fn drop(&mut self) {
        if let Some(caller) = &self.caller {
            self.budget.release(caller, self.bytes);
        }
    }
}

fn budget_exceeded(exceeded: ExceededLimit, limits: BudgetLimits) -> Error {
    let (subject, setting, limit) = match exceeded {
        ExceededLimit::Total => ("", "max_buffered_body_bytes", limits.total),
        ExceededLimit::Key => (
            " of this caller",
            "max_buffered_body_bytes_per_caller",
            limits.per_key,
        ),
    };
    metrics::record_limit_hit(setting);
    Error::new(ErrorKind::Unavailable)
        .with_message(format!(
            "too many request bodies{subject} in memory (limit: {setting} = {limit})"
        ))
        .with_retry_after(RETRY_AFTER)
}

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
    let reservation = BodyReservation {
        budget,
        limits: settings.body_limits(),
        bytes: 0,
        find_caller: Some(find_caller),
        caller: None,
    };
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
        reservation: &mut BodyReservation<'_, impl FnOnce() -> CallerKey>,
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

/// Body that is read message by message, of which the reader holds at most `max_held` bytes. They count against the
/// budget of the caller until the body is dropped.
#[cfg(feature = "grpc")]
pub(super) struct CountedBody {
    inner: Incoming,
    budget: Arc<BodyBudget>,
    caller: CallerKey,
    max_held: usize,
    /// Counts the body as a stream.
    _stream: StreamPermit,
}

#[cfg(feature = "grpc")]
impl CountedBody {
    /// Counts a body.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    pub(super) fn new(
        inner: Incoming,
        max_held: usize,
        limits: BudgetLimits,
        budget: &Arc<BodyBudget>,
        caller: CallerKey,
        stream: StreamPermit,
    ) -> Result<Self> {
        let reserved = budget.reserve(&caller, max_held, limits);
        reserved.map_err(|exceeded| budget_exceeded(exceeded, limits))?;
        Ok(Self {
            inner,
            budget: budget.clone(),
            caller,
            max_held,
            _stream: stream,
        })
    }
}

#[cfg(feature = "grpc")]
impl Drop for CountedBody {
    fn drop(&mut self) {
        self.budget.release(&self.caller, self.max_held);
    }
}

#[cfg(feature = "grpc")]
impl Body for CountedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Caller;

    const LIMIT: usize = 8 << 20;

    fn frame(length: usize) -> Bytes {
        Bytes::from(vec![b' '; length])
    }

    /// Returns a reservation whose bytes are counted.
    fn counted<'a>(
        budget: &'a Arc<BodyBudget>,
        limits: BudgetLimits,
        caller: &'static str,
    ) -> BodyReservation<'a, fn() -> CallerKey> {
        BodyReservation {
            budget,
            limits,
            bytes: 0,
            find_caller: None,
            caller: Some(CallerKey::Caller(Caller::new(caller))),
        }
    }

    const UNLIMITED: BudgetLimits = BudgetLimits {
        total: usize::MAX,
        per_key: usize::MAX,
        floor: 0,
    };

    #[test]
    fn s62_d05_bodies_share_a_budget_in_total_and_per_caller() {
        let budget = Arc::new(BodyBudget::default());
        let limits = BudgetLimits {
            total: 1_000,
            per_key: 600,
            floor: 0,
        };
        let mut first = counted(&budget, limits, "ann");
        first.grow(1).unwrap();
        first.grow(400).unwrap();
        let mut second = counted(&budget, limits, "ann");
        let refused = second.grow(201).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert_eq!(refused.retry_after(), Some(RETRY_AFTER));
        let setting = "max_buffered_body_bytes_per_caller = 600";
        assert!(refused.message().contains(setting), "{refused}");
        let mut other = counted(&budget, limits, "bob");
        other.grow(600).unwrap();
        let refused = second.grow(1).unwrap_err();
        let setting = "max_buffered_body_bytes = 1000";
        assert!(refused.message().contains(setting), "{refused}");
        drop(first);
        second.grow(400).unwrap();
        drop((second, other));
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn s62_bytes_before_the_first_wait_are_counted_at_it() {
        let budget = Arc::new(BodyBudget::default());
        let mut reservation = BodyReservation {
            budget: &budget,
            limits: BudgetLimits {
                total: 100,
                per_key: 100,
                floor: 0,
            },
            bytes: 0,
            find_caller: Some(|| CallerKey::Caller(Caller::anonymous())),
            caller: None,
        };
        reservation.start_counting().unwrap();
        reservation.grow(60).unwrap();
        assert_eq!(budget.total(), 0);
        reservation.start_counting().unwrap();
        reservation.start_counting().unwrap();
        assert_eq!(budget.total(), 60);
        assert!(reservation.grow(101).is_err());
        drop(reservation);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn d05_a_large_body_counts_until_it_is_dropped() {
        let budget = Arc::new(BodyBudget::default());
        let read = |bytes| {
            let mut reservation = BodyReservation {
                budget: &budget,
                limits: BudgetLimits {
                    total: 1 << 20,
                    per_key: 1 << 20,
                    floor: 0,
                },
                bytes: 0,
                find_caller: Some(|| CallerKey::Caller(Caller::new("ann"))),
                caller: None,
            };
            // It has arrived at once.
            reservation.grow(bytes).unwrap();
            reservation.complete(frame(bytes))
        };
        let small = read(MAX_INLINE_BYTES).unwrap();
        assert_eq!(budget.total(), 0, "decoded at once");
        let large = read(600 << 10).unwrap();
        assert_eq!(budget.total(), large.len());
        let refused = read(600 << 10).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let slice = large.slice(1..2);
        drop((small, large));
        assert_eq!(budget.total(), 600 << 10);
        drop(slice);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn s62_allocation_follows_received_bytes_and_is_reserved_first() {
        const FRAME: usize = 64 << 10;
        for (announced, lengths, max_capacity) in [
            (8 << 20, &[1, FRAME][..], 4 * (FRAME + 1)),
            (8 << 20, &[1, FRAME, 4 * FRAME], 4 * (5 * FRAME + 1)),
            (8 << 20, &[1, FRAME, 63 * FRAME], 8 << 20),
            (9 << 20, &[1, FRAME, 63 * FRAME], 8 << 20),
            (0, &[1, 1_000, 5_000, 20_000, 70_000, 70_000], 2 * 166_001),
            (0, &[1, 5 << 20, 2 << 20], 8 << 20),
            (100_000, &[60_000, 40_000], 100_000),
            (8 << 20, &[FRAME / 8, FRAME / 8], FRAME),
        ] {
            let budget = Arc::new(BodyBudget::default());
            let mut reservation = counted(&budget, UNLIMITED, "ann");
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
            assert_eq!(budget.total(), capacity);
            assert_eq!(buffer.into_bytes().len(), lengths.iter().sum::<usize>());
        }
    }

    #[test]
    fn s62_allocation_beyond_the_budget_is_refused() {
        let budget = Arc::new(BodyBudget::default());
        let limits = BudgetLimits {
            total: 10_000,
            per_key: 10_000,
            floor: 0,
        };
        let mut reservation = counted(&budget, limits, "ann");
        let expected = ExpectedLength {
            announced: LIMIT,
            max: LIMIT,
        };
        let buffer = BodyBuffer::Empty
            .push(frame(1), expected, &mut reservation)
            .unwrap();
        let refused = buffer
            .push(frame(5_000), expected, &mut reservation)
            .err()
            .unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn announced_length_is_allocated_once() {
        let budget = Arc::new(BodyBudget::default());
        let announced = 1_000_000;
        let mut reservation = counted(&budget, UNLIMITED, "ann");
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
