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
/// How many times of what has come there is room for, if so much was announced: whoever takes room has to send a part of it.
const AHEAD: usize = 4;
/// How much more is read and thrown away, so that a caller who is still sending gets to see the refusal.
const MAX_DISCARDED: usize = 64 << 20;
/// What of a body is not counted.
const FREE: usize = 64 << 10;
/// How long a caller for whose body there is no room is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Refuses what does not say that it is JSON; saying nothing is fine. A browser cannot send these types to another
/// site without asking first. Nothing is ever unpacked, so what is packed is refused by name.
pub(super) fn check_type(headers: &HeaderMap) -> Result<()> {
    // Nearly all of them say just that.
    let all_json =
        |value: &HeaderValue| value == "application/json" || value.to_str().is_ok_and(is_json);
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let is_unpacked = headers.get_all(CONTENT_ENCODING).iter().all(is_plain);
    match is_unpacked && headers.get_all(CONTENT_TYPE).iter().all(all_json) {
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
pub(super) struct Reading(AtomicUsize);

/// So much of it is one body's; given back when dropped.
struct Share<'a> {
    reading: &'a Reading,
    taken: usize,
    most: usize,
}

impl Share<'_> {
    /// Takes as much as there is room for. What nearly every body is within is not counted.
    fn grow(&mut self, length: usize) -> Result<()> {
        let more = length.saturating_sub(self.taken + FREE);
        self.taken += more;
        if more > 0 && self.reading.0.fetch_add(more, Ordering::Relaxed) + more > self.most {
            return Err(Error::new(ErrorKind::Unavailable)
                .with_message("as much is being read as max_reading_bytes allows")
                .with_retry_after(RETRY_AFTER));
        }
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.reading.0.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// Reads a body whole, within the limits.
pub(super) async fn read(
    body: Incoming,
    settings: &ServerSettings,
    reading: &Reading,
) -> Result<Bytes> {
    let share = Share {
        reading,
        taken: 0,
        most: settings.max_reading_bytes,
    };
    let mut read = pin!(read_at_most(body, settings.max_body_bytes, share));
    // Most often it has come with the head, and needs no timer.
    let at_once = poll_fn(|context| Poll::Ready(read.as_mut().poll(context)));
    if let Poll::Ready(read) = at_once.await {
        return read;
    }
    match timeout(settings.body_timeout, read).await {
        Ok(read) => read,
        Err(_) => Err(late()),
    }
}

fn late() -> Error {
    Error::new(ErrorKind::RequestTimeout)
        .with_message("the body did not arrive in time (body_timeout)")
}

/// What has come of a body. One that comes in a piece, as most do, is not copied.
enum Gathered {
    Nothing,
    Piece(Bytes),
    Pieces(Vec<u8>),
}

impl Gathered {
    /// How much room there has to be with so much more; so much was announced, if that is known, and so much may come.
    fn room(&self, more: usize, (announced, most): (usize, usize)) -> usize {
        let (length, room) = match self {
            Self::Nothing => return more,
            Self::Piece(first) => (first.len(), 0),
            Self::Pieces(all) => (all.len(), all.capacity()),
        };
        let come = length + more;
        if come <= room {
            return room;
        }
        let expected = if announced >= come {
            announced
        } else {
            2 * come
        };
        expected.min(most).min(AHEAD * come).max(come)
    }

    /// The same with another piece behind it. The room that is made for it is part of the share, before it is made.
    fn and(self, data: Bytes, expected: (usize, usize), share: &mut Share<'_>) -> Result<Self> {
        let room = self.room(data.len(), expected);
        share.grow(room)?;
        let mut all = match self {
            Self::Nothing => return Ok(Self::Piece(data)),
            Self::Piece(first) => {
                let mut all = Vec::with_capacity(room);
                all.extend_from_slice(&first);
                all
            }
            Self::Pieces(all) => all,
        };
        all.reserve_exact(room.saturating_sub(all.len()));
        all.extend_from_slice(&data);
        Ok(Self::Pieces(all))
    }

    fn whole(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::Piece(piece) => piece,
            Self::Pieces(all) => all.into(),
        }
    }
}

async fn read_at_most(mut body: Incoming, limit: usize, mut share: Share<'_>) -> Result<Bytes> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let (mut bytes, mut length) = (Gathered::Nothing, 0);
    while let Some(frame) = body.frame().await {
        // The caller left, or spoke no HTTP; nobody will read what we say to that.
        let frame = frame.map_err(|cause| Error::new(ErrorKind::Canceled).with_source(cause))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length <= limit {
            bytes = bytes.and(data, (announced, limit), &mut share)?;
        } else if length > limit.saturating_add(MAX_DISCARDED) {
            break;
        }
    }
    if length <= limit {
        return Ok(bytes.whole());
    }
    let message = format!("Payload too large: more than {limit} bytes (max_body_bytes)");
    Err(Error::new(ErrorKind::PayloadTooLarge).with_message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s62_bodies_are_bounded_together() {
        let reading = Reading::default();
        let share = || Share {
            reading: &reading,
            taken: 0,
            most: 1_000,
        };
        let (mut one, mut two) = (share(), share());
        one.grow(FREE).unwrap();
        one.grow(FREE + 900).unwrap();
        let refused = two.grow(FREE + 200).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.retry_after()),
            (ErrorKind::Unavailable, Some(RETRY_AFTER))
        );
        drop((one, two));
        share().grow(FREE + 1_000).unwrap();
        assert_eq!(reading.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn s62_room_is_made_for_what_comes_and_counts_before_it_is_made() {
        let piece = |length| Bytes::from(vec![b' '; length]);
        let limit = 8 << 20;
        for (announced, lengths, most) in [
            (8 << 20, &[1, FREE][..], 4 * (FREE + 1)),
            (8 << 20, &[1, FREE, 4 * FREE], 4 * (5 * FREE + 1)),
            (8 << 20, &[1, FREE, 63 * FREE], 8 << 20),
            (9 << 20, &[1, FREE, 63 * FREE], 8 << 20),
            (0, &[1, 1_000, 5_000, 20_000, 70_000, 70_000], 2 * 166_001),
            (0, &[1, 5 << 20, 2 << 20], 8 << 20),
            (100_000, &[60_000, 40_000], 100_000),
            (8 << 20, &[FREE / 8, FREE / 8], FREE),
        ] {
            let reading = Reading::default();
            let mut share = Share {
                reading: &reading,
                taken: 0,
                most: usize::MAX,
            };
            let mut gathered = Gathered::Nothing;
            for length in lengths {
                gathered = gathered
                    .and(piece(*length), (announced, limit), &mut share)
                    .unwrap();
            }
            let Gathered::Pieces(all) = &gathered else {
                panic!("there are several")
            };
            assert!(all.capacity() <= most, "{} of {announced}", all.capacity());
            assert_eq!(
                reading.0.load(Ordering::Relaxed),
                all.capacity().saturating_sub(FREE)
            );
            assert_eq!(gathered.whole().len(), lengths.iter().sum::<usize>());
        }
        let reading = Reading::default();
        let mut share = Share {
            reading: &reading,
            taken: 0,
            most: 2 * FREE,
        };
        let gathered = Gathered::Nothing
            .and(piece(1), (limit, limit), &mut share)
            .unwrap();
        let refused = gathered
            .and(piece(FREE), (limit, limit), &mut share)
            .err()
            .unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn room_is_made_once_for_what_comes_in_large_pieces() {
        let (reading, announced) = (Reading::default(), 1_000_000);
        let mut share = Share {
            reading: &reading,
            taken: 0,
            most: usize::MAX,
        };
        let mut gathered = Gathered::Nothing;
        for length in [100_000, 400_000] {
            gathered = gathered
                .and(
                    Bytes::from(vec![b' '; length]),
                    (announced, announced),
                    &mut share,
                )
                .unwrap();
        }
        assert!(matches!(gathered, Gathered::Pieces(all) if all.capacity() == announced));
    }

    #[test]
    fn s79_only_json_gets_in() {
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
            assert_eq!(check_type(&headers).is_ok(), accepted, "{media_type}");
        }
        assert!(check_type(&HeaderMap::new()).is_ok());
    }
}
