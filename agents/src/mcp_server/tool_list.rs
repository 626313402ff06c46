//! Definitions of the MCP server's tools.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::ExposedAgent;
use crate::llm::sanitize;
use crate::tool_name::{MAX_TOOL_NAME, to_tool_name};

/// Maximum size of an agent's description.
const MAX_DESCRIPTION: usize = 2 << 10;
/// Maximum size of a skill's description.
const MAX_SKILL_DESCRIPTION: usize = 300;
/// Maximum number of skills in a description.
const MAX_SKILLS: usize = 20;
/// Length that names leave for a suffix such as `_2`.
const SUFFIX_LENGTH: usize = 4;

/// Tool of the server.
#[derive(Debug)]
pub(super) struct ServerTool {
    pub(super) action: ToolAction,
    pub(super) definition: Tool,
}

/// Action of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolAction {
    /// Sends a message to the agent with this index.
    Send(usize),
    Task(TaskAction),
    Document(DocumentAction),
}

/// Action on the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentAction {
    List,
    Read,
    Search,
}

/// Action on an existing task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskAction {
    Get,
    Wait,
    Continue,
    Cancel,
}

/// Returns the tools: one for each agent, then four for tasks if there is an agent, then three for documents.
pub(super) fn tools(agents: &[ExposedAgent], has_documents: bool) -> Vec<ServerTool> {
    let mut shared_tools: Vec<ServerTool> = Vec::new();
    if !agents.is_empty() {
        shared_tools.extend(task_tools());
    }
    if has_documents {
        shared_tools.extend(document_tools());
    }
    let mut tools: Vec<ServerTool> = Vec::new();
    for (index, agent) in agents.iter().enumerate() {
        let name = unique_name(&agent.name, |name| {
            let mut all = tools.iter().chain(&shared_tools);
            all.any(|tool| tool.definition.name == name)
        });
        tools.push(agent_tool(index, agent, name));
    }
    tools.extend(shared_tools);
    tools
}

fn agent_tool(index: usize, agent: &ExposedAgent, name: String) -> ServerTool {
    let context = json!({"type": "string", "description": "The context id of an earlier call, to continue that conversation"});
    let properties = json!({"message": message(), "data": data(), "context_id": context});
    let definition = tool(name, description(agent), properties, &["message"]);
    ServerTool {
        action: ToolAction::Send(index),
        definition,
    }
}

fn task_tools() -> [ServerTool; 4] {
    let id =
        || json!({"type": "string", "description": "The id of the task, as a call returned it"});
    let read_only = ToolAnnotations::new().read_only(true);
    let get = tool(
        "get_task",
        "Returns the state of a task and its results so far.",
        json!({"task_id": id()}),
        &["task_id"],
    );
    let wait = tool(
        "wait_for_task",
        "Waits for a running task, and returns its results.",
        json!({"task_id": id()}),
        &["task_id"],
    );
    let resume = tool(
        "continue_task",
        "Answers a question of a task's agent, or sends it another message.",
        json!({"task_id": id(), "message": message(), "data": data()}),
        &["task_id", "message"],
    );
    let cancel = tool(
        "cancel_task",
        "Cancels a task.",
        json!({"task_id": id()}),
        &["task_id"],
    );
    [
        (TaskAction::Get, get.with_annotations(read_only.clone())),
        (TaskAction::Wait, wait.with_annotations(read_only)),
        (TaskAction::Continue, resume),
        (TaskAction::Cancel, cancel),
    ]
    .map(|(action, definition)| ServerTool {
        action: ToolAction::Task(action),
        definition,
    })
}

fn document_tools() -> [ServerTool; 3] {
    let list = tool(
        "docs_list",
        "Lists the pages of the documentation with a summary each.",
        json!({}),
        &[],
    );
    let path = json!({"type": "string", "description": "The path of a page, as docs_list and docs_search return it"});
    let read = tool(
        "docs_read",
        "Returns a page of the documentation as Markdown.",
        json!({"path": path}),
        &["path"],
    );
    let query = json!({"type": "string", "description": "Words or a question"});
    let search = tool(
        "docs_search",
        "Searches the documentation, and returns the best sections with the paths of their pages.",
        json!({"query": query}),
        &["query"],
    );
    [
        (DocumentAction::List, list),
        (DocumentAction::Read, read),
        (DocumentAction::Search, search),
    ]
    .map(|(action, definition)| ServerTool {
        action: ToolAction::Document(action),
        definition: definition.with_annotations(ToolAnnotations::new().read_only(true)),
    })
}

fn message() -> Value {
    json!({"type": "string", "description": "The message for the agent"})
}

fn data() -> Value {
    json!({"type": "object", "description": "Structured data for the agent"})
}

/// Returns the definition of a tool that is not read-only.
fn tool(
    name: impl Into<String>,
    description: impl Into<String>,
    properties: Value,
    required: &[&str],
) -> Tool {
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let schema: Map<String, Value> = schema.as_object().cloned().unwrap_or_default();
    let tool = Tool::new(name.into(), description.into(), Arc::new(schema));
    tool.with_annotations(ToolAnnotations::new().read_only(false))
}

/// Returns the description of an agent and its skills, sanitized and bounded (S47).
fn description(agent: &ExposedAgent) -> String {
    let card = &agent.card;
    let mut description = sanitize(&card.description, MAX_DESCRIPTION);
    for skill in card.skills.iter().take(MAX_SKILLS) {
        let name = sanitize(&skill.name, MAX_TOOL_NAME);
        let skill_description = sanitize(&skill.description, MAX_SKILL_DESCRIPTION);
        if skill_description != description {
            description.push_str(&format!("\n- {name}: {skill_description}"));
        }
    }
    description
}

/// Returns a valid tool name that is not taken.
fn unique_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut base = to_tool_name(name.trim());
    base.truncate(MAX_TOOL_NAME - SUFFIX_LENGTH);
    base.make_ascii_lowercase();
    if base.is_empty() {
        base.push_str("agent");
    }
    let numbered = (2..).map(|number: usize| format!("{base}_{number}"));
    let mut candidates = [base.clone()].into_iter().chain(numbered);
    candidates.find(|name| !is_taken(name)).unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::{AgentCard, Binding, Version};

    #[test]
    fn s47_tool_names_are_unique_and_descriptions_are_sanitized() {
        let agent = |name: &str| ExposedAgent {
            name: name.to_owned(),
            card: AgentCard::new(name, "Helps\u{202e} you"),
            client: attache::Client::new("http://127.0.0.1:1", Binding::JsonRpc, Version::V1)
                .unwrap(),
        };
        let agents = [agent("Über Agent"), agent("über agent"), agent("get_task")];
        let tools = tools(&agents, false);
        let names: Vec<_> = tools
            .iter()
            .map(|tool| tool.definition.name.as_ref())
            .collect();
        let tasks = ["get_task", "wait_for_task", "continue_task", "cancel_task"];
        assert_eq!(names[..3], ["_ber_agent", "_ber_agent_2", "get_task_2"]);
        assert_eq!(names[3..], tasks);
        assert_eq!(
            tools[0].definition.description.as_deref(),
            Some("Helps you")
        );
    }
}
