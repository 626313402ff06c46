//! How the program is asked to end.

use std::io;

const INTERRUPTED: u8 = 130;

/// Ctrl-C, and the system asking the program to end. Heard from the moment this is made.
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

    pub(crate) async fn next(&mut self) {
        self.exit_code().await;
    }

    /// The exit code of a program that was ended in this way.
    pub(crate) async fn exit_code(&mut self) -> u8 {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => INTERRUPTED,
            _ = terminate.recv() => 143,
        }
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

    pub(crate) async fn next(&mut self) {
        self.exit_code().await;
    }

    /// The exit code of a program that was ended in this way.
    pub(crate) async fn exit_code(&mut self) -> u8 {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
        INTERRUPTED
    }
}
