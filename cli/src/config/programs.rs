//! Checks that the programs of agents, their tools and hooks exist and are executable. A server starts without this check, because a program may be
//! installed later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attache::model::Secret;

use super::agents::{AgentConfig, AgentKind};
use super::error::KeyError;
use super::hooks::HooksSection;

/// A program with what its start depends on.
pub(super) struct ProgramSpec<'a> {
    /// Key below the agent or the hook.
    pub(super) key: String,
    pub(super) name: String,
    pub(super) folder: Option<&'a Path>,
    pub(super) env: Option<&'a BTreeMap<String, Secret>>,
}

/// Finds the first program of an agent or a hook that cannot be started.
pub(super) fn find_error(agents: &[AgentConfig], hooks: &HooksSection) -> Option<KeyError> {
    let of_agent = |agent: &AgentConfig| {
        let programs = programs(&agent.kind);
        let mut errors = programs.iter().filter_map(ProgramSpec::error);
        let error = errors.next()?;
        Some(error.in_section(&format!("agents.{}", agent.name)))
    };
    agents
        .iter()
        .find_map(of_agent)
        .or_else(|| find_hook_error(hooks))
}

#[cfg(unix)]
fn find_hook_error(section: &HooksSection) -> Option<KeyError> {
    let mut hooks = section.hooks.iter().enumerate();
    hooks.find_map(|(index, hook)| {
        let error = hook.program()?.error()?;
        Some(error.in_section(&format!("hooks.{index}")))
    })
}

#[cfg(not(unix))]
fn find_hook_error(_: &HooksSection) -> Option<KeyError> {
    None
}

/// The program of a command; `None` if the command is empty.
#[cfg(unix)]
pub(super) fn command_program(command: &attache_agents::CommandSpec) -> Option<String> {
    match command {
        attache_agents::CommandSpec::Line(line) => {
            let words = shell_words::split(line).unwrap_or_default();
            words.into_iter().next()
        }
        attache_agents::CommandSpec::List(words) => words.first().cloned(),
    }
}

fn programs(kind: &AgentKind) -> Vec<ProgramSpec<'_>> {
    match kind {
        #[cfg(unix)]
        AgentKind::Command(settings) if settings.shell => Vec::new(),
        #[cfg(unix)]
        AgentKind::Command(settings) => {
            let spec = command_program(&settings.command).map(|name| ProgramSpec {
                key: "command".to_owned(),
                name,
                folder: settings.folder.as_deref(),
                env: Some(&settings.env),
            });
            spec.into_iter().collect()
        }
        #[cfg(unix)]
        AgentKind::Worker(settings) => {
            let words = [
                ("command", &settings.command),
                ("interpreter", &settings.interpreter),
            ];
            let first = words.iter().find_map(|(key, words)| {
                let name = words.first()?.clone();
                Some(ProgramSpec {
                    key: (*key).to_owned(),
                    name,
                    folder: settings.folder.as_deref(),
                    env: Some(&settings.env),
                })
            });
            first.into_iter().collect()
        }
        AgentKind::Mcp(settings) => mcp_program("server.".to_owned(), &settings.server)
            .into_iter()
            .collect(),
        AgentKind::Llm(settings) => {
            let tools = settings.tools.iter();
            let tools = tools.filter_map(|(name, tool)| match &tool.mcp {
                Some(server) => mcp_program(format!("tools.{name}.mcp."), server),
                None => Some(ProgramSpec {
                    key: format!("tools.{name}.command"),
                    name: tool.command.first()?.clone(),
                    folder: None,
                    env: None,
                }),
            });
            tools.collect()
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
        env: Some(&settings.env),
    })
}

impl ProgramSpec<'_> {
    /// The error of its key, if the program cannot be started.
    fn error(&self) -> Option<KeyError> {
        Some(KeyError::new(self.key.clone(), self.problem()?))
    }

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
        let path = match self.env.and_then(|env| env.get("PATH")) {
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
