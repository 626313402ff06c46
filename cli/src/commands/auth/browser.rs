//! A login in a browser that comes back to this machine.

use std::io;
use std::time::Duration;

use attache::model::Secret;
use attache::{AuthorizationCodeLogin, AuthorizationServer, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::refused;
use crate::error::{CliError, CliResult};
use crate::output::Output;

/// How long a person may take, unless `--timeout` says otherwise.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How long a browser may take for one request, and how long its head may be.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEAD: usize = 16 << 10;
const PATH: &str = "/callback";

/// Shows where to log in, and waits for the browser to bring the code.
pub(super) async fn login(
    endpoints: AuthorizationServer,
    client_id: &str,
    secret: Option<Secret>,
    scopes: &[String],
    out: &mut Output,
) -> CliResult<Token> {
    let cannot =
        |error: io::Error| CliError::internal(format!("cannot listen on this machine: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot)?;
    let redirect = format!("http://{}{PATH}", listener.local_addr().map_err(cannot)?);
    let login = AuthorizationCodeLogin::start(endpoints, client_id, secret, scopes, redirect)
        .map_err(|error| refused(&error))?;
    out.note(&format!(
        "open {} in a browser on this machine",
        login.url()
    ));
    let query = timeout(LOGIN_TIMEOUT, wait(&listener, &login)).await;
    let query = query.map_err(|_| CliError::timeout("nobody logged in within 5 minutes"))?;
    login.finish(&query).await.map_err(|error| refused(&error))
}

/// What the browser brings; other visitors are sent away.
async fn wait(listener: &TcpListener, login: &AuthorizationCodeLogin) -> String {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            continue;
        };
        let target = timeout(READ_TIMEOUT, target(&mut stream))
            .await
            .ok()
            .flatten();
        let query = target
            .as_deref()
            .and_then(|target| target.strip_prefix(PATH)?.strip_prefix('?'));
        match query.filter(|query| login.matches_state(query)) {
            Some(query) => {
                answer(
                    &mut stream,
                    "200 OK",
                    "That is all. You can close this page.\n",
                )
                .await;
                return query.to_owned();
            }
            None => answer(&mut stream, "404 Not Found", "There is nothing here.\n").await,
        }
    }
}

/// Path and query of a GET.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read_buf(&mut head).await.ok()?;
        if read == 0 || head.len() > MAX_HEAD {
            return None;
        }
    }
    let line = String::from_utf8_lossy(&head).lines().next()?.to_owned();
    line.strip_prefix("GET ")?
        .split(' ')
        .next()
        .map(str::to_owned)
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) {
    let length = text.len();
    let head =
        "Content-Type: text/plain\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer";
    let whole = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\n{head}\r\nContent-Length: {length}\r\n\r\n{text}"
    );
    // A browser that does not wait for it has done its part.
    let _ = timeout(READ_TIMEOUT, stream.write_all(whole.as_bytes())).await;
}
