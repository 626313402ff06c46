//! The tools of the face: what they are called, what they take, and what is said of them.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::ExposedAgent;
use crate::llm::sanitize;

/// How long a name may be.
const MAX_NAME: usize = 64;
/// How much is passed on of what an agent says of itself, and of each of its skills.
const MAX_DESCRIPTION: usize = 2 << 10;
const MAX_SKILL_DESCRIPTION: usize = 300;
/// How many of its skills are named.
const MAX_SKILLS: usize = 20;

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolAction {
    /// Gives work to the agent at this place.
    Send(usize),
    Get,
    Wait,
    Continue,
    Cancel,
}

/// One for each agent, and four for all tasks.
pub(super) fn tools(agents: &[ExposedAgent]) -> Vec<(ToolAction, Tool)> {
    let task = || json!({"type": "string", "description": "The id of the task, as a call gave it"});
    let message = || json!({"type": "string", "description": "What the agent is told"});
    let data =
        || json!({"type": "object", "description": "Data that goes along, as the agent wants it"});
    let mut tools = vec![
        (
            ToolAction::Get,
            tool(
                "get_task",
                "Looks at a task: how it stands, and what has come of it so far.",
                json!({"task_id": task()}),
                &["task_id"],
                true,
            ),
        ),
        (
            ToolAction::Wait,
            tool(
                "wait_for_task",
                "Waits for a task that is still worked on, and gives what came of it.",
                json!({"task_id": task()}),
                &["task_id"],
                true,
            ),
        ),
        (
            ToolAction::Continue,
            tool(
                "continue_task",
                "Answers what the agent of a task has asked, or tells it more.",
                json!({"task_id": task(), "message": message(), "data": data()}),
                &["task_id", "message"],
                false,
            ),
        ),
        (
            ToolAction::Cancel,
            tool(
                "cancel_task",
                "Stops a task.",
                json!({"task_id": task()}),
                &["task_id"],
                false,
            ),
        ),
    ];
    for (at, agent) in agents.iter().enumerate() {
        let name = unique_name(&agent.name, |name| {
            tools.iter().any(|(_, tool)| tool.name == name)
        });
        let context = json!({"type": "string", "description": "The context id of an earlier call, to go on with that conversation"});
        let takes = json!({"message": message(), "data": data(), "context_id": context});
        tools.push((
            ToolAction::Send(at),
            tool(name, description(agent), takes, &["message"], false),
        ));
    }
    // The agents first: they are what people look for.
    tools.rotate_left(4);
    tools
}

fn tool(
    name: impl Into<String>,
    description: impl Into<String>,
    properties: Value,
    required: &[&str],
    only_reads: bool,
) -> Tool {
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let schema: Map<String, Value> = schema.as_object().cloned().unwrap_or_default();
    let tool = Tool::new(name.into(), description.into(), Arc::new(schema));
    tool.with_annotations(ToolAnnotations::new().read_only(only_reads))
}

/// What an agent says of itself, as far as it can be seen and is not too long.
fn description(agent: &ExposedAgent) -> String {
    let card = &agent.card;
    let mut description = sanitize(&card.description, MAX_DESCRIPTION);
    for skill in card.skills.iter().take(MAX_SKILLS) {
        let (name, skill_description) = (
            sanitize(&skill.name, MAX_NAME),
            sanitize(&skill.description, MAX_SKILL_DESCRIPTION),
        );
        if skill_description != description {
            description.push_str(&format!("\n- {name}: {skill_description}"));
        }
    }
    description
}

/// A name that models can say and no other tool has.
fn unique_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            c
        } else {
            '_'
        }
    };
    let mut name: String = name.trim().chars().map(legal).take(MAX_NAME - 4).collect();
    name.make_ascii_lowercase();
    if name.is_empty() {
        name.push_str("agent");
    }
    let others = (2..).map(|number: usize| format!("{name}_{number}"));
    let mut all = [name.clone()].into_iter().chain(others);
    all.find(|name| !is_taken(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::{AgentCard, Binding, Version};

    #[test]
    fn s47_agents_have_names_of_their_own_and_say_what_can_be_seen() {
        let agent = |name: &str| ExposedAgent {
            name: name.to_owned(),
            card: AgentCard::new(name, "Helps\u{202e} you"),
            client: attache::Client::new("http://127.0.0.1:1", Binding::JsonRpc, Version::V1)
                .unwrap(),
        };
        let tools = tools(&[agent("Über Agent"), agent("über agent"), agent("get_task")]);
        let names: Vec<_> = tools.iter().map(|(_, tool)| tool.name.as_ref()).collect();
        let tasks = ["get_task", "wait_for_task", "continue_task", "cancel_task"];
        assert_eq!(names[..3], ["_ber_agent", "_ber_agent_2", "get_task_2"]);
        assert_eq!(names[3..], tasks);
        assert_eq!(tools[0].1.description.as_deref(), Some("Helps you"));
    }
}
