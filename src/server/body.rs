//! What a request carries: its media type and its bytes, within limits.

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

/// What the types of documents that are JSON end with.
const JSON_SUFFIX: &str = "+json";
/// How many times of what has received there is room for, if so much was announced: whoever takes room has to send a part of it.
const MAX_OVERALLOCATION: usize = 4;
/// How much more is read and thrown away, so that a caller who is still sending gets to see the refusal.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// What of a body is not counted.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// How long a caller for whose body there is no room is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Refuses what does not say that it is JSON; saying nothing is fine. A browser cannot send these types to another
/// site without asking first. Nothing is ever unpacked, so what is packed is refused by name.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<()> {
    // Nearly all of them say just that.
    let is_json_type =
        |value: &HeaderValue| value == "application/json" || value.to_str().is_ok_and(is_json);
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let is_uncompressed = headers.get_all(CONTENT_ENCODING).iter().all(is_identity);
    match is_uncompressed && headers.get_all(CONTENT_TYPE).iter().all(is_json_type) {
        true => Ok(()),
        false => Err(ErrorKind::UnsupportedMediaType.into()),
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let suffix = essence
        .len()
        .checked_sub(JSON_SUFFIX.len())
        .and_then(|at| essence.get(at..));
    essence.eq_ignore_ascii_case("application/json")
        || (essence.contains('/')
            && suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(JSON_SUFFIX)))
}

/// How much of all bodies is being read. Those who take their time must not fill the memory together.
#[derive(Debug, Default)]
pub(super) struct BodyBudget(AtomicUsize);

/// So much of it is one body's; given back when dropped.
struct BodyReservation<'a> {
    budget: &'a BodyBudget,
    reserved: usize,
    limit: usize,
}

impl BodyReservation<'_> {
    /// Takes as much as there is room for. What nearly every body is within is not counted.
    fn grow(&mut self, length: usize) -> Result<()> {
        let more = length.saturating_sub(self.reserved + UNCOUNTED_BYTES);
        self.reserved += more;
        if more > 0 && self.budget.0.fetch_add(more, Ordering::Relaxed) + more > self.limit {
            return Err(Error::new(ErrorKind::Unavailable)
                .with_message("as much is being read as max_buffered_body_bytes allows")
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

/// Reads a body whole, within the limits.
pub(super) async fn read(
    body: Incoming,
    settings: &ServerSettings,
    budget: &BodyBudget,
) -> Result<Bytes> {
    let reservation = BodyReservation {
        budget,
        reserved: 0,
        limit: settings.max_buffered_body_bytes,
    };
    let mut read = pin!(read_at_most(body, settings.max_body_bytes, reservation));
    // Most often it has received with the head, and needs no timer.
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

/// What has come of a body. One that comes in a piece, as most do, is not copied.
enum BodyBuffer {
    Empty,
    Single(Bytes),
    Joined(Vec<u8>),
}

impl BodyBuffer {
    /// How much room there has to be with so much more; so much was announced, if that is known, and so much may received.
    fn capacity_for(&self, more: usize, (announced, most): (usize, usize)) -> usize {
        let (length, capacity) = match self {
            Self::Empty => return more,
            Self::Single(first) => (first.len(), 0),
            Self::Joined(all) => (all.len(), all.capacity()),
        };
        let received = length + more;
        if received <= capacity {
            return capacity;
        }
        let expected = if announced >= received {
            announced
        } else {
            2 * received
        };
        expected
            .min(most)
            .min(MAX_OVERALLOCATION * received)
            .max(received)
    }

    /// The same with another piece behind it. The room that is made for it is part of the reservation, before it is made.
    fn push(
        self,
        data: Bytes,
        expected: (usize, usize),
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
            Self::Single(piece) => piece,
            Self::Joined(all) => all.into(),
        }
    }
}

async fn read_at_most(
    mut body: Incoming,
    limit: usize,
    mut reservation: BodyReservation<'_>,
) -> Result<Bytes> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let (mut bytes, mut length) = (BodyBuffer::Empty, 0);
    while let Some(frame) = body.frame().await {
        // The caller left, or spoke no HTTP; nobody will read what we say to that.
        let frame = frame.map_err(|cause| Error::new(ErrorKind::Canceled).with_source(cause))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length <= limit {
            bytes = bytes.push(data, (announced, limit), &mut reservation)?;
        } else if length > limit.saturating_add(MAX_DISCARDED_BYTES) {
            break;
        }
    }
    if length <= limit {
        return Ok(bytes.into_bytes());
    }
    let message = format!("Payload too large: more than {limit} bytes (max_body_bytes)");
    Err(Error::new(ErrorKind::PayloadTooLarge).with_message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s62_concurrent_bodies_share_one_budget() {
        let budget = BodyBudget::default();
        let reservation = || BodyReservation {
            budget: &budget,
            reserved: 0,
            limit: 1_000,
        };
        let (mut one, mut two) = (reservation(), reservation());
        one.grow(UNCOUNTED_BYTES).unwrap();
        one.grow(UNCOUNTED_BYTES + 900).unwrap();
        let refused = two.grow(UNCOUNTED_BYTES + 200).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.retry_after()),
            (ErrorKind::Unavailable, Some(RETRY_AFTER))
        );
        drop((one, two));
        reservation().grow(UNCOUNTED_BYTES + 1_000).unwrap();
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn s62_allocation_follows_received_bytes_and_is_reserved_first() {
        let piece = |length| Bytes::from(vec![b' '; length]);
        let limit = 8 << 20;
        for (announced, lengths, most) in [
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
            let mut reservation = BodyReservation {
                budget: &budget,
                reserved: 0,
                limit: usize::MAX,
            };
            let mut buffer = BodyBuffer::Empty;
            for length in lengths {
                buffer = buffer
                    .push(piece(*length), (announced, limit), &mut reservation)
                    .unwrap();
            }
            let BodyBuffer::Joined(all) = &buffer else {
                panic!("there are several")
            };
            assert!(all.capacity() <= most, "{} of {announced}", all.capacity());
            assert_eq!(
                budget.0.load(Ordering::Relaxed),
                all.capacity().saturating_sub(UNCOUNTED_BYTES)
            );
            assert_eq!(buffer.into_bytes().len(), lengths.iter().sum::<usize>());
        }
        let budget = BodyBudget::default();
        let mut reservation = BodyReservation {
            budget: &budget,
            reserved: 0,
            limit: 2 * UNCOUNTED_BYTES,
        };
        let buffer = BodyBuffer::Empty
            .push(piece(1), (limit, limit), &mut reservation)
            .unwrap();
        let refused = buffer
            .push(piece(UNCOUNTED_BYTES), (limit, limit), &mut reservation)
            .err()
            .unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn announced_length_is_allocated_once() {
        let (budget, announced) = (BodyBudget::default(), 1_000_000);
        let mut reservation = BodyReservation {
            budget: &budget,
            reserved: 0,
            limit: usize::MAX,
        };
        let mut buffer = BodyBuffer::Empty;
        for length in [100_000, 400_000] {
            buffer = buffer
                .push(
                    Bytes::from(vec![b' '; length]),
                    (announced, announced),
                    &mut reservation,
                )
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
