//! The pages as documents of an MCP server.

use attache_agents::{Document, DocumentSection, Documents};

use super::pages;
use super::search::Index;

/// The embedded pages with their search index.
#[derive(Debug)]
pub(crate) struct DocsPages {
    index: Index,
}

impl DocsPages {
    pub(crate) fn new() -> Self {
        Self {
            index: Index::build(),
        }
    }
}

impl Documents for DocsPages {
    fn instructions(&self) -> String {
        "The docs_ tools read the documentation of attache, a server, client and command line for the Agent2Agent (A2A) \
         protocol. Search first, then read the page."
            .to_owned()
    }

    fn list(&self) -> Vec<Document> {
        let pages = pages::all().map(|page| Document {
            path: page.path.to_owned(),
            title: page.title.to_owned(),
            summary: page.summary.to_owned(),
        });
        pages.collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        pages::find_section(path).map(|section| section.markdown.to_owned())
    }

    fn search(&self, query: &str, limit: usize) -> Vec<DocumentSection> {
        let found = self.index.search(query, limit).into_iter();
        let sections = found.map(|section| DocumentSection {
            path: section.address(),
            heading: section.label(),
            excerpt: section.passage(query),
        });
        sections.collect()
    }
}
