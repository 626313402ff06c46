//! `attache task list`: lists tasks, a page at a time or all pages.

use attache::model::{ListTasksRequest, ListTasksResponse, TaskState, Timestamp};

use crate::args::TaskListArgs;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::session::Session;
use crate::settings::Settings;

/// Maximum number of pages of `--all`, against servers that never end the list.
const MAX_PAGES: usize = 10_000;
/// Messages of a task that a table requests to find its first words. Lists contain the latest ones.
const HISTORY_OF_TABLE: i32 = 20;

pub(crate) async fn run(args: TaskListArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let all = args.all;
    let mut request = request(args, settings)?;
    if out.is_pretty() {
        request.history_length = Some(HISTORY_OF_TABLE);
    }
    let session = Session::open(settings, out).await?;
    let mut page = session
        .call(session.client.list_tasks(request.clone()))
        .await?;
    if !all {
        return out.print_tasks(&page);
    }
    // One JSON document or one table contains the tasks of all pages; text and JSON Lines are printed page by page.
    let is_document = out.is_pretty() || (out.is_json() && !out.stream);
    let mut all_pages = ListTasksResponse::default();
    for _ in 0..MAX_PAGES {
        let token = std::mem::take(&mut page.next_page_token);
        if is_document {
            all_pages.tasks.append(&mut page.tasks);
        } else {
            out.print_tasks(&page)?;
        }
        if token.is_empty() {
            break;
        }
        request.page_token = Some(token);
        page = session
            .call(session.client.list_tasks(request.clone()))
            .await?;
    }
    if is_document {
        let size = i32::try_from(all_pages.tasks.len()).unwrap_or(i32::MAX);
        return out.print_tasks(&ListTasksResponse {
            page_size: size,
            total_size: size,
            ..all_pages
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

/// Parses a state: `TASK_STATE_INPUT_REQUIRED`, `INPUT_REQUIRED` or `input-required`.
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
        CliError::usage(format!("unknown task state {word}"))
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
