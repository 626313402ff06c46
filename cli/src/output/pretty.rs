//! Parts of `-o pretty`: the table of tasks, and the lines below an answer.

use std::time::Duration;

use attache::model::{ListTasksResponse, Message, Role, Task, TaskState, Timestamp};

use super::escape::line;
use crate::terminal::{Paint, TerminalStyle, shorten};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Narrowest column of first words: a narrower terminal wraps the line.
const MIN_WORDS: usize = 12;

/// Symbol, words and color of a state.
pub(super) struct StateLabel {
    pub(super) symbol: &'static str,
    pub(super) words: &'static str,
    pub(super) paint: Paint,
}

pub(super) fn state_label(state: TaskState) -> StateLabel {
    let (symbol, words, paint) = match state {
        TaskState::Unspecified => ("·", "unspecified", Paint::Dim),
        TaskState::Submitted => ("·", "submitted", Paint::Dim),
        TaskState::Working => ("…", "working", Paint::Cyan),
        TaskState::Completed => ("✓", "completed", Paint::Green),
        TaskState::Failed => ("✗", "failed", Paint::Red),
        TaskState::Rejected => ("✗", "rejected", Paint::Red),
        TaskState::Canceled => ("■", "canceled", Paint::Yellow),
        TaskState::InputRequired => ("?", "input required", Paint::Yellow),
        TaskState::AuthRequired => ("?", "auth required", Paint::Yellow),
    };
    StateLabel {
        symbol,
        words,
        paint,
    }
}

/// The lines below an answer.
pub(super) struct Footer<'a> {
    pub(super) state: Option<TaskState>,
    /// The message of a task that did not succeed.
    pub(super) reason: Option<String>,
    pub(super) elapsed: Duration,
    pub(super) task: Option<&'a str>,
    pub(super) context: Option<&'a str>,
    pub(super) resume: Option<&'a str>,
}

impl Footer<'_> {
    /// Renders the footer: one line if it has no command and fits, else a row per fact.
    pub(super) fn render(&self, style: TerminalStyle) -> String {
        let outcome = self.state.map(|state| self.outcome(state));
        let rows: Vec<_> = [("task", self.task), ("context", self.context)]
            .into_iter()
            .chain([("next", self.resume)])
            .filter_map(|(name, value)| Some((name, line(value.filter(|id| !id.is_empty())?))))
            .collect();
        let facts = rows.iter().map(|(name, value)| format!("{name} {value}"));
        let facts = facts.collect::<Vec<_>>().join(" · ");
        if self.resume.is_none()
            && let Some((words, paint)) = &outcome
            && words.chars().count() + " · ".len() + facts.chars().count() < style.columns
        {
            let facts = style.paint(Paint::Dim, &format!(" · {facts}"));
            return format!("{}{facts}\n", style.paint(*paint, words));
        }
        let mut text = String::new();
        if let Some((words, paint)) = outcome {
            text += &format!("{}\n", style.paint(paint, &words));
        }
        for (name, value) in rows {
            let row = format!("  {name:<8} {value}");
            text += &format!("{}\n", style.paint(Paint::Dim, &row));
        }
        text
    }

    /// State, reason and time, with their color.
    fn outcome(&self, state: TaskState) -> (String, Paint) {
        let label = state_label(state);
        let mut words = format!("{} {}", label.symbol, label.words);
        if let Some(reason) = &self.reason {
            words += &format!(": {}", line(reason));
        }
        if self.elapsed >= Duration::from_secs(1) {
            words += &format!(" · {}", duration_text(self.elapsed));
        }
        (words, label.paint)
    }
}

/// A table of tasks: age of the last change, state, id and first words.
pub(super) fn task_table(page: &ListTasksResponse, now: Timestamp, style: TerminalStyle) -> String {
    if page.tasks.is_empty() {
        return "No tasks.\n".to_owned();
    }
    let id_width = page
        .tasks
        .iter()
        .map(|task| task.id.as_str().chars().count());
    let id_width = id_width.max().unwrap_or_default().max("TASK".len());
    let states = page.tasks.iter().map(|task| state_label(task.status.state));
    let state_width = states.map(|label| label.words.len() + 2).max();
    let state_width = state_width.unwrap_or_default().max("STATE".len());
    let fixed = "AGE".len() + 2 + state_width + 2 + id_width + 2;
    let words_width = style.columns.saturating_sub(fixed).max(MIN_WORDS);
    let head = format!(
        "AGE  {:<state_width$}  {:<id_width$}  FIRST WORDS",
        "STATE", "TASK"
    );
    let mut text = format!("{}\n", style.paint(Paint::Bold, &head));
    for task in &page.tasks {
        let label = state_label(task.status.state);
        let state = format!("{} {}", label.symbol, label.words);
        let state = style.paint(label.paint, &format!("{state:<state_width$}"));
        let id = format!("{:<id_width$}", line(task.id.as_str()));
        let age = task.status.timestamp.map(|time| age_text(time, now));
        let age = format!("{:>3}", age.unwrap_or_default());
        let words = shorten(&line(&first_words(task)), words_width);
        let row = format!("{age}  {state}  {}  {words}", style.paint(Paint::Dim, &id));
        text += &format!("{}\n", row.trim_end());
    }
    if !page.next_page_token.is_empty() {
        let more = format!(
            "more: --page-token {}",
            shell_words::quote(&page.next_page_token)
        );
        text += &format!("{}\n", style.paint(Paint::Dim, &line(&more)));
    }
    text
}

/// The first words of a task: of the user's first message, else of the status.
fn first_words(task: &Task) -> String {
    let mut messages = task.history.iter();
    let asked = messages.find(|message| message.role == Role::User);
    let text = |message: &Message| Some(message.text()).filter(|text| !text.trim().is_empty());
    let asked = asked.and_then(|message| text(message));
    let said = || {
        task.status
            .message
            .as_ref()
            .and_then(|message| text(message))
    };
    let words = asked.or_else(said).unwrap_or_default();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Time since `time`, in at most three characters up to 99 days.
fn age_text(time: Timestamp, now: Timestamp) -> String {
    let millis = now.as_millis().saturating_sub(time.as_millis());
    let seconds = u64::try_from(millis / 1000).unwrap_or_default();
    match seconds {
        0..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m", seconds / MINUTE),
        HOUR..DAY => format!("{}h", seconds / HOUR),
        _ => format!("{}d", seconds / DAY),
    }
}

/// A duration for people: `12 s`, `3 min 4 s`, `2 h 5 min`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min {} s", seconds / MINUTE, seconds % MINUTE),
        _ => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::{ContextId, TaskId};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn a_table_has_age_state_id_and_first_words_within_the_width() {
        let task = |id: &str, state, millis, words: &str| {
            let mut task = Task::submitted(TaskId::from(id), ContextId::from("c"), at(millis));
            task.status.state = state;
            task.history = vec![Message::user(words).into()];
            task
        };
        let page = ListTasksResponse {
            tasks: vec![
                task("t-1", TaskState::Working, 88_000, "count\n the  ships"),
                task(
                    "t-22",
                    TaskState::InputRequired,
                    -7_200_000,
                    &"long ".repeat(40),
                ),
            ],
            next_page_token: "p 2".to_owned(),
            ..ListTasksResponse::default()
        };
        let style = TerminalStyle {
            columns: 60,
            has_colors: false,
        };
        assert_eq!(
            task_table(&page, at(100_000), style),
            "AGE  STATE             TASK  FIRST WORDS\n\
             12s  … working         t-1   count the ships\n \
             2h  ? input required  t-22  long long long long long long…\n\
             more: --page-token 'p 2'\n"
        );
        let none = ListTasksResponse::default();
        assert_eq!(task_table(&none, at(0), style), "No tasks.\n");
    }

    #[test]
    fn ages_are_short() {
        let ages =
            [0, 59_999, 60_000, 3_600_000, 86_400_000 * 3].map(|age| age_text(at(0), at(age)));
        assert_eq!(ages, ["0s", "59s", "1m", "1h", "3d"]);
        assert_eq!(age_text(at(5000), at(0)), "0s", "a clock that is ahead");
        assert_eq!(duration_text(Duration::from_secs(184)), "3 min 4 s");
    }

    #[test]
    fn s55_a_footer_has_no_controls_of_the_agent() {
        let footer = Footer {
            state: Some(TaskState::Failed),
            reason: Some("no\u{1b}[2J\nway".to_owned()),
            elapsed: Duration::from_secs(2),
            task: Some("t\u{1b}"),
            context: None,
            resume: Some("attache send"),
        };
        let style = TerminalStyle {
            columns: 80,
            has_colors: false,
        };
        assert_eq!(
            footer.render(style),
            "✗ failed: no\\u{1b}[2J\\nway · 2 s\n  task     t\\u{1b}\n  next     attache send\n"
        );
    }
}
