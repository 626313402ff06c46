//! All that a model may call at the moment: the tools of its settings, and those that MCP servers have.

use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::settings::ToolSettings;
use super::tool::{McpTool, Tool, ToolKind};
use crate::mcp_client::{CatalogTool, McpConnection, ToolStatus, removed_message};

/// How long a name may be that a model calls something by.
const MAX_NAME: usize = 64;

/// An MCP server under the name that it has in the settings.
#[derive(Debug)]
pub(super) struct McpToolServer {
    name: String,
    settings: ToolSettings,
    connection: Arc<McpConnection>,
}

/// What a model may call.
#[derive(Debug, Default)]
pub(super) struct Toolset(pub(super) Vec<Arc<Tool>>);

impl McpToolServer {
    pub(super) fn new(name: &str, settings: &ToolSettings) -> Result<Option<Self>, String> {
        let Some(server) = &settings.mcp else {
            return Ok(None);
        };
        let bad = |why: &str| Err(format!("tool `{name}`: {why}"));
        if !settings.description.is_empty() || !settings.parameters.is_empty() {
            return bad(
                "what its tools are is said by an MCP server, not by description and parameters",
            );
        }
        if !settings.headers.is_empty() {
            return bad("the headers of an MCP server stand in its own section");
        }
        let connection =
            McpConnection::new(server.clone()).map_err(|why| format!("tool `{name}`: {why}"))?;
        Ok(Some(Self {
            name: name.to_owned(),
            settings: settings.clone(),
            connection: Arc::new(connection),
        }))
    }

    pub(super) fn is_repeatable(&self) -> bool {
        self.settings.repeat
    }
}

impl Toolset {
    /// These tools, and those of these servers, each by a name of its own.
    ///
    /// # Errors
    /// Whose tools are not known, and why, in words.
    pub(super) async fn new(
        tools: &[Arc<Tool>],
        servers: &[McpToolServer],
    ) -> Result<Self, String> {
        let mut toolset = Self(tools.to_vec());
        for server in servers {
            let catalog = server.connection.catalog().await;
            let catalog = catalog.map_err(|unavailable| {
                format!(
                    "the tools of `{}` are not there: {}",
                    server.name, unavailable.message
                )
            })?;
            for catalog_tool in &catalog.tools {
                let name = toolset.unique_name(&server.name, &catalog_tool.name);
                toolset.0.push(Arc::new(tool(server, catalog_tool, name)));
            }
        }
        Ok(toolset)
    }

    pub(super) fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.0.iter().find(|tool| tool.name == name)
    }

    /// All of them, as the model is told of them.
    pub(super) fn definitions(&self) -> Vec<Value> {
        self.0
            .iter()
            .filter(|tool| !tool.is_removed())
            .map(|tool| tool.definition())
            .collect()
    }

    /// Why a call cannot ever be made: its tool has vanished since the model was told of it.
    pub(super) fn removed_tool_message<'a>(
        &self,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Option<String> {
        let tool = names.find_map(|name| self.tool(name).filter(|tool| tool.is_removed()))?;
        Some(removed_message(&tool.name))
    }

    /// A name that models can say, and that no other tool has; the same for the same tool, whenever it is asked for.
    fn unique_name(&self, server: &str, tool: &str) -> String {
        let legal = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                '_'
            }
        };
        let name: String = format!("{server}_{tool}").chars().map(legal).collect();
        if name.len() <= MAX_NAME && self.tool(&name).is_none() {
            return name;
        }
        let digest = Sha256::digest(format!("{server}\n{tool}"));
        let digits: String = digest
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // Every character is one byte long here.
        format!(
            "{}_{digits}",
            &name[..name.len().min(MAX_NAME - digits.len() - 1)]
        )
    }
}

fn tool(server: &McpToolServer, catalog_tool: &Arc<CatalogTool>, name: String) -> Tool {
    let named = server
        .connection
        .settings()
        .approve
        .contains(&catalog_tool.name);
    let settings = ToolSettings {
        description: catalog_tool.description.clone(),
        parameters: parameters(&catalog_tool.schema),
        approval: server.settings.approval || named || catalog_tool.status == ToolStatus::Changed,
        ..server.settings.clone()
    };
    Tool {
        name,
        settings,
        kind: ToolKind::Mcp(McpTool {
            connection: server.connection.clone(),
            catalog_tool: catalog_tool.clone(),
        }),
    }
}

/// Some endpoints refuse an object that does not say what it has.
fn parameters(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.clone();
    schema.remove("$schema");
    schema.entry("type").or_insert_with(|| "object".into());
    schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    schema
}
