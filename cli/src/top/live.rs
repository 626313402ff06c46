//! The live view: redraws the terminal until a key ends it.

use std::io::{self, Read, Write};
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{AdminEndpoint, ScreenSize, ServerOverview, ServerSample, lines};
use crate::interrupts::Interrupts;
use crate::terminal::{Paint, TerminalStyle};

/// Selects the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the cursor and the previous screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves the cursor to the first line.
const HOME: &str = "\x1b[H";
/// Erases to the end of the line.
const ERASE_LINE: &str = "\x1b[K";
/// Erases to the end of the screen.
const ERASE_BELOW: &str = "\x1b[J";
/// Rows of a terminal that does not tell its own.
const DEFAULT_ROWS: u16 = 24;
/// Keys that may wait.
const KEY_QUEUE: usize = 64;

/// A terminal in raw mode. Dropping it restores the terminal.
struct RawTerminal {
    previous: Termios,
}

impl RawTerminal {
    fn enter() -> io::Result<Self> {
        let previous = tcgetattr(io::stdin())?;
        let mut raw = previous.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let terminal = Self { previous };
        write_all(ENTER)?;
        Ok(terminal)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = write_all(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.previous);
    }
}

fn write_all(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// What the view shows.
struct LiveView<'a> {
    endpoint: &'a AdminEndpoint,
    before: Option<ServerSample>,
    sample: ServerSample,
    /// Why the last sample could not be read.
    problem: Option<String>,
    is_paused: bool,
}

impl LiveView<'_> {
    async fn refresh(&mut self) {
        match ServerSample::read(self.endpoint).await {
            Ok(sample) => {
                self.before = Some(std::mem::replace(&mut self.sample, sample));
                self.problem = None;
            }
            Err(error) => self.problem = Some(format!("{error:#}")),
        }
    }

    fn draw(&self) -> io::Result<()> {
        let rows = tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_row);
        let rows = usize::from(if rows == 0 { DEFAULT_ROWS } else { rows });
        let style = TerminalStyle::for_stdout();
        let view = ServerOverview::new(self.endpoint, self.before.as_ref(), &self.sample);
        let size = ScreenSize {
            style,
            rows: Some(rows),
        };
        let mut shown = lines(&view, size);
        shown.truncate(rows.saturating_sub(1));
        shown.resize(rows.saturating_sub(1), String::new());
        let mut text = HOME.to_owned();
        for line in shown {
            text += &format!("{line}{ERASE_LINE}\r\n");
        }
        text += &format!("{}{ERASE_LINE}{ERASE_BELOW}", self.footer(style));
        write_all(&text)
    }

    fn footer(&self, style: TerminalStyle) -> String {
        let (text, paint) = match &self.problem {
            Some(problem) => (format!("{problem} · q quits"), Paint::Red),
            None if self.is_paused => (
                "paused · space continues · q quits".to_owned(),
                Paint::Yellow,
            ),
            None => (
                "q quits · space pauses · r refreshes".to_owned(),
                Paint::Dim,
            ),
        };
        // One column less: a character in the last one would scroll some terminals.
        let text = crate::terminal::shorten(&crate::output::line(&text), style.columns - 1);
        style.paint(paint, &text)
    }
}

/// Redraws the view at each interval until `q`, Ctrl-C or SIGTERM.
///
/// # Errors
/// No server is running, or the terminal does not work.
pub(crate) async fn show(endpoint: &AdminEndpoint, interval: Duration) -> anyhow::Result<()> {
    let sample = ServerSample::read(endpoint).await?;
    let mut view = LiveView {
        endpoint,
        before: None,
        sample,
        problem: None,
        is_paused: false,
    };
    let mut interrupts = Interrupts::new()?;
    let mut resized = signal(SignalKind::window_change())?;
    let mut keys = read_keys();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.reset();
    let _terminal = RawTerminal::enter()?;
    loop {
        view.draw()?;
        tokio::select! {
            () = interrupts.next() => return Ok(()),
            _ = resized.recv() => {}
            _ = ticks.tick(), if !view.is_paused => view.refresh().await,
            key = keys.recv() => match key {
                // Without raw signals Ctrl-C is a character.
                None | Some(b'q' | b'Q' | 0x03 | 0x04) => return Ok(()),
                Some(b' ') => view.is_paused = !view.is_paused,
                Some(b'r' | b'R') => view.refresh().await,
                Some(_) => {}
            },
        }
    }
}

/// Reads keys on a thread: a read of the terminal cannot be canceled. The thread ends with the process.
fn read_keys() -> mpsc::Receiver<u8> {
    let (send, keys) = mpsc::channel(KEY_QUEUE);
    std::thread::spawn(move || {
        for byte in io::stdin().lock().bytes().map_while(Result::ok) {
            if send.blocking_send(byte).is_err() {
                break;
            }
        }
    });
    keys
}
