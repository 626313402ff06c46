//! The trace that a request belongs to, as W3C Trace Context has it.

use std::sync::Arc;

/// A place in a trace: what is sent as `traceparent` and `tracestate`. There is none that is not well formed, and none
/// that is long.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trace {
    parent: Arc<str>,
    state: Option<Arc<str>>,
}

/// `00-` and a trace id, `-` and a span id, `-` and flags.
const LENGTH: usize = 55;
/// What a later version may add to it is not read, and has an end.
const MAX_PARENT: usize = 256;
const MAX_STATE: usize = 512;
const MAX_MEMBERS: usize = 32;
const MAX_WORD: usize = 256;

impl Trace {
    /// The header that says which trace and which span; also, in capitals, the variable.
    pub const PARENT: &str = "traceparent";
    /// The header with what vendors add.
    pub const STATE: &str = "tracestate";

    /// Reads both headers. A parent that is not well formed is none at all; a state that is not is left out.
    #[must_use]
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let flags = flags(parent.trim())?;
        let parent = format!("00{}{flags:02x}", &parent.trim()[2..LENGTH - 2]);
        let state = state
            .map(str::trim)
            .filter(|state| is_state(state))
            .map(Arc::from);
        Some(Self {
            parent: parent.into(),
            state,
        })
    }

    /// The value of `traceparent`.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// The value of `tracestate`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The id of the trace: 32 digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.parent[3..35]
    }

    /// The id of the span: 16 digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        &self.parent[36..52]
    }

    /// The headers that say so.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.state().map(|state| (Self::STATE, state));
        [(Self::PARENT, self.parent())].into_iter().chain(state)
    }

    /// How much memory it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.parent.len() + self.state().map_or(0, str::len)
    }
}

/// The flags of a parent; `None` where it is not well formed. Later versions may mean more by theirs than we know.
fn flags(parent: &str) -> Option<u8> {
    let whole = parent
        .get(..LENGTH)
        .filter(|_| parent.len() <= MAX_PARENT)?;
    let mut fields = whole.split('-');
    let mut field = |length| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        fields
            .next()
            .filter(|field| field.len() == length && field.bytes().all(digit))
    };
    let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    let is_nothing = |id: &str| id.bytes().all(|digit| digit == b'0');
    let rest = &parent[LENGTH..];
    let fits = rest.is_empty() || (version != "00" && rest.starts_with('-'));
    if version == "ff" || is_nothing(trace) || is_nothing(span) || !fits {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some(if version == "00" { flags } else { flags & 1 })
}

fn is_state(state: &str) -> bool {
    let members: Vec<_> = state
        .split(',')
        .map(str::trim)
        .filter(|member| !member.is_empty())
        .collect();
    let keys: Vec<_> = members.iter().filter_map(|member| key(member)).collect();
    let is_new = |at: usize| !keys[..at].contains(&keys[at]);
    state.len() <= MAX_STATE
        && (1..=MAX_MEMBERS).contains(&members.len())
        && keys.len() == members.len()
        && (0..keys.len()).all(is_new)
}

/// The key of a member that is well formed.
fn key(member: &str) -> Option<&str> {
    let (key, value) = member.split_once('=')?;
    let begins = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let goes_on = |byte: u8| begins(byte) || b"_-*/@".contains(&byte);
    let is_key = key.bytes().next().is_some_and(begins) && key.bytes().all(goes_on);
    let is_value = !value.is_empty()
        && value
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=');
    (is_key && is_value && key.len() <= MAX_WORD && value.len() <= MAX_WORD).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_parent_that_is_well_formed_is_passed_on() {
        let trace = Trace::read(PARENT, Some(" vendor=a b/c , other@x=1 ")).unwrap();
        assert_eq!(trace.parent(), PARENT);
        assert_eq!(trace.state(), Some("vendor=a b/c , other@x=1"));
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.span_id(), "00f067aa0ba902b7");
        assert_eq!(trace.headers().count(), 2);
        let later = format!("cc{}-03-what-the-future-holds", &PARENT[2..52]);
        assert_eq!(
            Trace::read(&later, None).unwrap().parent(),
            PARENT,
            "what we know of a later version"
        );
    }

    #[test]
    fn what_is_not_well_formed_is_not_believed() {
        for bad in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &PARENT.to_uppercase(),
            &PARENT.replace("00-4", "ff-4"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &PARENT.replace('-', "_"),
            &PARENT.replace("4bf9", "4é9"),
            &format!("01{}-{}", &PARENT[2..], "x".repeat(300)),
        ] {
            assert_eq!(Trace::read(bad, None), None, "{bad}");
        }
        for bad in [
            "",
            ",",
            "key",
            "=value",
            "Key=v",
            "k=",
            "k=a=b",
            "k=é",
            "k=1,k=2",
            &"k=".repeat(300),
        ] {
            assert_eq!(
                Trace::read(PARENT, Some(bad)).unwrap().state(),
                None,
                "{bad}"
            );
        }
        let many = |count| {
            (0..count)
                .map(|at| format!("k{at}=v"))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert!(
            Trace::read(PARENT, Some(&many(32)))
                .unwrap()
                .state()
                .is_some()
        );
        assert_eq!(Trace::read(PARENT, Some(&many(33))).unwrap().state(), None);
    }
}
