//! Documentation in the binary: the pages of `docs/`, rendered for a terminal or a browser, and their search index.
//!
//! `docs/map.toml` lists the pages with their kind and summary. [`pages`] loads them, [`search`] indexes their sections,
//! [`terminal`] and [`html`] render one page, [`site`] renders all of them, [`server`] serves the site on loopback, and
//! [`mcp_documents`] offers the pages to MCP clients.

mod highlight;
mod html;
pub(crate) mod mcp_documents;
pub(crate) mod pages;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod reference_pages;
pub(crate) mod search;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod terminal;

#[cfg(test)]
pub(crate) use reference_pages::assert_generated;
