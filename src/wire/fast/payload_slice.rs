//! A file that is most of a body, put aside before the rest is read: it is looked over once, and kept where it came.

use std::ops::Range;

use uuid::Uuid;

use crate::model::{Base64, Content, Message, Part};

/// How far into a body its file is looked for.
const SEARCH_PREFIX_BYTES: usize = 4 << 10;
/// The rest of a body that is mostly a file is no more than this part of it.
const MAX_REMAINDER_DIVISOR: usize = 8;
/// The member that has the file.
const PAYLOAD_MEMBER: &[u8] = br#""raw""#;

/// A body whose file has been put aside.
pub(super) struct PayloadSlice {
    /// The same JSON, with a word of ours in place of the file. Where this is no JSON, the body is none.
    pub(super) body: Vec<u8>,
    placeholder: String,
    payload: Range<usize>,
}

impl PayloadSlice {
    /// Puts the file aside that is most of a body, if it is written as we would write it.
    pub(super) fn cut(body: &[u8]) -> Option<Self> {
        let payload = find_payload(body)?;
        // Nobody can know it, so nobody else says it.
        let placeholder = Uuid::new_v4().simple().to_string();
        let body = [
            &body[..payload.start],
            placeholder.as_bytes(),
            &body[payload.end..],
        ]
        .concat();
        Some(Self {
            body,
            placeholder,
            payload,
        })
    }

    /// Puts the file of this body into the part that has the word. There is none if it was no part's.
    pub(super) fn restore_into(self, message: &mut Message, body: Vec<u8>) -> Result<(), Vec<u8>> {
        let is_it = |part: &&mut Part| matches!(&part.content, Content::Raw(raw) if raw.as_str() == self.placeholder);
        let Some(part) = message.parts.iter_mut().find(is_it) else {
            return Err(body);
        };
        let body = String::from_utf8(body).map_err(|error| error.into_bytes())?;
        part.content = Content::Raw(Base64::from_slice(body, self.payload));
        Ok(())
    }
}

/// A string of base64 that is most of the body, and a member that may be a part's. A quote with a colon before it opens a string
/// wherever there is JSON, and there is nothing in base64 that JSON would read in another way.
fn find_payload(body: &[u8]) -> Option<Range<usize>> {
    let prefix = body.get(..SEARCH_PREFIX_BYTES)?;
    let members = prefix
        .windows(PAYLOAD_MEMBER.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == PAYLOAD_MEMBER);
    let mut payloads =
        members.filter_map(|(at, _)| payload_after_name(body, at + PAYLOAD_MEMBER.len()));
    let is_most =
        |payload: &Range<usize>| body.len() - payload.len() <= body.len() / MAX_REMAINDER_DIVISOR;
    payloads.find(|payload| is_most(payload) && body.get(payload.end) == Some(&b'"'))
}

/// The base64 in the string behind a name that ends here.
fn payload_after_name(body: &[u8], end: usize) -> Option<Range<usize>> {
    let value = body[end..].trim_ascii_start().strip_prefix(b":")?;
    let text = value.trim_ascii_start().strip_prefix(b"\"")?;
    let from = body.len() - text.len();
    Base64::find_end(body, from).map(|end| from..end)
}
