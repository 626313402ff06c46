//! OAuth authorization code flow: a browser logs in and is redirected to a loopback listener of this process.

use std::io;
use std::time::Duration;

use attache::model::Secret;
use attache::{AuthorizationCodeLogin, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{LoginRequest, login_error};
use crate::error::{CliError, CliResult};
use crate::output::Output;

/// Maximum time for the user to log in. A shorter `--timeout` ends the verb earlier.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Time for one request of the browser.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Path of the redirect URL.
const REDIRECT_PATH: &str = "/callback";

/// Prints the login URL, and waits for the redirect with the code.
pub(super) async fn login(
    request: LoginRequest<'_>,
    secret: Option<Secret>,
    out: &mut Output,
) -> CliResult<Token> {
    let listen_error =
        |error: io::Error| CliError::internal(format!("cannot listen on 127.0.0.1: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(listen_error)?;
    let redirect = format!(
        "http://{}{REDIRECT_PATH}",
        listener.local_addr().map_err(listen_error)?
    );
    let login = AuthorizationCodeLogin::start(
        request.server,
        request.client_id,
        secret,
        request.scopes,
        redirect,
    )
    .map_err(|error| login_error(&error))?;
    out.note(&format!(
        "open {} in a browser on this machine",
        login.url()
    ));
    let query = timeout(LOGIN_TIMEOUT, await_redirect(&listener, &login)).await;
    let query = query
        .map_err(|_| CliError::timeout("login timed out after 5 minutes; run the command again"))?;
    login
        .finish(&query)
        .await
        .map_err(|error| login_error(&error))
}

/// Returns the query of the redirect. Other requests are answered with 404.
async fn await_redirect(listener: &TcpListener, login: &AuthorizationCodeLogin) -> String {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            continue;
        };
        let target = timeout(READ_TIMEOUT, read_target(&mut stream))
            .await
            .ok()
            .flatten();
        let query = target
            .as_deref()
            .and_then(|target| target.strip_prefix(REDIRECT_PATH)?.strip_prefix('?'));
        match query.filter(|query| login.matches_state(query)) {
            Some(query) => {
                respond(
                    &mut stream,
                    "200 OK",
                    "Login complete. You can close this page.\n",
                )
                .await;
                return query.to_owned();
            }
            None => respond(&mut stream, "404 Not Found", "Not found.\n").await,
        }
    }
}

/// Reads a request head, and returns the path and query of a GET.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read_buf(&mut head).await.ok()?;
        if read == 0 || head.len() > MAX_HEAD_BYTES {
            return None;
        }
    }
    let line = String::from_utf8_lossy(&head).lines().next()?.to_owned();
    line.strip_prefix("GET ")?
        .split(' ')
        .next()
        .map(str::to_owned)
}

async fn respond(stream: &mut TcpStream, status: &str, text: &str) {
    let length = text.len();
    let head =
        "Content-Type: text/plain\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer";
    let whole = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\n{head}\r\nContent-Length: {length}\r\n\r\n{text}"
    );
    // The browser may close the connection early: the code has arrived.
    let _ = timeout(READ_TIMEOUT, stream.write_all(whole.as_bytes())).await;
}
