//! Tools that the model may call now: the configured ones, and the tools of MCP servers.

use std::sync::Arc;

use attache::model::AgentSkill;
use serde_json::{Map, Value};

use super::settings::ToolSettings;
use super::tool::{McpTool, Tool, ToolKind};
use crate::fingerprint::{fingerprint, hex};
use crate::mcp_client::{
    CatalogTool, McpConnection, McpServerSettings, ToolStatus, removed_message,
};
use crate::tool_name::{MAX_TOOL_NAME, to_tool_name};

/// MCP server, with its name and its settings as a tool.
#[derive(Debug)]
pub(super) struct McpToolServer {
    name: String,
    settings: ToolSettings,
    connection: Arc<McpConnection>,
}

/// Tools that the model may call.
#[derive(Debug, Default)]
pub(super) struct Toolset(Vec<Arc<Tool>>);

impl McpToolServer {
    pub(super) fn new(
        name: &str,
        settings: &ToolSettings,
        server: McpServerSettings,
    ) -> Result<Self, String> {
        let invalid = |reason: &str| format!("tool `{name}`: {reason}");
        if !settings.description.is_empty() || !settings.parameters.is_empty() {
            return Err(invalid(
                "an MCP server describes its tools itself: remove description and parameters",
            ));
        }
        if !settings.headers.is_empty() {
            return Err(invalid(
                "the headers of an MCP server belong to its `mcp` section",
            ));
        }
        let connection = McpConnection::new(server).map_err(|reason| invalid(&reason))?;
        Ok(Self {
            name: name.to_owned(),
            settings: settings.clone(),
            connection: Arc::new(connection),
        })
    }

    /// Returns whether an interrupted call may be repeated.
    pub(super) fn is_repeatable(&self) -> bool {
        self.settings.repeat
    }

    /// Returns a tool of this server, under a name for the model.
    fn tool(&self, catalog_tool: &Arc<CatalogTool>, name: String) -> Tool {
        let needs_approval = self.settings.approval
            || catalog_tool.status == ToolStatus::Changed
            || self
                .connection
                .settings()
                .approve
                .contains(&catalog_tool.name);
        let settings = ToolSettings {
            description: catalog_tool.description.clone(),
            parameters: parameters(&catalog_tool.schema),
            approval: needs_approval,
            ..self.settings.clone()
        };
        Tool {
            name,
            settings,
            kind: ToolKind::Mcp(McpTool {
                connection: self.connection.clone(),
                catalog_tool: catalog_tool.clone(),
            }),
        }
    }
}

impl Toolset {
    /// Collects the tools of the settings and of the MCP servers, under unique names.
    ///
    /// # Errors
    /// A server is not available and its tools are not known.
    pub(super) async fn new(
        tools: &[Arc<Tool>],
        servers: &[McpToolServer],
    ) -> Result<Self, String> {
        let mut toolset = Self(tools.to_vec());
        for server in servers {
            let catalog = server.connection.catalog().await;
            let catalog = catalog.map_err(|unavailable| {
                let reason = unavailable.message;
                format!("the tools of `{}` are not available: {reason}", server.name)
            })?;
            for catalog_tool in &catalog.tools {
                let name = toolset.unique_name(&server.name, &catalog_tool.name);
                toolset.0.push(Arc::new(server.tool(catalog_tool, name)));
            }
        }
        Ok(toolset)
    }

    pub(super) fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.0.iter().find(|tool| tool.name == name)
    }

    /// Returns one skill for each available tool.
    pub(super) fn skills(&self) -> Vec<AgentSkill> {
        let tools = self.0.iter().filter(|tool| !tool.is_removed());
        tools.map(|tool| tool.skill()).collect()
    }

    /// Returns the names of all tools.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tool| tool.name.as_str())
    }

    /// Returns the definitions of all available tools for the model.
    pub(super) fn definitions(&self) -> Vec<Value> {
        self.0
            .iter()
            .filter(|tool| !tool.is_removed())
            .map(|tool| tool.definition())
            .collect()
    }

    /// Returns the message for the first of `names` whose tool was removed since the model saw its definition.
    pub(super) fn removed_tool_message<'a>(
        &self,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Option<String> {
        let tool = names.find_map(|name| self.tool(name).filter(|tool| tool.is_removed()))?;
        Some(removed_message(&tool.name))
    }

    /// Returns a valid and unique tool name. The result is the same every time the toolset is built.
    fn unique_name(&self, server: &str, tool: &str) -> String {
        let name = to_tool_name(&format!("{server}_{tool}"));
        if name.len() <= MAX_TOOL_NAME && self.tool(&name).is_none() {
            return name;
        }
        let suffix = hex(&fingerprint(format!("{server}\n{tool}"))[..4]);
        // The name is ASCII, so every index is a character boundary.
        let end = name.len().min(MAX_TOOL_NAME - suffix.len() - 1);
        format!("{}_{suffix}", &name[..end])
    }
}

/// Completes a JSON Schema: some endpoints refuse an object without `properties`.
fn parameters(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.clone();
    schema.remove("$schema");
    schema.entry("type").or_insert_with(|| "object".into());
    schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    schema
}
