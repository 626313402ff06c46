//! Detection of proxies that hold back the events of a stream.

use std::time::Duration;

use super::Diagnostic;
use super::DiagnosticStep::Buffering;

/// Time that the agent must work for its events to be told apart.
const MIN_WORK: Duration = Duration::from_millis(500);

const HINT: &str = "a proxy collects the events: switch off its response buffering and compression \
                    for the agent (nginx: proxy_buffering off); see attache docs proxy";

/// An event of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Time from the request to the event.
    pub(super) elapsed: Duration,
    /// Time of the event by the clock of the agent, in Unix milliseconds.
    pub(super) sent_ms: Option<i64>,
}

/// Compares the times at which events were sent and received. Only differences count, so the clocks need not agree.
pub(super) fn judge(arrivals: &[Arrival], total: Duration) -> Diagnostic {
    let mut timed = arrivals
        .iter()
        .filter_map(|arrival| Some((arrival.elapsed, arrival.sent_ms?)));
    let first = timed.next();
    let last = timed.next_back();
    if let (Some(first), Some(last)) = (first, last) {
        let sent = Duration::from_millis(u64::try_from(last.1 - first.1).unwrap_or_default());
        return judge_spans(sent, last.0.saturating_sub(first.0));
    }
    without_times(arrivals, total)
}

/// Compares the time between the first and the last event at the agent with that at this machine.
fn judge_spans(sent: Duration, received: Duration) -> Diagnostic {
    if sent < MIN_WORK {
        undecided()
    } else if received * 2 < sent {
        let message = format!(
            "events of {} of work arrive within {}",
            seconds(sent),
            seconds(received)
        );
        Diagnostic::warning(Buffering, message).hint(HINT)
    } else {
        Diagnostic::ok(Buffering, "events arrive when they are sent")
    }
}

/// Without times in the events: several that arrive together at the end are suspicious.
fn without_times(arrivals: &[Arrival], total: Duration) -> Diagnostic {
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
        return undecided();
    };
    let spread = last.elapsed.saturating_sub(first.elapsed);
    if total < MIN_WORK || arrivals.len() < 3 {
        undecided()
    } else if spread * 10 < total {
        Diagnostic::warning(
            Buffering,
            format!(
                "all events arrive together, after {}",
                seconds(first.elapsed)
            ),
        )
        .hint(HINT)
    } else {
        Diagnostic::ok(Buffering, "events arrive one by one")
    }
}

fn undecided() -> Diagnostic {
    Diagnostic::skipped(
        Buffering,
        "the answer was too fast to tell; try a longer one: --message <TEXT>",
    )
}

/// A time in milliseconds or seconds.
pub(super) fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::super::DiagnosticStatus::{self, Ok, Skipped, Warning};
    use super::*;

    fn status(arrivals: &[(u64, Option<i64>)]) -> DiagnosticStatus {
        let arrivals: Vec<_> = arrivals
            .iter()
            .map(|(elapsed, sent_ms)| Arrival {
                elapsed: Duration::from_millis(*elapsed),
                sent_ms: *sent_ms,
            })
            .collect();
        let total = arrivals.last().map(|last| last.elapsed);
        judge(&arrivals, total.unwrap_or_default()).status
    }

    #[test]
    fn events_that_arrive_together_are_buffered() {
        // Skewed clocks do not matter.
        let far = 1_000_000;
        assert_eq!(status(&[(5, Some(far)), (2005, Some(far + 2000))]), Ok);
        assert_eq!(
            status(&[(2000, Some(far)), (2005, Some(far + 2000))]),
            Warning
        );
        assert_eq!(status(&[(5, Some(far)), (15, Some(far + 10))]), Skipped);
        assert_eq!(status(&[]), Skipped);
    }

    #[test]
    fn events_without_times_are_judged_by_their_arrival() {
        assert_eq!(status(&[(900, None), (901, None), (902, None)]), Warning);
        assert_eq!(status(&[(10, None), (500, None), (900, None)]), Ok);
        assert_eq!(status(&[(900, None)]), Skipped, "an agent may answer once");
    }
}
