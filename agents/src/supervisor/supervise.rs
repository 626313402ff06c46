//! Main function of the supervising process.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, Signal, WaitStatus, getppid, kill_process};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use super::descendants::Descendants;
use super::exit_status::exit_like;
use super::server_watch::ServerWatch;

/// Option with the path of the lock file.
pub(super) const LOCK_OPTION: &str = "--lock";

/// Signals that the server or the program may send to the process group. They are for the program.
const GROUP_SIGNALS: [i32; 7] = [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Exit code of failures other than those of the start of the program.
const SUPERVISION_FAILED: u8 = 125;
/// Exit code of a program that cannot be started.
const START_FAILED: u8 = 126;
/// Exit code of a program that does not exist.
const NOT_FOUND: u8 = 127;

/// Runs a program until it ends, and kills it with all its descendants when the server ends.
///
/// This is the main function of the process that a [`Supervisor`](super::Supervisor) starts: call it before anything else,
/// with the arguments after those of the supervisor. Returns the exit code of the program. If a signal killed the program,
/// the same signal kills this process. Descendants of the program do not outlive it.
///
/// The exit code is 125, 126 or 127 if the program cannot be supervised, started or found; stderr has the reason.
pub fn supervise(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match SuperviseArgs::parse(args).and_then(run) {
        Ok(status) => exit_like(status),
        Err(error) => {
            // Without a reader of stderr the server has ended.
            let _ = writeln!(io::stderr(), "supervisor: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Arguments of the supervising process: `[--lock FILE] -- PROGRAM ARGS…`.
struct SuperviseArgs {
    lock_file: Option<PathBuf>,
    program: OsString,
    program_args: Vec<OsString>,
}

enum SuperviseError {
    Usage,
    Lock(PathBuf, io::Error),
    ServerEnded,
    Start(OsString, io::Error),
    System(io::Error),
}

fn run(args: SuperviseArgs) -> Result<WaitStatus, SuperviseError> {
    let mut group_signals = GroupSignals::handle()?;
    Descendants::adopt_orphans();
    // Locked before the server is checked: if the server has ended, its successor may own the lock already.
    let _lock = args.lock_file.map(lock_shared).transpose()?;
    let server = ServerWatch::new()?;
    if server.has_ended()? {
        return Err(SuperviseError::ServerEnded);
    }
    let descendants = Arc::new(Descendants::default());
    let watched = descendants.clone();
    thread::Builder::new().spawn(move || {
        // If the watch fails, the program must not run without it.
        let _ = server.wait();
        watched.kill();
        // A thread that ends would race with the list of threads from which `Descendants` collects children.
        loop {
            thread::park();
        }
    })?;
    let mut command = Command::new(&args.program);
    command.args(&args.program_args);
    // The program receives those that arrive from here on by itself.
    let early_signals = group_signals.received_from_server();
    let started = descendants.start(&mut command);
    let started = started.map_err(|error| SuperviseError::Start(args.program, error))?;
    let program = started.ok_or(SuperviseError::ServerEnded)?;
    // Such as SIGTERM of a cancel right after the start.
    for signal in early_signals {
        let _ = kill_process(program, signal);
    }
    // Without it the server sees a closed pipe only when the program ends.
    let _ = close_pipes();
    Ok(descendants.wait_for(program)?)
}

/// Signals to the process group, with handlers that only record them. They must not be ignored: the program would inherit
/// that, whereas handlers end with `exec`.
struct GroupSignals {
    received: SignalsInfo<WithOrigin>,
    server: Option<Pid>,
}

impl GroupSignals {
    fn handle() -> io::Result<Self> {
        Ok(Self {
            received: SignalsInfo::new(GROUP_SIGNALS)?,
            server: getppid(),
        })
    }

    /// Returns the signals of the server that have arrived.
    fn received_from_server(&mut self) -> Vec<Signal> {
        let server = self.server;
        let sent_by_server = self.received.pending().filter(|received| {
            let sender = received.process.as_ref();
            let sender = sender.and_then(|sender| Pid::from_raw(sender.pid));
            sender.is_some() && sender == server
        });
        sent_by_server
            .filter_map(|received| Signal::from_named_raw(received.signal))
            .collect()
    }
}

/// Locks the file, and creates it again if it was deleted. Locks its folder too: that lock survives the deletion.
fn lock_shared(path: PathBuf) -> Result<[File; 2], SuperviseError> {
    let mut options = File::options();
    options.read(true).append(true).create(true).mode(0o600);
    let locked = || {
        let file = options.open(&path)?;
        file.lock_shared()?;
        let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
        folder.lock_shared()?;
        Ok([file, folder])
    };
    locked().map_err(|error| SuperviseError::Lock(path.clone(), error))
}

/// Closes stdin and stdout of this process, so that the server sees when the program closes them.
fn close_pipes() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

impl SuperviseArgs {
    fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, SuperviseError> {
        let mut args = args.into_iter();
        let mut lock_file = None;
        loop {
            let option = args.next().ok_or(SuperviseError::Usage)?;
            if option == "--" {
                break;
            }
            if option != LOCK_OPTION {
                return Err(SuperviseError::Usage);
            }
            lock_file = Some(args.next().ok_or(SuperviseError::Usage)?.into());
        }
        Ok(Self {
            lock_file,
            program: args.next().ok_or(SuperviseError::Usage)?,
            program_args: args.collect(),
        })
    }
}

impl SuperviseError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage | Self::Lock(..) | Self::ServerEnded | Self::System(_) => {
                SUPERVISION_FAILED
            }
            Self::Start(_, error) if error.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            Self::Start(..) => START_FAILED,
        }
    }
}

impl From<io::Error> for SuperviseError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for SuperviseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage => write!(f, "expected [{LOCK_OPTION} FILE] -- PROGRAM ARGS"),
            Self::Lock(file, error) => write!(f, "cannot lock {}: {error}", file.display()),
            Self::ServerEnded => f.write_str("the server has ended"),
            Self::Start(program, error) => {
                write!(f, "cannot start {}: {error}", program.display())
            }
            Self::System(error) => write!(f, "cannot supervise the program: {error}"),
        }
    }
}
