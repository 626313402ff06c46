//! A pseudo-terminal with a program in it: keys go in, the screen comes out.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::harness::DEADLINE;

/// A program on a pseudo-terminal. It is killed with the test.
pub(crate) struct Pty {
    master: File,
    program: Child,
    chunks: Receiver<Vec<u8>>,
    /// Everything printed so far.
    bytes: Vec<u8>,
    /// End of what [`wait_for`](Self::wait_for) has matched.
    matched: usize,
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Pty {
    /// Starts a program with the terminal as its controlling one.
    pub(crate) fn start(command: &Command, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .open(OsStr::from_bytes(name.as_bytes()))
            .unwrap();
        tcsetwinsize(&master, size(columns)).unwrap();
        // `setsid` makes the terminal of stdin the controlling one, so that keys send signals.
        let mut wrapped = Command::new("setsid");
        wrapped
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        let program = wrapped
            .env("TERM", "xterm-256color")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave)
            .spawn()
            .expect("setsid of util-linux");
        let master = File::from(master);
        let mut screen = master.try_clone().unwrap();
        let (send, chunks) = sync_channel(1024);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of the program is an error of the terminal on Linux.
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            master,
            program,
            chunks,
            bytes: Vec::new(),
            matched: 0,
        }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the width, which the program is notified of.
    pub(crate) fn resize(&self, columns: u16) {
        tcsetwinsize(&self.master, size(columns)).unwrap();
    }

    /// Waits until a text without escape sequences is printed, and returns what was printed before it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let screen = self.screen();
            let new = &screen[self.matched..];
            if let Some(found) = new.find(text) {
                let before = new[..found].to_owned();
                self.matched += found + text.len();
                return before;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => self.bytes.extend(chunk),
                Err(error) => panic!("{error}: no {text:?} in {new:?}"),
            }
        }
    }

    /// Waits for the end of the program. Returns the unmatched rest of the screen.
    pub(crate) fn finish(mut self) -> (ExitStatus, String) {
        loop {
            match self.chunks.recv_timeout(DEADLINE) {
                Ok(chunk) => self.bytes.extend(chunk),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it did not end: {:?}", self.screen()),
            }
        }
        let status = self.program.wait().unwrap();
        (status, self.screen()[self.matched..].to_owned())
    }

    /// Everything printed so far, with escape sequences.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Everything printed so far, without escape sequences and carriage returns. Redrawn lines follow each other.
    fn screen(&self) -> String {
        let text = self.raw();
        let mut shown = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                    let is_final = |c: &char| ('\u{40}'..='\u{7e}').contains(c);
                    while chars.next_if(|c| !is_final(c)).is_some() {}
                    chars.next();
                }
                '\r' | '\u{1b}' => {}
                c => shown.push(c),
            }
        }
        shown
    }
}

fn size(columns: u16) -> Winsize {
    Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
