//! `attache task list`: tasks, a page at a time.

use attache::model::{ListTasksRequest, ListTasksResponse, TaskState, Timestamp};

use crate::args::TaskListArgs;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::session::Session;
use crate::settings::Settings;

/// More pages than this are a server that goes in circles.
const MAX_PAGES: usize = 10_000;

pub(crate) async fn run(args: TaskListArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let all = args.all;
    let mut request = request(args, settings)?;
    let session = Session::open(settings, out).await?;
    let mut page = session
        .call(session.client.list_tasks(request.clone()))
        .await?;
    if !all {
        return out.print_tasks(&page);
    }
    let mut together = ListTasksResponse::default();
    for _ in 0..MAX_PAGES {
        let token = std::mem::take(&mut page.next_page_token);
        match out.is_json() && !out.stream {
            // One document: it has all tasks in it.
            true => together.tasks.append(&mut page.tasks),
            false => out.print_tasks(&page)?,
        }
        if token.is_empty() {
            break;
        }
        request.page_token = Some(token);
        page = session
            .call(session.client.list_tasks(request.clone()))
            .await?;
    }
    if out.is_json() && !out.stream {
        let size = i32::try_from(together.tasks.len()).unwrap_or(i32::MAX);
        return out.print_tasks(&ListTasksResponse {
            page_size: size,
            total_size: size,
            ..together
        });
    }
    Ok(())
}

fn request(args: TaskListArgs, settings: &Settings) -> CliResult<ListTasksRequest> {
    let since = args.since.as_deref().map(|text| {
        Timestamp::parse_lenient(text).map_err(|_| {
            CliError::usage(format!(
                "--since {text} must be a time such as 2026-11-01T00:00:00Z"
            ))
        })
    });
    Ok(ListTasksRequest {
        context_id: settings.context_id.as_deref().map(Into::into),
        status: args.status.as_deref().map(parse_state).transpose()?,
        page_size: args.page_size,
        page_token: args.page_token,
        status_timestamp_after: since.transpose()?,
        include_artifacts: args.include_artifacts.then_some(true),
        ..ListTasksRequest::default()
    })
}

/// `TASK_STATE_INPUT_REQUIRED`, `INPUT_REQUIRED` or `input-required`.
pub(crate) fn parse_state(word: &str) -> CliResult<TaskState> {
    let name = word.to_ascii_uppercase().replace('-', "_");
    let found = TaskState::ALL.into_iter().find(|state| {
        let full = state.as_str();
        name == full || full.strip_prefix("TASK_STATE_") == Some(&name)
    });
    found.ok_or_else(|| {
        let words = TaskState::ALL.map(|state| {
            state.as_str()["TASK_STATE_".len()..]
                .to_lowercase()
                .replace('_', "-")
        });
        CliError::usage(format!("there is no state {word}"))
            .hint(format!("one of {}", words.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_list_001_states_are_read_in_every_spelling() {
        for word in [
            "TASK_STATE_INPUT_REQUIRED",
            "INPUT_REQUIRED",
            "input-required",
            "Input_Required",
        ] {
            assert_eq!(parse_state(word).unwrap(), TaskState::InputRequired);
        }
        let wrong = parse_state("done").unwrap_err();
        assert!(wrong.hint.unwrap().contains("completed"));
    }
}
