//! Startup banner: URLs, store, accepted credentials and example commands.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use super::{ServeSpec, example, listen};
use crate::access::{self, ReloadableAccess};
use crate::config::{Config, StoreKind};

/// Content of the banner. The addresses are set after binding.
pub(super) struct Banner {
    /// Location of the task store.
    pub(super) store_location: String,
    url: String,
    public: String,
    /// The listen address, if other machines can reach it.
    open: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    /// One-time link to the web console.
    console: Option<String>,
    /// The first is the agent at the root.
    agents: Vec<BannerAgent>,
    callers: Option<String>,
    /// Flags of every example command.
    flags: Vec<String>,
    examples: Vec<example::Example>,
}

/// An agent of the banner.
struct BannerAgent {
    /// Name in this process.
    name: String,
    /// Name on the card.
    title: String,
}

impl Banner {
    pub(super) fn new(
        spec: &ServeSpec,
        config: &Config,
        access: &ReloadableAccess,
        folder: Option<&Path>,
    ) -> Self {
        let has_store = config.store.kind != StoreKind::Null;
        let examples = spec
            .examples
            .iter()
            .filter(|one| has_store || !one.needs_tasks())
            .copied()
            .collect();
        let agent = |agent: &attache::HostedAgent| BannerAgent {
            name: agent.name().to_owned(),
            title: agent.card().name.clone(),
        };
        // The certificate may be self-signed.
        let certificate = config.server.tls_cert.iter();
        let flags = certificate
            .flat_map(|file| ["--ca".to_owned(), file.to_string_lossy().into_owned()])
            .collect();
        Self {
            store_location: String::new(),
            url: String::new(),
            public: String::new(),
            open: None,
            admin: None,
            console: None,
            agents: spec.agents.iter().map(agent).collect(),
            callers: callers(config, access, folder),
            flags,
            examples,
        }
    }

    /// Sets the URLs and the bound address.
    pub(super) fn set_address(&mut self, url: String, public: String, address: SocketAddr) {
        self.open = (!listen::are_loopback(&[address])).then_some(address);
        self.url = url;
        self.public = public;
    }

    /// Sets the address of the admin API, and a link to the console.
    #[cfg(unix)]
    pub(super) fn set_admin_address(
        &mut self,
        address: Option<SocketAddr>,
        console: Option<String>,
    ) {
        self.admin = address;
        self.console = console;
    }

    /// Returns the title of the agent at the root.
    pub(super) fn root_title(&self) -> String {
        let root = self.agents.first();
        root.map_or_else(String::new, |agent| agent.title.clone())
    }

    /// Prints the banner. Scripts wait for the first line.
    pub(super) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "Listening on {}", self.url)?;
        if self.public != self.url {
            writeln!(out, "Public: {}", self.public)?;
        }
        if let Some(address) = self.open {
            writeln!(out, "Reachable from other machines: {address}")?;
        }
        writeln!(out, "Card: {}", example::card_url(&self.url))?;
        writeln!(out, "Tasks: {}", self.store_location)?;
        self.admin
            .map_or(Ok(()), |address| writeln!(out, "Admin API: {address}"))?;
        self.callers
            .as_ref()
            .map_or(Ok(()), |callers| writeln!(out, "Callers: {callers}"))?;
        if self.agents.len() > 1 {
            for BannerAgent { name, title } in &self.agents {
                let reference = format!("{}#{title}", self.url);
                let reference = shell_words::quote(&reference);
                writeln!(
                    out,
                    "Agent {name}: {}agents/{name}/ (-a {reference})",
                    self.url
                )?;
            }
        }
        // Over TLS clients need the name in the certificate.
        let url = if self.url.starts_with("https:") {
            &self.public
        } else {
            &self.url
        };
        for example in &self.examples {
            writeln!(out, "{}:", example.about())?;
            writeln!(out, "  {}", example.command(url, &self.flags))?;
        }
        writeln!(out, "Stop with Ctrl-C.")?;
        if let Some(link) = &self.console {
            writeln!(
                out,
                "Console: {link} (once, within 60 s; another: attache console)"
            )?;
        }
        out.flush()
    }
}

/// Describes the accepted callers; `None` if the server does not authenticate.
fn callers(config: &Config, access: &ReloadableAccess, folder: Option<&Path>) -> Option<String> {
    let (accepted, is_usable) = access.accepted_credentials(config);
    let credentials = accepted.join(" or ");
    match (accepted.is_empty(), config.server.allow_anonymous) {
        (true, _) => None,
        (false, true) => Some(format!("anonymous, or identified by {credentials}")),
        (false, false) if is_usable => Some(format!("with {credentials}")),
        (false, false) => Some(format!(
            "none, because there are no keys; create one: {}",
            access::add_key_command(folder, "")
        )),
    }
}
