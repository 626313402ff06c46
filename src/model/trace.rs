//! W3C Trace Context of a request.

use std::sync::Arc;

/// Validated `traceparent` and `tracestate` of a request. Bounded in size, so it is safe to log and
/// forward.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    parent: Arc<str>,
    state: Option<Arc<str>>,
}

/// Length of `00-<trace id>-<span id>-<flags>`.
const TRACEPARENT_BYTES: usize = 55;
/// Later versions may append fields. They are ignored up to this length; longer values are
/// rejected.
const MAX_TRACEPARENT_BYTES: usize = 256;
const MAX_TRACESTATE_BYTES: usize = 512;
const MAX_TRACESTATE_MEMBERS: usize = 32;
const MAX_KEY_OR_VALUE_BYTES: usize = 256;

impl TraceContext {
    /// Header with trace id and span id. In upper case also the name of the environment variable.
    pub const PARENT: &str = "traceparent";
    /// Header with vendor-specific state.
    pub const STATE: &str = "tracestate";

    /// Parses both headers. Returns `None` for a malformed `traceparent`; drops a malformed
    /// `tracestate`.
    #[must_use]
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let flags = parse_flags(parent.trim())?;
        let parent = format!("00{}{flags:02x}", &parent.trim()[2..TRACEPARENT_BYTES - 2]);
        let state = state
            .map(str::trim)
            .filter(|state| is_valid_tracestate(state))
            .map(Arc::from);
        Some(Self {
            parent: parent.into(),
            state,
        })
    }

    /// Returns the value of `traceparent`.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// Returns the value of `tracestate`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the trace id: 32 hex digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.parent[3..35]
    }

    /// Returns the span id: 16 hex digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        &self.parent[36..52]
    }

    /// Returns the headers to send.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.state().map(|state| (Self::STATE, state));
        [(Self::PARENT, self.parent())].into_iter().chain(state)
    }

    /// Returns the approximate size in memory, in bytes.
    pub(crate) fn memory_size(&self) -> usize {
        self.parent.len() + self.state().map_or(0, str::len)
    }
}

/// Returns the flags of a well-formed `traceparent`. Of a later version, only the sampled flag is
/// kept.
fn parse_flags(parent: &str) -> Option<u8> {
    let whole = parent
        .get(..TRACEPARENT_BYTES)
        .filter(|_| parent.len() <= MAX_TRACEPARENT_BYTES)?;
    let mut fields = whole.split('-');
    let mut field = |length| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        fields
            .next()
            .filter(|field| field.len() == length && field.bytes().all(digit))
    };
    let version = field(2)?;
    let trace = field(32)?;
    let span = field(16)?;
    let flags = field(2)?;
    let is_all_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    let rest = &parent[TRACEPARENT_BYTES..];
    let fits = rest.is_empty() || (version != "00" && rest.starts_with('-'));
    if version == "ff" || is_all_zero(trace) || is_all_zero(span) || !fits {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some(if version == "00" { flags } else { flags & 1 })
}

fn is_valid_tracestate(state: &str) -> bool {
    let members: Vec<_> = state
        .split(',')
        .map(str::trim)
        .filter(|member| !member.is_empty())
        .collect();
    let keys: Vec<_> = members
        .iter()
        .filter_map(|member| member_key(member))
        .collect();
    let is_new = |at: usize| !keys[..at].contains(&keys[at]);
    state.len() <= MAX_TRACESTATE_BYTES
        && (1..=MAX_TRACESTATE_MEMBERS).contains(&members.len())
        && keys.len() == members.len()
        && (0..keys.len()).all(is_new)
}

/// Returns the key of a well-formed `tracestate` member.
fn member_key(member: &str) -> Option<&str> {
    let (key, value) = member.split_once('=')?;
    let is_key_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_key_byte = |byte: u8| is_key_start(byte) || b"_-*/@".contains(&byte);
    let is_key = key.bytes().next().is_some_and(is_key_start) && key.bytes().all(is_key_byte);
    let is_value = !value.is_empty()
        && value
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=');
    (is_key
        && is_value
        && key.len() <= MAX_KEY_OR_VALUE_BYTES
        && value.len() <= MAX_KEY_OR_VALUE_BYTES)
        .then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn well_formed_headers_are_kept() {
        let trace = TraceContext::parse(PARENT, Some(" vendor=a b/c , other@x=1 ")).unwrap();
        assert_eq!(trace.parent(), PARENT);
        assert_eq!(trace.state(), Some("vendor=a b/c , other@x=1"));
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.span_id(), "00f067aa0ba902b7");
        assert_eq!(trace.headers().count(), 2);
        let later = format!("cc{}-03-what-the-future-holds", &PARENT[2..52]);
        assert_eq!(
            TraceContext::parse(&later, None).unwrap().parent(),
            PARENT,
            "what we know of a later version"
        );
    }

    #[test]
    fn malformed_headers_are_ignored() {
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
            assert_eq!(TraceContext::parse(bad, None), None, "{bad}");
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
                TraceContext::parse(PARENT, Some(bad)).unwrap().state(),
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
            TraceContext::parse(PARENT, Some(&many(32)))
                .unwrap()
                .state()
                .is_some()
        );
        assert_eq!(
            TraceContext::parse(PARENT, Some(&many(33)))
                .unwrap()
                .state(),
            None
        );
    }
}
