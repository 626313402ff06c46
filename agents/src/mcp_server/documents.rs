//! Tools that list, read and search documents.

use std::fmt;

use attache::{Error, Result};
use rmcp::model::{CallToolResult, ContentBlock};

use super::McpServer;
use super::tool_list::DocumentAction;
use super::tools::ToolArguments;

/// Maximum number of sections that a search returns.
const MAX_SECTIONS: usize = 10;

/// A collection of documents that an [`McpServer`](super::McpServer) offers.
pub trait Documents: fmt::Debug + Send + Sync {
    /// What the documents are about, for the instructions that a client receives at the handshake.
    fn instructions(&self) -> String;

    /// Returns all documents, in reading order.
    fn list(&self) -> Vec<Document>;

    /// Returns the text of the document with this path; `None` if there is none.
    fn read(&self, path: &str) -> Option<String>;

    /// Returns the best sections for a query, at most `limit`.
    fn search(&self, query: &str, limit: usize) -> Vec<DocumentSection>;
}

/// A document in a list.
#[derive(Debug, Clone)]
pub struct Document {
    /// Path that [`Documents::read`] takes.
    pub path: String,
    /// Title of the document.
    pub title: String,
    /// One line about the content.
    pub summary: String,
}

/// A section that a search found.
#[derive(Debug, Clone)]
pub struct DocumentSection {
    /// Path of the document.
    pub path: String,
    /// Title of the document and heading of the section.
    pub heading: String,
    /// Start of the text.
    pub excerpt: String,
}

impl McpServer {
    /// Executes a call of a tool on documents.
    pub(super) fn handle_document_call(
        &self,
        action: DocumentAction,
        arguments: &ToolArguments,
    ) -> Result<CallToolResult> {
        let Some(documents) = &self.0.documents else {
            return Err(Error::invalid("name", "must be a tool of this server"));
        };
        let text = match action {
            DocumentAction::List => {
                let lines = documents
                    .list()
                    .into_iter()
                    .map(|it| format!("- {}: {}. {}", it.path, it.title, it.summary));
                lines.collect::<Vec<_>>().join("\n")
            }
            DocumentAction::Read => {
                let path = arguments.required_text("path")?;
                let text = documents.read(&path);
                text.ok_or_else(|| Error::invalid("path", "must be a path of docs_list"))?
            }
            DocumentAction::Search => {
                let query = arguments.required_text("query")?;
                let found = documents.search(&query, MAX_SECTIONS);
                if found.is_empty() {
                    "No document contains these words.".to_owned()
                } else {
                    let lines = found
                        .into_iter()
                        .map(|it| format!("- {} ({}): {}", it.heading, it.path, it.excerpt));
                    lines.collect::<Vec<_>>().join("\n")
                }
            }
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
    }
}
