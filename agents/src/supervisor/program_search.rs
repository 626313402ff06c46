//! Search for a program, as the system does it at the start of a process.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Checks that the program of a command exists and is executable. Uses the `PATH` and the working directory of the command.
pub(super) fn check_program(command: &Command) -> io::Result<()> {
    let program = command.get_program();
    let folder = command.get_current_dir().unwrap_or(Path::new(""));
    if program.as_bytes().contains(&b'/') {
        return Ok(check_file(&folder.join(program))?);
    }
    let path = command.get_envs().find(|(name, _)| *name == "PATH");
    let Some(path) = path.and_then(|(_, value)| value) else {
        // The default search path of the system applies.
        return Ok(());
    };
    Ok(check_path(path, folder, program)?)
}

fn check_path(path: &OsStr, folder: &Path, program: &OsStr) -> Result<(), Errno> {
    let mut failure = Errno::NOENT;
    for entry in std::env::split_paths(path) {
        match check_file(&folder.join(entry).join(program)) {
            Ok(()) => return Ok(()),
            Err(Errno::ACCESS) => failure = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(failure)
}

fn check_file(file: &Path) -> Result<(), Errno> {
    access(file, Access::EXEC_OK)?;
    if file.is_dir() {
        return Err(Errno::ACCESS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;

    use super::check_program;

    fn check(program: &str, path: &str, folder: Option<&std::path::Path>) -> Result<(), ErrorKind> {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", path);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        check_program(&command).map_err(|error| error.kind())
    }

    #[test]
    fn d14_a_program_is_found_as_the_system_finds_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let here = folder.path();
        std::fs::create_dir(here.join("bin")).unwrap();
        std::fs::write(here.join("bin/plain"), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", here.join("bin/shell")).unwrap();
        let path = here.join("bin");
        let path = path.to_str().unwrap();
        assert_eq!(check("/bin/sh", "", None), Ok(()));
        assert_eq!(check("shell", path, None), Ok(()));
        assert_eq!(check("bin/shell", "", Some(here)), Ok(()));
        assert_eq!(check("shell", "bin", Some(here)), Ok(()));
        for (program, kind) in [
            ("missing", ErrorKind::NotFound),
            ("/bin/missing", ErrorKind::NotFound),
            ("plain", ErrorKind::PermissionDenied),
            ("/bin", ErrorKind::PermissionDenied),
        ] {
            assert_eq!(check(program, path, None), Err(kind), "{program}");
        }
    }
}
