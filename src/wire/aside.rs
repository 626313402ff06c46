//! A file that is most of a body, put aside before the rest is read: it is looked over once, and kept where it came.

use std::ops::Range;

use uuid::Uuid;

use crate::model::{Base64, Content, Message, Part};

/// How far into a body its file is looked for.
const LEAD: usize = 4 << 10;
/// The rest of a body that is mostly a file is no more than this part of it.
const REST: usize = 8;
/// The member that has the file.
const MEMBER: &[u8] = br#""raw""#;

/// A body whose file has been put aside.
pub(super) struct Aside {
    /// The same JSON, with a word of ours in place of the file. Where this is no JSON, the body is none.
    pub(super) rest: Vec<u8>,
    word: String,
    file: Range<usize>,
}

impl Aside {
    /// Puts the file aside that is most of a body, if it is written as we would write it.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        let file = file_in(body)?;
        // Nobody can know it, so nobody else says it.
        let word = Uuid::new_v4().simple().to_string();
        let rest = [&body[..file.start], word.as_bytes(), &body[file.end..]].concat();
        Some(Self { rest, word, file })
    }

    /// Puts the file of this body into the part that has the word. There is none if it was no part's.
    pub(super) fn put_back(self, message: &mut Message, body: Vec<u8>) -> Result<(), Vec<u8>> {
        let is_it = |part: &&mut Part| matches!(&part.content, Content::Raw(raw) if raw.as_str() == self.word);
        let Some(part) = message.parts.iter_mut().find(is_it) else {
            return Err(body);
        };
        let body = String::from_utf8(body).map_err(|error| error.into_bytes())?;
        part.content = Content::Raw(Base64::within(body, self.file));
        Ok(())
    }
}

/// A string of base64 that is most of the body, and a member that may be a part's. A quote with a colon before it opens a string
/// wherever there is JSON, and there is nothing in base64 that JSON would read in another way.
fn file_in(body: &[u8]) -> Option<Range<usize>> {
    let lead = body.get(..LEAD)?;
    let members = lead
        .windows(MEMBER.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == MEMBER);
    let mut files = members.filter_map(|(at, _)| file_at(body, at + MEMBER.len()));
    let is_most = |file: &Range<usize>| body.len() - file.len() <= body.len() / REST;
    files.find(|file| is_most(file) && body.get(file.end) == Some(&b'"'))
}

/// The base64 in the string behind a name that ends here.
fn file_at(body: &[u8], end: usize) -> Option<Range<usize>> {
    let value = body[end..].trim_ascii_start().strip_prefix(b":")?;
    let text = value.trim_ascii_start().strip_prefix(b"\"")?;
    let from = body.len() - text.len();
    Base64::end_in(body, from).map(|end| from..end)
}
