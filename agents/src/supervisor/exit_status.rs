//! End of the supervising process: with the status of its program.

use std::process::ExitCode;

use rustix::process::WaitStatus;

/// Added to the number of a signal that this process cannot raise, as shells do.
const SIGNAL_OFFSET: i32 = 128;

/// Returns the exit code of the program. If a signal killed the program, the same signal kills this process.
pub(super) fn exit_like(status: WaitStatus) -> ExitCode {
    if let Some(code) = status.exit_status() {
        return exit_code(code);
    }
    let Some(signal) = status.terminating_signal() else {
        return ExitCode::FAILURE;
    };
    disable_core_dump();
    // Returns for signals that are not in its table, such as real-time signals.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    exit_code(SIGNAL_OFFSET + signal)
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Disables the core dump of this process: that of the program has been written.
fn disable_core_dump() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}
