//! What is said when a server begins to serve: where it is, who may come, and what to try.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use super::{ServeSpec, example, listen};
use crate::access::{self, ReloadableAccess};
use crate::config::{Config, StoreKind};

/// What is known before anybody can come, and where that turned out to be.
pub(super) struct Banner {
    /// Where tasks are kept.
    pub(super) store_location: String,
    url: String,
    public: String,
    /// The address that others reach, if they do.
    open: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    /// The agents by their names in this process and on their cards; the first is the one at the root.
    agents: Vec<(String, String)>,
    callers: Option<String>,
    /// What every command needs besides.
    flags: Vec<String>,
    examples: Vec<example::Example>,
}

impl Banner {
    pub(super) fn new(
        serving: &ServeSpec,
        config: &Config,
        access: &ReloadableAccess,
        folder: Option<&Path>,
    ) -> Self {
        let keeps = config.store.kind != StoreKind::Null;
        let examples = serving
            .examples
            .iter()
            .filter(|one| keeps || !one.needs_tasks())
            .copied()
            .collect();
        let names =
            |agent: &attache::HostedAgent| (agent.name().to_owned(), agent.card().name.clone());
        // It may be one that nobody else vouches for.
        let vouched = config.server.tls_cert.iter();
        let flags = vouched
            .flat_map(|file| ["--ca".to_owned(), file.to_string_lossy().into_owned()])
            .collect();
        Self {
            store_location: String::new(),
            url: String::new(),
            public: String::new(),
            open: None,
            admin: None,
            agents: serving.agents.iter().map(names).collect(),
            callers: callers(config, access, folder),
            flags,
            examples,
        }
    }

    /// Where it is.
    pub(super) fn set_address(&mut self, url: String, public: String, address: SocketAddr) {
        self.open = (!listen::are_loopback(&[address])).then_some(address);
        (self.url, self.public) = (url, public);
    }

    /// Where operators come.
    #[cfg(unix)]
    pub(super) fn set_admin_address(&mut self, address: Option<SocketAddr>) {
        self.admin = address;
    }

    /// The first line is for scripts, which wait for it.
    pub(super) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "Listening on {}", self.url)?;
        if self.public != self.url {
            writeln!(out, "Public: {}", self.public)?;
        }
        if let Some(address) = self.open {
            writeln!(out, "Others reach it: {address}")?;
        }
        writeln!(out, "Card: {}", example::card_url(&self.url))?;
        writeln!(out, "Tasks: {}", self.store_location)?;
        self.admin
            .map_or(Ok(()), |address| writeln!(out, "Operators: {address}"))?;
        self.callers
            .as_ref()
            .map_or(Ok(()), |callers| writeln!(out, "Callers: {callers}"))?;
        if self.agents.len() > 1 {
            for (name, title) in &self.agents {
                let reference = format!("{}#{title}", self.url);
                let reference = shell_words::quote(&reference);
                writeln!(
                    out,
                    "Agent {name}: {}agents/{name}/ (-a {reference})",
                    self.url
                )?;
            }
        }
        // Over TLS it is called by the name that its certificate has.
        let called = if self.url.starts_with("https:") {
            &self.public
        } else {
            &self.url
        };
        for attempt in &self.examples {
            writeln!(out, "{}:", attempt.about())?;
            writeln!(out, "  {}", attempt.command(called, &self.flags))?;
        }
        writeln!(out, "Stop with Ctrl-C.")?;
        out.flush()
    }
}

/// Who may come, where anybody is asked.
fn callers(config: &Config, access: &ReloadableAccess, folder: Option<&Path>) -> Option<String> {
    let (ways, lets_in) = access.accepted_credentials(config);
    let shown = ways.join(" or ");
    match (ways.is_empty(), config.server.allow_anonymous) {
        (true, _) => None,
        (false, true) => Some(format!("anybody; those are known who show {shown}")),
        (false, false) if lets_in => Some(format!("those who show {shown}")),
        (false, false) => Some(format!(
            "nobody, since there are no keys; make one: {}",
            access::add_key_command(folder, "")
        )),
    }
}
