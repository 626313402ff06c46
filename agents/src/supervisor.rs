//! Supervision of started programs: a program and its descendants end with the server, however the server ends.
//!
//! [`Supervisor`] is the server's side: it starts programs below a supervising process. [`supervise`] is the main function
//! of that process.

#[cfg(unix)]
mod descendants;
#[cfg(unix)]
mod exit_status;
#[cfg(unix)]
mod program_search;
#[cfg(unix)]
mod server_watch;
#[cfg(unix)]
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;

#[cfg(unix)]
pub(crate) use server_watch::END_SIGNAL;
#[cfg(unix)]
pub use supervise::supervise;

/// Program that supervises the processes of agents.
///
/// The program is usually the running one. It calls [`supervise`] with the arguments after those given here, before it
/// does anything else:
///
/// ```no_run
/// # #[cfg(unix)]
/// fn main() -> std::process::ExitCode {
///     let mut args = std::env::args_os().skip(1);
///     if args.next().is_some_and(|verb| verb == "supervise") {
///         return attache_agents::supervise(args);
///     }
///     let supervisor = attache_agents::Supervisor::new("/proc/self/exe", ["supervise"]);
///     // Pass it to the settings of the agents, and serve them.
/// #   drop(supervisor);
///     std::process::ExitCode::SUCCESS
/// }
/// # #[cfg(not(unix))]
/// # fn main() {}
/// ```
///
/// Without a supervisor, programs survive a server that is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    program: PathBuf,
    args: Vec<OsString>,
    lock_file: Option<PathBuf>,
}

impl Supervisor {
    /// Creates a supervisor from a program and the arguments that make it call [`supervise`].
    pub fn new(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            lock_file: None,
        }
    }

    /// Makes every supervising process hold a shared `flock` on a file and its folder until its program and all descendants
    /// have ended. A server that locks both exclusively knows that no program of its predecessor runs, even if the file was
    /// deleted meanwhile.
    #[must_use]
    pub fn lock_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.lock_file = Some(file.into());
        self
    }

    /// Returns a command that runs `command` below a supervising process. `command` must have a cleared environment.
    ///
    /// # Errors
    /// The program does not exist or is not executable.
    #[cfg(unix)]
    pub(crate) fn wrap(
        &self,
        command: &std::process::Command,
    ) -> std::io::Result<tokio::process::Command> {
        // The supervising process could report the error as an exit code only.
        program_search::check_program(command)?;
        let mut supervised = tokio::process::Command::new(&self.program);
        supervised.args(&self.args);
        if let Some(file) = &self.lock_file {
            supervised.arg(supervise::LOCK_OPTION).arg(file);
        }
        let environment = command.get_envs();
        supervised
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .envs(environment.filter_map(|(name, value)| Some((name, value?))));
        if let Some(folder) = command.get_current_dir() {
            supervised.current_dir(folder);
        }
        Ok(supervised)
    }
}
