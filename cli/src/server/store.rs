//! Store of a server, and the supervisor of the processes that its agents start.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use attache::Server;
use attache::store::sqlite::Options;
use attache::store::{Memory, Postgres, Sqlite};
use attache_agents::Supervisor;

use super::command_lock;
use crate::config::{Config, StoreKind};
use crate::data_dir;

/// Verb of the supervising processes.
pub(crate) const SUPERVISE_VERB: &str = "__supervise";

/// Open store of a server. No command of a previous server on this store runs.
pub(super) struct ServerStore {
    kind: OpenStore,
    /// Location, for the banner.
    pub(super) location: String,
}

enum OpenStore {
    Memory,
    Null,
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

impl ServerStore {
    /// Opens the configured store; `folder` is the default directory below the user's data directory, and `option` is how
    /// the user gives another one. Waits until the commands of a previous server have ended.
    pub(super) async fn open(folder: &str, config: &Config, option: &str) -> anyhow::Result<Self> {
        match config.store.kind {
            StoreKind::Memory => Ok(Self::memory()),
            StoreKind::Null => Ok(Self {
                kind: OpenStore::Null,
                location: "not stored: every answer is a message".to_owned(),
            }),
            StoreKind::Sqlite => Self::open_sqlite(folder, config, option).await,
            StoreKind::Postgres => Self::open_postgres(folder, config).await,
        }
    }

    /// Returns a store without a file.
    pub(super) fn memory() -> Self {
        Self {
            kind: OpenStore::Memory,
            location: "in memory, until the process ends".to_owned(),
        }
    }

    async fn open_sqlite(folder: &str, config: &Config, option: &str) -> anyhow::Result<Self> {
        let folder = data_dir::create(config.store.data_dir.as_deref(), folder)?;
        let file = folder.join("tasks.db");
        let options = Options {
            min_free_bytes: config.store.min_free as u64,
            max_readers: config.store.max_readers,
            ..Options::default()
        };
        let store = Sqlite::open(&file, options).with_context(|| {
            format!(
                "cannot store tasks in {}; use another directory: {option}",
                folder.display()
            )
        })?;
        // After the store, whose lock no other server holds: from here on only this server starts commands.
        command_lock::wait_for_commands(&folder, config.store.command_exit_timeout).await?;
        Ok(Self {
            kind: OpenStore::Sqlite(store),
            location: file.display().to_string(),
        })
    }

    /// Opens a PostgreSQL database. If it cannot be reached, the server starts nevertheless and is not ready.
    async fn open_postgres(folder: &str, config: &Config) -> anyhow::Result<Self> {
        // For the admin socket.
        data_dir::create(config.store.data_dir.as_deref(), folder)?;
        let options = config.postgres_options(&super::environment)?;
        let mut options = options.context("the store is not a PostgreSQL database")?;
        options.start_unreachable = true;
        let location = format!("{} (schema {})", options.url, options.schema);
        // The message has the cause already.
        let store = Postgres::open(options)
            .await
            .map_err(|error| anyhow!("cannot store tasks in PostgreSQL: {error}"))?;
        Ok(Self {
            kind: OpenStore::Postgres(Box::new(store)),
            location,
        })
    }

    /// Adds the store to a server.
    pub(super) fn add_to(self, server: Server) -> Server {
        match self.kind {
            OpenStore::Memory => server,
            OpenStore::Null => server.store(Memory::ephemeral()),
            OpenStore::Sqlite(store) => server.store(store),
            OpenStore::Postgres(store) => server.store(*store),
        }
    }
}

/// Returns the supervisor of a server with this default directory: the running program. The processes hold a lock beside the
/// store, if that is a file. Agents start processes on Unix only.
pub(crate) fn supervisor(folder: &str, config: &Config) -> Option<Supervisor> {
    if cfg!(not(unix)) {
        return None;
    }
    // The link leads to the running program even if an upgrade has replaced its file.
    let link = PathBuf::from("/proc/self/exe");
    let program = if link.exists() {
        link
    } else {
        std::env::current_exe().ok()?
    };
    let supervisor = Supervisor::new(program, [SUPERVISE_VERB]);
    match config.store.kind {
        // The tasks of a replica that ended are another replica's by now: nothing waits for its commands.
        StoreKind::Memory | StoreKind::Null | StoreKind::Postgres => Some(supervisor),
        StoreKind::Sqlite => {
            let folder = data_dir::locate(config.store.data_dir.as_deref(), folder)?;
            Some(supervisor.lock_file(command_lock::path(&folder)))
        }
    }
}
