//! Comparison of the clocks of this machine and the agent, by the `Date` of a response.

use std::time::{Duration, UNIX_EPOCH};

use super::DiagnosticStep::Clock;
use super::{Diagnostic, Examination};
use crate::error::CliResult;
use crate::output::duration_text;
use crate::wire_log::HeadCapture;

/// Difference from which tokens and signatures are refused: verifiers usually allow a minute.
const MAX_DIFFERENCE: Duration = Duration::from_secs(60);

/// Compares the clocks, unless that is done or there is no response.
pub(super) fn examine(examination: &mut Examination<'_>, heads: &HeadCapture) -> CliResult {
    if examination.has(Clock) {
        return Ok(());
    }
    let Some(head) = heads.last() else {
        return Ok(());
    };
    examination.add(compare(head.header("date"), head.received_ms))
}

fn compare(date: Option<&str>, local_ms: i64) -> Diagnostic {
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let Some(date) = date else {
        return Diagnostic::skipped(Clock, "the response has no date");
    };
    let remote = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    let remote_ms = i64::try_from(remote.as_millis()).unwrap_or(i64::MAX);
    let difference = Duration::from_millis(local_ms.abs_diff(remote_ms));
    if difference <= MAX_DIFFERENCE {
        return Diagnostic::ok(Clock, "the clocks agree");
    }
    let direction = if local_ms > remote_ms {
        "ahead of"
    } else {
        "behind"
    };
    let difference = duration_text(difference);
    Diagnostic::warning(
        Clock,
        format!("the clock of this machine is {difference} {direction} the agent's"),
    )
    .hint("correct the one that is wrong: tokens, signatures and certificates expire by it")
}

#[cfg(test)]
mod tests {
    use super::super::DiagnosticStatus;
    use super::*;

    #[test]
    fn a_minute_of_difference_is_accepted() {
        let date = Some("Thu, 01 Jan 1970 00:10:00 GMT");
        for (local_ms, expected) in [
            (540_000, DiagnosticStatus::Ok),
            (660_000, DiagnosticStatus::Ok),
            (661_000, DiagnosticStatus::Warning),
            (539_000, DiagnosticStatus::Warning),
        ] {
            assert_eq!(compare(date, local_ms).status, expected, "{local_ms}");
        }
        let behind = compare(date, 0).message;
        assert!(behind.contains("10 min 0 s behind"), "{behind}");
        assert_eq!(compare(None, 0).status, DiagnosticStatus::Skipped);
    }
}
