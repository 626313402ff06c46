//! Descendants of the supervising process: they are reaped, and killed when they must end.

use std::io;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_current_process_group, wait,
    waitid,
};

use crate::lock::lock;

/// File with the children of a thread.
#[cfg(target_os = "linux")]
const CHILDREN: &str = "children";

/// Descendants of this process.
///
/// On Linux this process is their subreaper: a descendant whose parent ends becomes a child of this process, even if it left
/// the process group. Killing and reaping children until none is left therefore ends every descendant.
#[derive(Default)]
pub(super) struct Descendants {
    /// Whether every descendant must end. Locked while children are reaped or killed, so that no process id is reused
    /// between its lookup and the signal.
    must_end: Mutex<bool>,
}

/// Result of a kill of all children.
enum KillResult {
    /// Number of children that the signal reached.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux lists children")
    )]
    Sent(usize),
    /// The system does not list children.
    Unsupported,
}

impl Descendants {
    /// Makes orphaned descendants children of this process.
    pub(super) fn adopt_orphans() {
        #[cfg(target_os = "linux")]
        {
            // If it fails, the program's process group still ends with the server.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
    }

    /// Starts a program in the process group of this process. Returns `None` if every descendant must end.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Option<Pid>> {
        let must_end = lock(&self.must_end);
        if *must_end {
            return Ok(None);
        }
        let id = i32::try_from(command.spawn()?.id()).ok();
        Ok(id.and_then(Pid::from_raw))
    }

    /// Kills every descendant. [`wait_for`](Self::wait_for) kills those that become children later.
    pub(super) fn kill(&self) {
        let mut must_end = lock(&self.must_end);
        *must_end = true;
        match kill_children() {
            KillResult::Sent(_) => {}
            // Ends this process as well.
            KillResult::Unsupported => {
                let _ = kill_current_process_group(Signal::KILL);
            }
        }
    }

    /// Waits until the program has ended and no descendant is left, and returns the status of the program.
    ///
    /// Descendants that this process may not kill, because they changed their user, delay nothing, except the program itself.
    pub(super) fn wait_for(&self, program: Pid) -> io::Result<WaitStatus> {
        let mut status = None;
        while wait_for_child()? {
            let mut must_end = lock(&self.must_end);
            if let Some((id, ended)) = wait(WaitOptions::NOHANG)?
                && id == program
            {
                status = Some(ended);
                *must_end = true;
            }
            if !*must_end {
                continue;
            }
            match (kill_children(), status) {
                (KillResult::Sent(0) | KillResult::Unsupported, Some(status)) => return Ok(status),
                (KillResult::Sent(_) | KillResult::Unsupported, _) => {}
            }
        }
        status.ok_or_else(|| io::Error::from(Errno::CHILD))
    }
}

/// Waits until a child has ended, without reaping it. Returns `false` if there is no child.
fn wait_for_child() -> io::Result<bool> {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(target_os = "linux")]
fn kill_children() -> KillResult {
    let Ok(children) = children() else {
        return KillResult::Unsupported;
    };
    let killed = children
        .into_iter()
        .filter(|child| rustix::process::kill_process(*child, Signal::KILL).is_ok());
    KillResult::Sent(killed.count())
}

#[cfg(not(target_os = "linux"))]
fn kill_children() -> KillResult {
    KillResult::Unsupported
}

/// Returns the children of all threads of this process. Ended children are included until they are reaped.
#[cfg(target_os = "linux")]
fn children() -> io::Result<Vec<Pid>> {
    children_of(Path::new("/proc/thread-self"), Path::new("/proc/self/task"))
}

/// Returns the children of all threads in `threads`. `own` is the folder of the calling thread.
///
/// # Errors
/// Not found: the calling thread has no list of children, because the kernel was built without `CONFIG_PROC_CHILDREN`.
#[cfg(target_os = "linux")]
fn children_of(own: &Path, threads: &Path) -> io::Result<Vec<Pid>> {
    std::fs::metadata(own.join(CHILDREN))?;
    let mut children = Vec::new();
    for thread in std::fs::read_dir(threads)? {
        let list = match std::fs::read_to_string(thread?.path().join(CHILDREN)) {
            Ok(list) => list,
            // The thread has ended. Its children belong to another thread now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let ids = list.split_ascii_whitespace();
        children.extend(ids.filter_map(|id| Pid::from_raw(id.parse().ok()?)));
    }
    Ok(children)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn d14_a_kernel_without_lists_of_children_is_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let threads = folder.path();
        let own = threads.join("1");
        fs::create_dir(&own).unwrap();
        let error = children_of(&own, threads).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        fs::write(own.join(CHILDREN), "7 8 ").unwrap();
        // A thread that has ended.
        fs::create_dir(threads.join("2")).unwrap();
        let ids: Vec<_> = children_of(&own, threads).unwrap();
        let ids: Vec<_> = ids.into_iter().map(Pid::as_raw_pid).collect();
        assert_eq!(ids, [7, 8]);
    }
}
