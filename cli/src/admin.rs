//! Client of the admin API of a running server, over the Unix socket in its data directory.

use std::path::Path;

use anyhow::{Context, anyhow, bail};

/// Sends a request to the server of a data directory, and returns the response body; `None` if no server is running.
///
/// # Errors
/// The server does not answer within 10 s, or refuses the request.
#[cfg(unix)]
pub(crate) fn request(folder: &Path, method: &str, path: &str) -> anyhow::Result<Option<String>> {
    use std::io::{Read, Write};
    use std::time::Duration;
    let socket = attache::Admin::new(folder).socket();
    let Ok(mut stream) = std::os::unix::net::UnixStream::connect(socket) else {
        return Ok(None);
    };
    let exchanged = stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .and_then(|()| {
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nHost: admin\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        })
        .and_then(|()| {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
    let answer = exchanged
        .map_err(|error| anyhow!("the running server does not answer; restart it ({error})"))?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the running server sent an invalid response")?;
    if head.starts_with("HTTP/1.1 20") {
        Ok(Some(body.to_owned()))
    } else {
        bail!("{}", error_message(body))
    }
}

/// Whether a server accepts connections on the socket of a data directory.
#[cfg(unix)]
pub(crate) fn is_server_running(folder: &Path) -> bool {
    let socket = attache::Admin::new(folder).socket();
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

#[cfg(not(unix))]
pub(crate) fn is_server_running(_: &Path) -> bool {
    false
}

#[cfg(not(unix))]
pub(crate) fn request(_: &Path, _: &str, _: &str) -> anyhow::Result<Option<String>> {
    Ok(None)
}

/// The message of an error response, from JSON or plain text.
#[cfg(unix)]
fn error_message(body: &str) -> String {
    let wrapped: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let inner = wrapped.as_ref().and_then(|value| {
        let error = &value["error"];
        error.as_str().or_else(|| error["message"].as_str())
    });
    inner.unwrap_or(body).trim().to_owned()
}
