//! Layout of the overview as lines of a terminal.

use std::time::Duration;

use super::{FailingWebhook, OpenTask, ServerMetrics, ServerOverview};
use crate::output::{duration_text, line};
use crate::terminal::{Paint, TerminalStyle, shorten};

/// Rows of failed webhooks before the rest is left out.
const MAX_WEBHOOKS: usize = 5;
/// Rows above the tasks with their heading, and the line of keys.
const FIXED_ROWS: usize = 10;

/// Size of the area to fill.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenSize {
    pub(crate) style: TerminalStyle,
    /// Number of lines; `None` if all fit.
    pub(crate) rows: Option<usize>,
}

/// Renders the overview. Every line fits the width.
pub(crate) fn lines(view: &ServerOverview, size: ScreenSize) -> Vec<String> {
    let style = size.style;
    let mut lines = vec![
        style.paint(Paint::Bold, &fit(&title(view, style.columns), style)),
        String::new(),
        row("Open", &open(view), style),
    ];
    match &view.metrics {
        Some(metrics) => lines.extend(metric_rows(metrics, style)),
        None => lines.push(row(
            "Rates",
            "unknown: the server has telemetry.metrics off",
            style,
        )),
    }
    let webhooks = webhook_lines(view, style);
    let free = size.rows.map(|rows| {
        rows.saturating_sub(FIXED_ROWS)
            .saturating_sub(webhooks.len())
    });
    lines.push(String::new());
    lines.extend(task_lines(view, free, style));
    lines.extend(webhooks);
    lines
}

fn title(view: &ServerOverview, columns: usize) -> String {
    let time = view.now.to_string();
    let time = time.get(11..19).unwrap_or_default();
    let name = shorten(&line(&view.server), columns.saturating_sub(30));
    format!("attache top · {name} · {time} UTC")
}

fn fit(text: &str, style: TerminalStyle) -> String {
    shorten(text, style.columns)
}

fn row(label: &str, text: &str, style: TerminalStyle) -> String {
    let text = shorten(text, style.columns.saturating_sub(10));
    format!(
        "{} {text}",
        style.paint(Paint::Bold, &format!("{label:<9}"))
    )
}

/// Words of a state: `input required` of `TASK_STATE_INPUT_REQUIRED`.
fn state_words(state: &str) -> String {
    let words = state.strip_prefix("TASK_STATE_").unwrap_or(state);
    words.to_ascii_lowercase().replace('_', " ")
}

fn open(view: &ServerOverview) -> String {
    let more = if view.open_is_exact { "" } else { "+" };
    let mut text = format!("{}{more}", view.open);
    for (state, count) in &view.states {
        text += &format!("   {} {count}", state_words(state));
    }
    text
}

fn metric_rows(metrics: &ServerMetrics, style: TerminalStyle) -> Vec<String> {
    let ended = metrics.ended.iter();
    let ended: Vec<_> = ended
        .map(|(state, count)| format!("{state} {count}"))
        .collect();
    let turn = metrics
        .turn_seconds
        .map(|seconds| format!("   mean turn {seconds:.2} s"));
    vec![
        row(
            "Ended",
            &format!("{}   since the start", ended.join("   ")),
            style,
        ),
        row(
            "Rates",
            &format!(
                "calls {:.1}/s   errors {:.1}/s   tasks {:.1}/s   events {:.1}/s",
                metrics.calls_per_second,
                metrics.errors_per_second,
                metrics.tasks_per_second,
                metrics.stream_events_per_second
            ),
            style,
        ),
        row(
            "Running",
            &format!(
                "turns {}   streams {}{}",
                metrics.turns_running,
                metrics.streams_open,
                turn.unwrap_or_default()
            ),
            style,
        ),
        row(
            "Webhooks",
            &format!(
                "delivered {:.1}/s   failed attempts {:.1}/s",
                metrics.deliveries_per_second, metrics.retries_per_second
            ),
            style,
        ),
    ]
}

fn task_lines(view: &ServerOverview, rows: Option<usize>, style: TerminalStyle) -> Vec<String> {
    if view.slowest.is_empty() {
        return vec!["No open tasks.".to_owned()];
    }
    let columns = TaskColumns::new(view, style);
    let heading = columns.row(&["AGE", "STATE", "AGENT", "CALLER", "TASK"]);
    let mut lines = vec![style.paint(Paint::Bold, &fit(&heading, style))];
    let shown = view.slowest.len().min(rows.unwrap_or(usize::MAX).max(1));
    let tasks = view.slowest.iter().take(shown);
    lines.extend(tasks.map(|task| task_line(task, view, &columns, style)));
    lines
}

/// Widths of the table of tasks. Ids are shown whole if the terminal has 60 columns or more.
struct TaskColumns {
    agent: usize,
    caller: usize,
}

impl TaskColumns {
    const AGE: usize = "23h 59m".len();
    const STATE: usize = "input required".len();
    const MAX_AGENT: usize = 24;
    const MAX_CALLER: usize = 24;

    fn new(view: &ServerOverview, style: TerminalStyle) -> Self {
        let ids = view.slowest.iter().map(|task| task.task.chars().count());
        let fixed = Self::AGE + Self::STATE + ids.max().unwrap_or_default() + 4;
        let rest = style.columns.saturating_sub(fixed);
        Self {
            agent: (rest * 4 / 7).clamp(5, Self::MAX_AGENT),
            caller: (rest - rest * 4 / 7).clamp(6, Self::MAX_CALLER),
        }
    }

    fn row(&self, [age, state, agent, caller, task]: &[&str; 5]) -> String {
        let column = |text: &str, width| format!("{:<width$}", shorten(text, width));
        format!(
            "{} {} {} {} {task}",
            column(age, Self::AGE),
            column(state, Self::STATE),
            column(agent, self.agent),
            column(caller, self.caller),
        )
    }
}

fn task_line(
    task: &OpenTask,
    view: &ServerOverview,
    columns: &TaskColumns,
    style: TerminalStyle,
) -> String {
    let age = view.now.as_millis() - task.created.as_millis();
    let age = Duration::from_millis(u64::try_from(age).unwrap_or_default());
    let text = columns.row(&[
        &age_text(age),
        &state_words(&task.state),
        &line(&task.agent),
        &line(&task.caller),
        &line(&task.task),
    ]);
    let text = fit(&text, style);
    if task.state.ends_with("_REQUIRED") {
        style.paint(Paint::Yellow, &text)
    } else {
        text
    }
}

/// An age that fits its column.
fn age_text(age: Duration) -> String {
    let days = age.as_secs() / 86_400;
    if days > 0 {
        format!("{days} d")
    } else {
        duration_text(age)
            .replace(" min", "m")
            .replace(" s", "s")
            .replace(" h", "h")
    }
}

fn webhook_lines(view: &ServerOverview, style: TerminalStyle) -> Vec<String> {
    let failed = &view.failed_webhooks;
    if failed.is_empty() {
        return Vec::new();
    }
    let more = if view.has_more_failed_webhooks {
        "+"
    } else {
        ""
    };
    let heading = format!(
        "FAILED WEBHOOKS {}{more}: attache push deliveries, attache push retry",
        failed.len()
    );
    let mut lines = vec![
        String::new(),
        style.paint(Paint::Bold, &fit(&heading, style)),
    ];
    let rows = failed.iter().take(MAX_WEBHOOKS);
    lines.extend(rows.map(|webhook| style.paint(Paint::Red, &webhook_line(webhook, style))));
    if failed.len() > MAX_WEBHOOKS {
        lines.push(format!("… and {} more", failed.len() - MAX_WEBHOOKS));
    }
    lines
}

fn webhook_line(webhook: &FailingWebhook, style: TerminalStyle) -> String {
    let text = format!(
        "{:<6} {} {}: {}",
        webhook.number, webhook.task, webhook.origin, webhook.reason
    );
    fit(&line(&text), style)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ActivityReply, AdminEndpoint, MetricValues, ServerSample};
    use super::*;

    fn sample(tasks: usize) -> ServerSample {
        let task = json!({
            "task": "0199c3a0-7b1c-7000-8000-000000000001", "agent": "an-agent-with-a-long-name", "tenant": "",
            "caller": "ada", "state": "TASK_STATE_INPUT_REQUIRED", "created": "2026-01-01T00:00:00Z",
            "updated": "2026-01-01T00:00:00Z", "events": 3,
        });
        let activity: ActivityReply = serde_json::from_value(json!({
            "now": "2026-01-01T01:02:03Z", "open": tasks, "openIsExact": true,
            "states": {"TASK_STATE_INPUT_REQUIRED": tasks}, "oldest": vec![task; tasks],
        }))
        .unwrap();
        let webhook = json!({
            "number": 7, "task": "t", "agent": "a", "caller": "ada", "origin": "https://hook.example",
            "reason": "status 500", "delivered": 1, "end": 3,
        });
        ServerSample {
            at: std::time::Instant::now(),
            activity,
            metrics: Some(MetricValues::parse(
                "attache_tasks_total{state=\"TASK_STATE_COMPLETED\"} 5\n",
            )),
            webhooks: vec![serde_json::from_value(webhook).unwrap(); 7],
            has_more_webhooks: false,
        }
    }

    #[test]
    fn every_line_fits_the_terminal() {
        let endpoint = AdminEndpoint::Socket("/a/long/path/of/a/data/directory/of/a/server".into());
        let view = ServerOverview::new(&endpoint, None, &sample(40));
        for columns in [40, 80, 200] {
            let style = TerminalStyle {
                columns,
                has_colors: false,
            };
            let rows = Some(24);
            let lines = lines(&view, ScreenSize { style, rows });
            assert!(lines.len() < 24, "{lines:#?}");
            for line in &lines {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
            let text = lines.join("\n");
            let has_id = text.contains("0199c3a0-7b1c-7000-8000-000000000001");
            assert_eq!(has_id, columns >= 80, "{text}");
            for expected in [
                "completed 5",
                "1h 2m",
                "input required",
                "FAILED WEBHOOKS 7",
            ] {
                assert!(text.contains(expected), "{expected}: {text}");
            }
        }
    }
}
