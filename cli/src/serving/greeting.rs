//! What is said when a server begins to serve: where it is, who may come, and what to try.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use super::{Serving, listen, tries};
use crate::access::{self, Reloading};
use crate::config::{Config, StoreKind};

/// What is known before anybody can come, and where that turned out to be.
pub(super) struct Greeting {
    /// Where tasks are kept.
    pub(super) place: String,
    url: String,
    public: String,
    /// The address that others reach, if they do.
    open: Option<SocketAddr>,
    operators: Option<SocketAddr>,
    /// The agents by their names in this process and on their cards; the first is the one at the root.
    agents: Vec<(String, String)>,
    callers: Option<String>,
    /// What every command needs besides.
    flags: Vec<String>,
    tries: Vec<tries::Try>,
}

impl Greeting {
    pub(super) fn new(
        serving: &Serving,
        config: &Config,
        access: &Reloading,
        folder: Option<&Path>,
    ) -> Self {
        let keeps = config.store.kind != StoreKind::Null;
        let tries = serving
            .tries
            .iter()
            .filter(|one| keeps || !one.needs_tasks())
            .copied()
            .collect();
        let names = |agent: &attache::Served| (agent.name().to_owned(), agent.card().name.clone());
        // It may be one that nobody else vouches for.
        let vouched = config.server.tls_cert.iter();
        let flags = vouched
            .flat_map(|file| ["--ca".to_owned(), file.to_string_lossy().into_owned()])
            .collect();
        Self {
            place: String::new(),
            url: String::new(),
            public: String::new(),
            open: None,
            operators: None,
            agents: serving.agents.iter().map(names).collect(),
            callers: callers(config, access, folder),
            flags,
            tries,
        }
    }

    /// Where it is.
    pub(super) fn at(&mut self, url: String, public: String, address: SocketAddr) {
        self.open = (!listen::are_private(&[address])).then_some(address);
        (self.url, self.public) = (url, public);
    }

    /// Where operators come.
    #[cfg(unix)]
    pub(super) fn operators(&mut self, address: Option<SocketAddr>) {
        self.operators = address;
    }

    /// The first line is for scripts, which wait for it.
    pub(super) fn say(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "Listening on {}", self.url)?;
        if self.public != self.url {
            writeln!(out, "Public: {}", self.public)?;
        }
        if let Some(address) = self.open {
            writeln!(out, "Others reach it: {address}")?;
        }
        writeln!(out, "Card: {}", tries::card(&self.url))?;
        writeln!(out, "Tasks: {}", self.place)?;
        self.operators
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
        for attempt in &self.tries {
            writeln!(out, "{}:", attempt.about())?;
            writeln!(out, "  {}", attempt.command(called, &self.flags))?;
        }
        writeln!(out, "Stop with Ctrl-C.")?;
        out.flush()
    }
}

/// Who may come, where anybody is asked.
fn callers(config: &Config, access: &Reloading, folder: Option<&Path>) -> Option<String> {
    let (ways, lets_in) = access.ways(config);
    let shown = ways.join(" or ");
    match (ways.is_empty(), config.server.allow_anonymous) {
        (true, _) => None,
        (false, true) => Some(format!("anybody; those are known who show {shown}")),
        (false, false) if lets_in => Some(format!("those who show {shown}")),
        (false, false) => Some(format!(
            "nobody, since there are no keys; make one: {}",
            access::add_a_key(folder, "")
        )),
    }
}
