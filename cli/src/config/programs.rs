//! Checks that the programs of agents exist and are executable. A server starts without this check, because a program may be
//! installed later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attache::model::Secret;

use super::agents::{AgentConfig, AgentKind};
use super::error::KeyError;

/// A program with what its start depends on.
struct ProgramSpec<'a> {
    /// Key below the agent.
    key: String,
    name: String,
    folder: Option<&'a Path>,
    env: &'a BTreeMap<String, Secret>,
}

/// Finds the first program that cannot be started.
pub(super) fn find_error(agents: &[AgentConfig]) -> Option<KeyError> {
    agents.iter().find_map(|agent| {
        let programs = programs(&agent.kind);
        programs.iter().find_map(|program| {
            let problem = program.problem()?;
            Some(KeyError::new(
                format!("agents.{}.{}", agent.name, program.key),
                problem,
            ))
        })
    })
}

fn programs(kind: &AgentKind) -> Vec<ProgramSpec<'_>> {
    match kind {
        #[cfg(unix)]
        AgentKind::Command(settings) if settings.shell => Vec::new(),
        #[cfg(unix)]
        AgentKind::Command(settings) => {
            let name = match &settings.command {
                attache_agents::CommandSpec::Line(line) => {
                    let words = shell_words::split(line).unwrap_or_default();
                    words.into_iter().next()
                }
                attache_agents::CommandSpec::List(words) => words.first().cloned(),
            };
            let spec = name.map(|name| ProgramSpec {
                key: "command".to_owned(),
                name,
                folder: settings.folder.as_deref(),
                env: &settings.env,
            });
            spec.into_iter().collect()
        }
        #[cfg(unix)]
        AgentKind::Worker(settings) => {
            let words = [&settings.command, &settings.interpreter];
            let first = words.iter().find_map(|words| {
                let name = words.first()?.clone();
                Some(ProgramSpec {
                    key: "command".to_owned(),
                    name,
                    folder: settings.folder.as_deref(),
                    env: &settings.env,
                })
            });
            first.into_iter().collect()
        }
        AgentKind::Mcp(settings) => mcp_program("server.".to_owned(), &settings.server)
            .into_iter()
            .collect(),
        AgentKind::Llm(settings) => {
            let servers = settings.tools.iter().filter_map(|(name, tool)| {
                mcp_program(format!("tools.{name}.mcp."), tool.mcp.as_ref()?)
            });
            servers.collect()
        }
        AgentKind::Echo(_)
        | AgentKind::Http(_)
        | AgentKind::Demo(_)
        | AgentKind::Remote(_)
        | AgentKind::Router(_)
        | AgentKind::Script(_) => Vec::new(),
    }
}

fn mcp_program(
    prefix: String,
    settings: &attache_agents::McpServerSettings,
) -> Option<ProgramSpec<'_>> {
    Some(ProgramSpec {
        key: format!("{prefix}command"),
        name: settings.command.first()?.clone(),
        folder: settings.folder.as_deref(),
        env: &settings.env,
    })
}

impl ProgramSpec<'_> {
    /// Why the program cannot be started.
    fn problem(&self) -> Option<String> {
        let name = &self.name;
        if name.contains('/') {
            let path = match self.folder {
                Some(folder) => folder.join(name),
                None => PathBuf::from(name),
            };
            return match Access::of(&path) {
                Access::Executable => None,
                Access::NotExecutable => Some(not_executable(&path)),
                Access::Missing => Some(format!("there is no program `{}`", path.display())),
            };
        }
        let path = match self.env.get("PATH") {
            Some(path) => path.expose().to_owned().into(),
            None => std::env::var_os("PATH").unwrap_or_default(),
        };
        let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(name));
        let mut refused = None;
        let is_found = candidates.any(|path| match Access::of(&path) {
            Access::Executable => true,
            Access::NotExecutable => {
                refused.get_or_insert(path);
                false
            }
            Access::Missing => false,
        });
        match (is_found, refused) {
            (true, _) => None,
            (false, Some(path)) => Some(not_executable(&path)),
            (false, None) => Some(format!(
                "there is no program `{name}` in PATH; install it, or write its path"
            )),
        }
    }
}

fn not_executable(path: &Path) -> String {
    let path = path.display();
    format!("`{path}` is not executable; chmod +x {path}")
}

/// Whether a file can be started.
enum Access {
    Executable,
    NotExecutable,
    Missing,
}

impl Access {
    fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(file) if file.is_file() && is_executable(&file) => Self::Executable,
            Ok(_) => Self::NotExecutable,
            Err(_) => Self::Missing,
        }
    }
}

#[cfg(unix)]
fn is_executable(file: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}
