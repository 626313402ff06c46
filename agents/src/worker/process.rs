//! One worker process: its turns, its lines, its health.

use std::collections::HashMap;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use attache::model::Object;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::launch::Launch;
use super::protocol::{self, WorkerCard, WorkerLine};
use super::settings::WorkerSettings;
use super::stderr_log::log_stderr;
use crate::command::PipeReader;
use crate::line_buffer::LineBuffer;
use crate::lock::lock;

/// Lines to a process that wait for its stdin. Turns that start wait for room.
const COMMAND_QUEUE: usize = 64;
/// Lines of a turn that wait for its log. A full queue delays the other turns of the process.
const OUTPUT_QUEUE: usize = 64;
const BUFFER_BYTES: usize = 16 * 1024;

/// A worker process, shared by its turns.
#[derive(Debug)]
pub(super) struct Worker {
    commands: mpsc::Sender<Vec<u8>>,
    turns: Mutex<Turns>,
    max_turns: usize,
    max_output: usize,
    /// Changes whenever a turn has ended.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Turns {
    next_id: u64,
    open: HashMap<u64, OpenTurn>,
    intake: Intake,
    last_pong: Instant,
    /// Bytes of output for turns that have ended.
    ignored_bytes: usize,
}

/// Whether a process receives further turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    Open,
    /// It ignored a cancel: it is replaced once its other turns have ended.
    Retired,
    /// It has ended, or is about to.
    Closed,
}

#[derive(Debug)]
enum OpenTurn {
    Running {
        outputs: mpsc::Sender<TurnOutputLine>,
        /// Bytes that the turn may still write.
        remaining: usize,
    },
    /// The task has ended, and the process has received a cancel for its turn.
    Abandoned { since: Instant },
}

/// Line of a turn.
#[derive(Debug)]
pub(super) enum TurnOutputLine {
    Output(Object),
    /// The turn wrote more than `max_output`.
    TooLarge,
}

/// A turn in a process. Dropping it before its end cancels the turn there.
#[derive(Debug)]
pub(super) struct WorkerTurn {
    worker: Arc<Worker>,
    id: u64,
    outputs: mpsc::Receiver<TurnOutputLine>,
}

/// Why a process ended.
#[derive(Debug)]
pub(super) struct WorkerEnd {
    /// For the operator's log.
    pub(super) reason: String,
    /// Turns that failed with the process.
    pub(super) lost_turns: usize,
}

impl Worker {
    fn new(
        settings: &WorkerSettings,
        changed: watch::Sender<()>,
    ) -> (Arc<Self>, mpsc::Receiver<Vec<u8>>) {
        let (commands, queue) = mpsc::channel(COMMAND_QUEUE);
        let turns = Turns {
            next_id: 1,
            open: HashMap::new(),
            intake: Intake::Open,
            last_pong: Instant::now(),
            ignored_bytes: 0,
        };
        let worker = Arc::new(Self {
            commands,
            turns: Mutex::new(turns),
            max_turns: settings.turns_per_worker,
            max_output: settings.max_output,
            changed,
        });
        (worker, queue)
    }

    /// Number of turns in the process, abandoned ones included.
    pub(super) fn load(&self) -> usize {
        lock(&self.turns).open.len()
    }

    /// Reserves room for a turn. `None` if the process is full or receives no more turns.
    pub(super) fn open_turn(self: &Arc<Self>) -> Option<WorkerTurn> {
        let mut turns = lock(&self.turns);
        if turns.intake != Intake::Open || turns.open.len() >= self.max_turns {
            return None;
        }
        let (sender, outputs) = mpsc::channel(OUTPUT_QUEUE);
        let id = turns.next_id;
        turns.next_id += 1;
        let running = OpenTurn::Running {
            outputs: sender,
            remaining: self.max_output,
        };
        turns.open.insert(id, running);
        Some(WorkerTurn {
            worker: self.clone(),
            id,
            outputs,
        })
    }

    /// Handles a line.
    ///
    /// # Errors
    /// The line is not part of the protocol; the process must be killed.
    async fn receive(&self, line: &[u8]) -> Result<(), String> {
        let invalid = |reason: &str| format!("wrote an invalid line: {reason}");
        let (turn, output) = match protocol::parse(line).map_err(invalid)? {
            WorkerLine::Hello(_) => return Err(invalid("a second hello")),
            WorkerLine::Pong => {
                lock(&self.turns).last_pong = Instant::now();
                return Ok(());
            }
            WorkerLine::Output { turn, output } => (turn, output),
        };
        let Some((outputs, event)) = self.route(turn, output, line.len())? else {
            return Ok(());
        };
        // Fails if the turn has ended meanwhile.
        let _ = outputs.send(event).await;
        Ok(())
    }

    /// Finds the receiver of an output, and accounts for its bytes.
    fn route(
        &self,
        id: u64,
        output: Object,
        length: usize,
    ) -> Result<Option<(mpsc::Sender<TurnOutputLine>, TurnOutputLine)>, String> {
        let mut turns = lock(&self.turns);
        match turns.open.get_mut(&id) {
            Some(OpenTurn::Running { outputs, remaining }) if length <= *remaining => {
                *remaining -= length;
                return Ok(Some((outputs.clone(), TurnOutputLine::Output(output))));
            }
            Some(OpenTurn::Running { outputs, .. }) => {
                return Ok(Some((outputs.clone(), TurnOutputLine::TooLarge)));
            }
            Some(OpenTurn::Abandoned { .. }) if protocol::ends_turn(&output) => {
                turns.open.remove(&id);
                self.changed.send_replace(());
            }
            Some(OpenTurn::Abandoned { .. }) | None => {}
        }
        turns.ignored_bytes += length;
        if turns.ignored_bytes > self.max_output {
            return Err("writes output for turns that have ended".to_owned());
        }
        Ok(None)
    }

    /// Removes a turn that has ended in the process, or cancels one that has not.
    fn close_turn(&self, id: u64, has_ended: bool) {
        let mut turns = lock(&self.turns);
        if has_ended {
            turns.open.remove(&id);
            turns.ignored_bytes = 0;
        } else if let Some(turn) = turns.open.get_mut(&id) {
            let since = Instant::now();
            *turn = OpenTurn::Abandoned { since };
            // A full queue means that the process does not read: the health check ends it.
            let _ = self.commands.try_send(protocol::cancel(id));
        }
        drop(turns);
        self.changed.send_replace(());
    }

    /// Refuses further turns and fails the open ones. Returns their number.
    fn close(&self) -> usize {
        let mut turns = lock(&self.turns);
        turns.intake = Intake::Closed;
        let open = std::mem::take(&mut turns.open);
        open.values()
            .filter(|turn| matches!(turn, OpenTurn::Running { .. }))
            .count()
    }

    /// Returns when the process must be killed, with the reason.
    async fn watch_health(&self, settings: &WorkerSettings) -> String {
        let period = (settings.health_timeout / 3).min(settings.cancel_timeout);
        let period = period.max(Duration::from_millis(10));
        loop {
            tokio::time::sleep(period).await;
            // A full queue means that the process does not read; then no pong arrives either.
            let _ = self.commands.try_send(protocol::ping());
            if let Some(reason) = self.find_fault(settings) {
                return reason;
            }
        }
    }

    fn find_fault(&self, settings: &WorkerSettings) -> Option<String> {
        let mut turns = lock(&self.turns);
        if turns.last_pong.elapsed() > settings.health_timeout {
            let limit = settings.health_timeout;
            return Some(format!(
                "did not answer a ping for {limit:?} (health_timeout); does the code block the event loop?"
            ));
        }
        let ignores_cancel = turns.open.values().any(|turn| match turn {
            OpenTurn::Abandoned { since } => since.elapsed() > settings.cancel_timeout,
            OpenTurn::Running { .. } => false,
        });
        if ignores_cancel {
            turns.intake = Intake::Retired;
        }
        let is_idle = !turns
            .open
            .values()
            .any(|turn| matches!(turn, OpenTurn::Running { .. }));
        (turns.intake == Intake::Retired && is_idle)
            .then(|| "ignored the cancel of a turn".to_owned())
    }
}

impl WorkerTurn {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Sends a line to the process. Does nothing if the process has ended: [`next`](Self::next) then returns `None`.
    pub(super) async fn send(&self, line: Vec<u8>) {
        let _ = self.worker.commands.send(line).await;
    }

    /// Tells the process to cancel the turn.
    pub(super) async fn cancel(&self) {
        self.send(protocol::cancel(self.id)).await;
    }

    /// Next output; `None` if the process has ended.
    pub(super) async fn next(&mut self) -> Option<TurnOutputLine> {
        self.outputs.recv().await
    }

    /// Records that the process has ended the turn.
    pub(super) fn end(self) {
        self.worker.close_turn(self.id, true);
    }
}

impl Drop for WorkerTurn {
    /// Cancels the turn in the process, unless it has ended.
    fn drop(&mut self) {
        self.worker.close_turn(self.id, false);
    }
}

/// Runs a process until it ends or `stop` is cancelled. Calls `ready` when it has introduced itself.
///
/// # Errors
/// The process cannot be started.
pub(super) async fn run(
    launch: &Launch,
    settings: &WorkerSettings,
    changed: watch::Sender<()>,
    stop: &CancellationToken,
    ready: impl FnOnce(Arc<Worker>, WorkerCard) + Send,
) -> io::Result<WorkerEnd> {
    let (mut process, pipes) = launch.start(settings)?;
    let (worker, commands) = Worker::new(settings, changed);
    let exited = CancellationToken::new();
    let kill = CancellationToken::new();
    let fault = OnceLock::new();
    let wait = async {
        let status = process.wait_or_kill(kill.cancelled()).await;
        exited.cancel();
        status
    };
    let read = async {
        if let Err(reason) = read_lines(&worker, settings, pipes.stdout, &exited, ready).await {
            let _ = fault.set(reason);
        }
        // A process without stdout cannot answer.
        kill.cancel();
    };
    let supervise = async {
        tokio::select! {
            () = exited.cancelled() => {}
            reason = worker.watch_health(settings) => {
                let _ = fault.set(reason);
                kill.cancel();
            }
            () = stop.cancelled() => {
                let _ = tokio::time::timeout(settings.kill_after, exited.cancelled()).await;
                kill.cancel();
            }
        }
    };
    let write = write_lines(&worker, settings, pipes.stdin, commands, &exited, stop);
    let stderr = log_stderr(pipes.stderr, &exited);
    let (status, (), (), (), last_line) = tokio::join!(wait, read, supervise, write, stderr);
    let lost_turns = worker.close();
    let reason = match fault.into_inner() {
        Some(fault) => fault,
        None => describe(&status?, last_line.as_deref()),
    };
    Ok(WorkerEnd { reason, lost_turns })
}

fn describe(status: &ExitStatus, last_line: Option<&str>) -> String {
    match last_line {
        Some(line) => format!("ended with {status}: {line}"),
        None => format!("ended with {status}"),
    }
}

/// Reads stdout to its end.
async fn read_lines(
    worker: &Arc<Worker>,
    settings: &WorkerSettings,
    stdout: impl AsyncRead + Unpin,
    exited: &CancellationToken,
    ready: impl FnOnce(Arc<Worker>, WorkerCard),
) -> Result<(), String> {
    let mut lines = LineReader {
        pipe: PipeReader::new(stdout, exited),
        buffer: LineBuffer::default(),
        chunk: vec![0; BUFFER_BYTES],
        max_line: settings.max_line,
    };
    let first = tokio::time::timeout(settings.start_timeout, lines.read());
    let first = first.await.map_err(|_| {
        let limit = settings.start_timeout;
        format!("wrote no hello within {limit:?} (start_timeout)")
    })??;
    let Some(first) = first else { return Ok(()) };
    let mut rest = first.split(|byte| *byte == b'\n');
    let card = introduce(rest.next().unwrap_or_default())?;
    lock(&worker.turns).last_pong = Instant::now();
    ready(worker.clone(), card);
    for line in rest.filter(|line| !line.is_empty()) {
        worker.receive(line).await?;
    }
    while let Some(chunk) = lines.read().await? {
        for line in chunk.split(|byte| *byte == b'\n') {
            if !line.trim_ascii().is_empty() {
                worker.receive(line).await?;
            }
        }
    }
    Ok(())
}

/// Reads the first line of a process.
fn introduce(line: &[u8]) -> Result<WorkerCard, String> {
    let invalid = |reason: &str| {
        format!(
            "its first line is not a hello: {reason}; does the program speak the worker protocol?"
        )
    };
    let WorkerLine::Hello(hello) = protocol::parse(line).map_err(invalid)? else {
        return Err(invalid("another line"));
    };
    if let Some(error) = hello.error {
        return Err(error);
    }
    if hello.protocol != protocol::PROTOCOL {
        return Err(format!(
            "speaks version {} of the worker protocol; this server speaks {}",
            hello.protocol,
            protocol::PROTOCOL
        ));
    }
    Ok(hello.card)
}

/// Reader of complete lines with a limit on their length.
struct LineReader<'a, P> {
    pipe: PipeReader<'a, P>,
    buffer: LineBuffer,
    chunk: Vec<u8>,
    max_line: usize,
}

impl<P: AsyncRead + Unpin> LineReader<'_, P> {
    /// Returns at least one complete line; `None` at the end of the pipe.
    async fn read(&mut self) -> Result<Option<Vec<u8>>, String> {
        while let Some(bytes) = self.pipe.read(&mut self.chunk).await {
            let lines = self.buffer.push(bytes);
            if self.buffer.partial_len() > self.max_line {
                let limit = self.max_line;
                return Err(format!(
                    "wrote a line of more than {limit} bytes (max_line)"
                ));
            }
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
        }
        Ok(None)
    }
}

/// Writes the queued lines. Closes stdin when `stop` is cancelled.
async fn write_lines(
    worker: &Worker,
    settings: &WorkerSettings,
    mut stdin: ChildStdin,
    mut commands: mpsc::Receiver<Vec<u8>>,
    exited: &CancellationToken,
    stop: &CancellationToken,
) {
    let write = async {
        let hello = protocol::hello(settings.max_line, worker.max_turns);
        stdin.write_all(&hello).await?;
        while let Some(line) = commands.recv().await {
            stdin.write_all(&line).await?;
        }
        io::Result::Ok(())
    };
    tokio::select! {
        // A broken pipe: the process has closed its stdin and ends, or answers no ping.
        _ = write => {}
        () = stop.cancelled() => {}
        () = exited.cancelled() => {}
    }
}
