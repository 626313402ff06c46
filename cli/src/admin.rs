//! What is said to a running server, over the socket in its folder.

use std::path::Path;

use anyhow::{Context, anyhow, bail};

/// Asks the server of a folder; `None` if none runs there.
///
/// # Errors
/// It does not answer, or says that it cannot.
#[cfg(unix)]
pub(crate) fn request(folder: &Path, method: &str, path: &str) -> anyhow::Result<Option<String>> {
    use std::io::{Read, Write};
    use std::time::Duration;
    let socket = attache::Admin::new(folder).socket();
    let Ok(mut stream) = std::os::unix::net::UnixStream::connect(socket) else {
        return Ok(None);
    };
    let asked = stream
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
    let answer = asked
        .map_err(|error| anyhow!("the running server does not answer; restart it ({error})"))?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the running server makes no sense")?;
    match head.starts_with("HTTP/1.1 200") {
        true => Ok(Some(body.to_owned())),
        false => bail!("{}", error_message(body)),
    }
}

#[cfg(not(unix))]
pub(crate) fn request(_: &Path, _: &str, _: &str) -> anyhow::Result<Option<String>> {
    Ok(None)
}

/// The words of a refusal, however they are wrapped.
#[cfg(unix)]
fn error_message(body: &str) -> String {
    let wrapped: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let inner = wrapped.as_ref().and_then(|value| value["error"].as_str());
    inner.unwrap_or(body).trim().to_owned()
}
