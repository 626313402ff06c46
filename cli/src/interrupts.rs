//! Signals that end the program.

use std::io;

/// Exit code after SIGINT: 128 plus the signal number.
pub(crate) const INTERRUPTED: u8 = 130;
/// Exit code after SIGTERM.
#[cfg(unix)]
const TERMINATED: u8 = 143;

/// SIGINT and SIGTERM, received from the moment of creation.
#[cfg(unix)]
pub(crate) struct Interrupts([tokio::signal::unix::Signal; 2]);

#[cfg(unix)]
impl Interrupts {
    pub(crate) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ]))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        self.exit_code().await;
    }

    /// Waits for the next signal, and returns its exit code.
    pub(crate) async fn exit_code(&mut self) -> u8 {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => INTERRUPTED,
            _ = terminate.recv() => TERMINATED,
        }
    }

    /// Waits for the next SIGINT.
    pub(crate) async fn interrupted(&mut self) {
        let [interrupt, _] = &mut self.0;
        interrupt.recv().await;
    }

    /// Waits for SIGTERM, and returns its exit code.
    pub(crate) async fn terminated(&mut self) -> u8 {
        let [_, terminate] = &mut self.0;
        terminate.recv().await;
        TERMINATED
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub(crate) struct Interrupts;

#[cfg(not(unix))]
impl Interrupts {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        self.exit_code().await;
    }

    /// Waits for the next signal, and returns its exit code.
    pub(crate) async fn exit_code(&mut self) -> u8 {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
        INTERRUPTED
    }

    /// Waits for the next Ctrl-C.
    pub(crate) async fn interrupted(&mut self) {
        self.exit_code().await;
    }

    /// Never returns: this platform has no such signal.
    pub(crate) async fn terminated(&mut self) -> u8 {
        std::future::pending().await
    }
}
