//! Where a page ended: a place in the order, bound to the filters it was made with.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::{Error, Json, ListTasksRequest, Result, TaskId, Timestamp};
use crate::store::{Head, TaskQuery};

/// A place in the order. It survives inserts and deletes: the next page begins strictly behind it.
#[derive(Serialize, Deserialize)]
struct Cursor {
    /// Milliseconds of the last task's status.
    t: i64,
    /// The last task.
    i: TaskId,
    /// The filters.
    f: String,
}

/// What the store is asked for.
///
/// # Errors
/// The page token is none of ours, or was made with other filters.
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

/// The token for what follows this task.
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
    let unknown = || Error::invalid("pageToken", "must be one that this server gave out");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| unknown())?;
    let json =
        Json::parse(std::str::from_utf8(&bytes).map_err(|_| unknown())?).map_err(|_| unknown())?;
    let cursor: Cursor = json.read().map_err(|_| unknown())?;
    if cursor.f != filter_digest(request) {
        return Err(Error::invalid(
            "pageToken",
            "must be used with the filters it was made with",
        ));
    }
    Ok((
        Timestamp::from_millis(cursor.t).ok_or_else(unknown)?,
        cursor.i,
    ))
}

/// A short mark of everything that decides which tasks are in the list.
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
        // The length keeps two filters from being read as one.
        let text = filter.unwrap_or_default();
        digest.update(text.len().to_le_bytes());
        digest.update(text);
    }
    URL_SAFE_NO_PAD.encode(&digest.finalize()[..9])
}
