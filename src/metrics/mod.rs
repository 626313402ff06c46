//! What is counted, for whoever watches a server. Any room may say that something happened; nobody reads it but
//! the operator.
//!
//! Nothing is counted until [`enable`] is called: before that, and without the feature `metrics`, what happens costs
//! nothing. The counts are those of the process. Labels are names that the operator or this library has given, never
//! what a caller says, so that there is an end to them.

mod book;

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use tokio::time::Instant;

use crate::model::{ErrorKind, Event, Operation, TaskState, Version};
use book::{Book, By, Pushed, Tokens, Told};

static BOOK: OnceLock<Book> = OnceLock::new();
static LISTENER: OnceLock<Box<dyn Listener>> = OnceLock::new();

/// Somebody else who counts tasks.
pub trait Listener: Send + Sync + 'static {
    /// A task has entered a state, and that is durable.
    fn entered(&self, agent: &str, version: Version, state: TaskState);

    /// A turn is over, and its task in this state.
    fn turn_ended(&self, agent: &str, state: TaskState, took: Duration);
}

/// Tells somebody else too, from now on. The first one who asks is told, and nobody after that.
pub fn listen(listener: impl Listener) {
    let _ = LISTENER.set(Box::new(listener));
}

/// Begins to count.
pub fn enable() {
    BOOK.get_or_init(Book::new);
}

/// All counts in the text form of Prometheus; `None` as long as nothing is counted.
#[must_use]
pub fn text() -> Option<String> {
    let mut out = String::new();
    encode(&mut out, &BOOK.get()?.registry).ok()?;
    Some(out)
}

/// The media type of [`text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn note(write: impl FnOnce(&Book)) {
    if let Some(book) = BOOK.get() {
        write(book);
    }
}

/// A call was answered.
pub(crate) fn call(agent: &str, operation: Operation, version: Version, failed: Option<ErrorKind>) {
    note(|book| book.call(agent, operation, version, failed));
}

/// The states that a task enters with a batch; counted when that is durable.
pub(crate) struct States(Vec<TaskState>);

/// The states that a task enters with these events.
pub(crate) fn states(events: &[Event]) -> States {
    let entered = |event: &Event| match event {
        Event::Created { .. } => Some(TaskState::Submitted),
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    };
    let counts = BOOK.get().is_some() || LISTENER.get().is_some();
    States(if counts {
        events.iter().filter_map(entered).collect()
    } else {
        Vec::new()
    })
}

impl States {
    pub(crate) fn count(&self, agent: &str, version: Version) {
        if let Some(listener) = LISTENER.get() {
            self.0
                .iter()
                .for_each(|state| listener.entered(agent, version, *state));
        }
        note(|book| {
            for state in &self.0 {
                let told = Told {
                    agent: agent.to_owned(),
                    version: version.as_str(),
                    state: state.as_str(),
                };
                book.tasks.get_or_create(&told).inc();
            }
        });
    }
}

/// A turn of an agent, as long as it lasts.
pub(crate) struct Running(Option<By>);

/// A turn begins that waited for so long.
pub(crate) fn turn(agent: &str, waited: Duration) -> Running {
    let by = BOOK.get().map(|book| {
        let by = By {
            agent: agent.to_owned(),
        };
        book.queue_seconds
            .get_or_create(&by)
            .observe(waited.as_secs_f64());
        book.turns.get_or_create(&by).inc();
        by
    });
    Running(by)
}

impl Running {
    /// The agent, which began then, said the first thing.
    pub(crate) fn spoke(&self, begun: Instant) {
        self.note(|book, by| {
            book.first_event_seconds
                .get_or_create(by)
                .observe(begun.elapsed().as_secs_f64());
        });
    }

    /// The turn that began then is over, and the task in this state.
    pub(crate) fn ended(&self, agent: &str, state: TaskState, begun: Instant) {
        self.note(|book, by| {
            book.turn_seconds
                .get_or_create(by)
                .observe(begun.elapsed().as_secs_f64())
        });
        if let Some(listener) = LISTENER.get() {
            listener.turn_ended(agent, state, begun.elapsed());
        }
    }

    fn note(&self, write: impl FnOnce(&Book, &By)) {
        if let (Some(book), Some(by)) = (BOOK.get(), &self.0) {
            write(book, by);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.note(|book, by| {
            book.turns.get_or_create(by).dec();
        });
    }
}

/// When something began that is counted by how long it takes.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

/// A batch of so many events is durable.
pub(crate) fn commit(events: usize, begun: &Stopwatch) {
    note(|book| {
        book.commit_seconds.observe(begun.0.elapsed().as_secs_f64());
        book.batch_events.observe(events as f64);
    });
}

/// A stream is read.
pub(crate) fn stream_opened() {
    note(|book| {
        book.streams.inc();
    });
}

/// A stream is read no more.
pub(crate) fn stream_closed() {
    note(|book| {
        book.streams.dec();
    });
}

/// So many events went out, in so many bytes.
pub(crate) fn sent(events: usize, bytes: usize) {
    note(|book| {
        book.events.inc_by(events as u64);
        book.bytes.inc_by(bytes as u64);
    });
}

/// What became of one attempt to call a webhook: `delivered`, `later` or `given_up`.
pub(crate) fn push(outcome: &'static str) {
    note(|book| {
        book.pushes.get_or_create(&Pushed { outcome }).inc();
    });
}

/// Somebody named a place that we do not connect to.
pub(crate) fn egress_refused() {
    note(|book| {
        book.refusals.inc();
    });
}

/// Somebody was not let in: `missing`, `wrong` or `forbidden` credentials, `guessing`, or a `node` whose word is not good.
pub(crate) fn auth_failed(why: &'static str) {
    note(|book| book.auth_failed(why));
}

/// A model has read and written so many tokens for an agent.
pub(crate) fn tokens(agent: &str, input: u64, output: u64) {
    note(|book| {
        for (kind, count) in [("input", input), ("output", output)] {
            book.tokens
                .get_or_create(&Tokens {
                    agent: agent.to_owned(),
                    kind,
                })
                .inc_by(count);
        }
    });
}

/// Somebody met a limit.
pub(crate) fn limit(name: &'static str) {
    note(|book| book.limit(name));
}
