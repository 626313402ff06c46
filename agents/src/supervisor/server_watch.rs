//! Detection of the end of the server.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Signal by which the server requests the end of the program and all its descendants. Its default action ends this process,
/// which is right until the program runs.
pub(crate) const END_SIGNAL: i32 = signal_hook::consts::SIGVTALRM;

/// Watch over the server that started this process.
///
/// The server holds the only read end of the pipe behind stderr, so the pipe breaks when the server ends, however it ends.
/// On Linux the watch also has a descriptor of the server's process: a program could open the read end again, through
/// `/dev/stderr`. Elsewhere it compares the parent process once per second: not every system reports a broken pipe to a
/// process that does not write.
pub(super) struct ServerWatch {
    /// Readable after [`END_SIGNAL`].
    end_requests: UnixStream,
    #[cfg(target_os = "linux")]
    process: Option<OwnedFd>,
    #[cfg(not(target_os = "linux"))]
    parent: Option<rustix::process::Pid>,
}

impl ServerWatch {
    /// Starts to watch the parent of this process. Call it before the program runs, and [`has_ended`](Self::has_ended)
    /// next: if the pipe is intact then, the parent is the server.
    pub(super) fn new() -> io::Result<Self> {
        let (end_requests, sender) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(END_SIGNAL, sender)?;
        Ok(Self {
            end_requests,
            #[cfg(target_os = "linux")]
            process: open_parent(),
            #[cfg(not(target_os = "linux"))]
            parent: rustix::process::getppid(),
        })
    }

    /// Returns whether the server has ended, or has requested the end.
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        self.poll(Some(&Timespec::default()))
    }

    /// Blocks until the server has ended, or requests the end.
    #[cfg(target_os = "linux")]
    pub(super) fn wait(&self) -> io::Result<()> {
        while !self.poll(None)? {}
        Ok(())
    }

    /// Blocks until the server has ended, or requests the end.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn wait(&self) -> io::Result<()> {
        const INTERVAL: Timespec = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while !self.poll(Some(&INTERVAL))? && rustix::process::getppid() == self.parent {}
        Ok(())
    }

    fn poll(&self, timeout: Option<&Timespec>) -> io::Result<bool> {
        let stderr = io::stderr();
        // Linux reports a broken pipe without a flag. Darwin watches no descriptor without one.
        let mut watched = vec![
            PollFd::new(&stderr, PollFlags::HUP),
            PollFd::new(&self.end_requests, PollFlags::IN),
        ];
        #[cfg(target_os = "linux")]
        watched.extend(
            self.process
                .iter()
                .map(|process| PollFd::new(process, PollFlags::IN)),
        );
        match poll(&mut watched, timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the parent process. `None` on kernels before 5.3.
#[cfg(target_os = "linux")]
fn open_parent() -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, getppid, pidfd_open};
    let parent = getppid()?;
    let process = pidfd_open(parent, PidfdFlags::empty()).ok()?;
    // If the parent has ended meanwhile, its id may belong to another process.
    (getppid() == Some(parent)).then_some(process)
}
