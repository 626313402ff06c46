//! Arguments of `attache docs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DocsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<DocsCommand>,

    /// Page or section to print, such as `push` or `push#requests`; without it a browser opens, or the pages are listed if
    /// the output is not a terminal
    #[arg(value_name = "PAGE")]
    pub(crate) page: Option<String>,

    /// Port of the pages on 127.0.0.1 [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) port: u16,

    /// Serve the pages and print their address, but open no browser
    #[arg(long)]
    pub(crate) no_open: bool,
}

impl DocsArgs {
    /// Whether an option asks for pages over HTTP.
    pub(crate) fn serves_pages(&self) -> bool {
        self.no_open || self.port != 0
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum DocsCommand {
    /// List all pages with a summary.
    List,
    /// Search all pages, and print the best sections.
    Search {
        /// Words or a question.
        #[arg(required = true, value_name = "WORDS", allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Write the pages as a static site.
    Build {
        /// Folder of the site; it must be empty or missing.
        folder: PathBuf,
        /// URL of the published site, for sitemap.xml
        #[arg(long, value_name = "URL")]
        origin: Option<String>,
    },
}
