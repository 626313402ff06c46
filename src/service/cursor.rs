//! Page tokens of `ListTasks`: a keyset cursor, bound to the filters of the request that created it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::{Error, Json, ListTasksRequest, Result, TaskId, Timestamp};
use crate::store::{Head, TaskQuery};

/// Position in the listing order (status time, id). The next page begins strictly after it, so inserts and deletes between
/// pages cause neither gaps nor duplicates.
#[derive(Serialize, Deserialize)]
struct Cursor {
    /// Status time of the last task, in Unix milliseconds.
    t: i64,
    /// Id of the last task.
    i: TaskId,
    /// Digest of the filters.
    f: String,
}

/// Converts a request to a store query.
///
/// # Errors
/// Invalid: the page token was not issued by this server, or was issued for other filters.
pub(super) fn store_query(request: &ListTasksRequest) -> Result<TaskQuery> {
    Ok(TaskQuery {
        context_id: request.context_id.clone(),
        state: request.status,
        since: request.status_timestamp_after,
        after: request
            .page_token
            .as_deref()
            .map(|token| decode(request, token))
            .transpose()?,
        limit: usize::try_from(request.page_size()).unwrap_or_default(),
    })
}

/// Returns the token of the page that follows the task `last`.
pub(super) fn encode(request: &ListTasksRequest, last: &Head) -> String {
    let cursor = Cursor {
        t: last.status_time.as_millis(),
        i: last.id.clone(),
        f: filter_digest(request),
    };
    Json::from_serialize(&cursor)
        .map(|json| URL_SAFE_NO_PAD.encode(json.get()))
        .unwrap_or_default()
}

fn decode(request: &ListTasksRequest, token: &str) -> Result<(Timestamp, TaskId)> {
    let unknown = || Error::invalid("pageToken", "must be a token that this server issued");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| unknown())?;
    let json =
        Json::parse(std::str::from_utf8(&bytes).map_err(|_| unknown())?).map_err(|_| unknown())?;
    let cursor: Cursor = json.read().map_err(|_| unknown())?;
    if cursor.f != filter_digest(request) {
        return Err(Error::invalid(
            "pageToken",
            "must be used with the filters of the first request",
        ));
    }
    Ok((
        Timestamp::from_millis(cursor.t).ok_or_else(unknown)?,
        cursor.i,
    ))
}

/// Digest of all parameters that select tasks.
fn filter_digest(request: &ListTasksRequest) -> String {
    let ListTasksRequest {
        tenant,
        context_id,
        status,
        status_timestamp_after,
        ..
    } = request;
    let mut digest = Sha256::new();
    for filter in [
        tenant.clone(),
        context_id.as_ref().map(ToString::to_string),
        status.as_ref().map(ToString::to_string),
        status_timestamp_after.as_ref().map(ToString::to_string),
    ] {
        // The length prefix separates the fields: ("ab", "c") and ("a", "bc") differ.
        let text = filter.unwrap_or_default();
        digest.update(text.len().to_le_bytes());
        digest.update(text);
    }
    URL_SAFE_NO_PAD.encode(&digest.finalize()[..9])
}
