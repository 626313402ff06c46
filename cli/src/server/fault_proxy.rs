//! Stands before a mock and spoils its answers, as the script says.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_agents::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The largest request that is looked into.
const MAX_REQUEST: usize = 16 << 20;
/// Connections at the same time; more wait.
const MAX_CONNECTIONS: usize = 1024;
/// What an HTTP/2 connection begins with: it is passed on as it is.
const HTTP2: &[u8] = b"PRI ";

/// Stands before a mock.
pub(super) struct FaultProxy {
    listener: TcpListener,
    faults: Arc<[(Fault, AtomicUsize)]>,
}

impl FaultProxy {
    /// Listens on the first of these addresses that it can.
    pub(super) async fn bind(addresses: &[SocketAddr], faults: Vec<Fault>) -> io::Result<Self> {
        let listener = TcpListener::bind(addresses).await?;
        Ok(Self {
            listener,
            faults: faults
                .into_iter()
                .map(|fault| (fault, AtomicUsize::new(0)))
                .collect(),
        })
    }

    pub(super) fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}/", self.listener.local_addr()?))
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Passes everything on to the mock, until it is dropped.
    pub(super) async fn run(self, mock: SocketAddr) {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < MAX_CONNECTIONS => if let Ok((stream, _)) = accepted {
                    open.spawn(pass(stream, mock, self.faults.clone()));
                },
                Some(_) = open.join_next() => {}
            }
        }
    }
}

/// One request and its answer. Every answer ends its connection, so that its end needs no counting.
async fn pass(
    mut client: TcpStream,
    mock: SocketAddr,
    faults: Arc<[(Fault, AtomicUsize)]>,
) -> io::Result<()> {
    let mut request = Vec::new();
    if !read_request(&mut client, &mut request).await? {
        let mut upstream = TcpStream::connect(mock).await?;
        upstream.write_all(&request).await?;
        copy_bidirectional(&mut client, &mut upstream).await?;
        return Ok(());
    }
    let fault = fault_for(&request, &faults);
    if let Some(delay) = fault.delay {
        sleep(delay).await;
    }
    if let Some(status) = fault.status {
        let answer =
            format!("HTTP/1.1 {status} Mocked\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return client.write_all(answer.as_bytes()).await;
    }
    let mut upstream = TcpStream::connect(mock).await?;
    upstream.write_all(&as_http_1_0(&request)).await?;
    spoil(&mut upstream, &mut client, &fault).await
}

/// Reads a whole request; `false` for a connection of HTTP/2, and for what is too large or no request.
async fn read_request(client: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        if request.starts_with(HTTP2) || request.len() > MAX_REQUEST {
            return Ok(false);
        }
        if let Some((head, body)) = parts(request)
            && body.len() >= content_length(head)
        {
            return Ok(true);
        }
        let read = client.read(&mut buffer).await?;
        if read == 0 {
            return Ok(false);
        }
        request.extend_from_slice(&buffer[..read]);
    }
}

/// Head and body of a message, once the head is whole.
fn parts(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = message
        .windows(4)
        .position(|window| window == b"\r\n\r\n")?;
    Some((&message[..end], &message[end + 4..]))
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    length.unwrap_or(0)
}

/// What goes wrong with this one, if anything does.
fn fault_for(request: &[u8], faults: &[(Fault, AtomicUsize)]) -> Fault {
    let body = parts(request)
        .map(|(_, body)| String::from_utf8_lossy(body))
        .unwrap_or_default();
    let fits = faults
        .iter()
        .filter(|(fault, _)| !body.is_empty() && body.contains(&fault.contains));
    let mut due = fits.filter(|(fault, met)| {
        let before = met.fetch_add(1, Ordering::Relaxed);
        fault.times.is_none_or(|times| before < times)
    });
    due.next()
        .map(|(fault, _)| fault.clone())
        .unwrap_or_default()
}

/// The same request in a version that ends an answer by closing.
fn as_http_1_0(request: &[u8]) -> Vec<u8> {
    let Some(at) = request.windows(8).position(|window| window == b"HTTP/1.1") else {
        return request.to_vec();
    };
    let mut older = request.to_vec();
    older[at + 7] = b'0';
    older
}

/// Passes an answer on, spoilt.
async fn spoil(mock: &mut TcpStream, client: &mut TcpStream, fault: &Fault) -> io::Result<()> {
    let mut answer = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    let body_at = loop {
        let read = mock.read(&mut buffer).await?;
        answer.extend_from_slice(&buffer[..read]);
        if let Some((head, _)) = parts(&answer) {
            break head.len();
        }
        if read == 0 {
            return client.write_all(&answer).await;
        }
    };
    let head = String::from_utf8_lossy(&answer[..body_at]).into_owned();
    let streams = head.to_ascii_lowercase().contains("text/event-stream");
    client
        .write_all(head_without_length(&head).as_bytes())
        .await?;
    let mut left = fault.cut_after.unwrap_or(usize::MAX);
    let mut waiting = answer.split_off(body_at + 4);
    loop {
        let pieces = if streams {
            whole_events(&mut waiting)
        } else {
            Vec::new()
        };
        for piece in spoilt(pieces, fault) {
            if !send(client, &piece, &mut left).await? {
                return Ok(());
            }
        }
        let read = mock.read(&mut buffer).await?;
        waiting.extend_from_slice(&buffer[..read]);
        if read == 0 {
            break;
        }
    }
    let rest = std::mem::take(&mut waiting);
    for piece in spoilt(vec![rest], fault) {
        if !send(client, &piece, &mut left).await? {
            break;
        }
    }
    Ok(())
}

/// The head of an answer that ends when the connection does.
fn head_without_length(head: &str) -> String {
    let kept = head
        .lines()
        .filter(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
    let kept = kept.filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head = kept
        .collect::<Vec<_>>()
        .join("\r\n")
        .replacen("HTTP/1.0", "HTTP/1.1", 1);
    format!("{head}\r\nConnection: close\r\n\r\n")
}

/// Sends a piece, as far as it may go; `false` once the connection is to be cut.
async fn send(client: &mut TcpStream, piece: &[u8], left: &mut usize) -> io::Result<bool> {
    let fits = &piece[..piece.len().min(*left)];
    client.write_all(fits).await?;
    *left -= fits.len();
    Ok(fits.len() == piece.len())
}

/// Takes the events that are whole.
fn whole_events(waiting: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    while let Some(end) = waiting.windows(2).position(|window| window == b"\n\n") {
        events.push(waiting.drain(..end + 2).collect());
    }
    events
}

/// What is made of some events, or of a whole body.
fn spoilt(mut pieces: Vec<Vec<u8>>, fault: &Fault) -> Vec<Vec<u8>> {
    pieces.retain(|piece| !piece.is_empty());
    if fault.garble {
        for piece in &mut pieces {
            let json = piece.iter().position(|byte| *byte == b'{').unwrap_or(0);
            piece.insert(json, b'{');
        }
    }
    if fault.duplicate {
        pieces = pieces
            .into_iter()
            .flat_map(|piece| [piece.clone(), piece])
            .collect();
    }
    if fault.swap {
        pieces.chunks_mut(2).for_each(<[_]>::reverse);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_met_as_often_as_it_says() {
        let fault = |contains: &str, times| Fault {
            contains: contains.to_owned(),
            times,
            garble: true,
            ..Fault::default()
        };
        let faults = [
            (fault("cut", Some(1)), AtomicUsize::new(0)),
            (fault("always", None), AtomicUsize::new(0)),
        ];
        let met = |body: &str| {
            fault_for(format!("POST / HTTP/1.1\r\n\r\n{body}").as_bytes(), &faults).garble
        };
        assert_eq!(
            [
                met("cut"),
                met("cut"),
                met("always"),
                met("always"),
                met("else"),
                met("")
            ],
            [true, false, true, true, false, false]
        );
    }

    #[test]
    fn events_are_spoilt_one_by_one() {
        let events = || {
            vec![
                b"data: {1}\n\n".to_vec(),
                b"data: {2}\n\n".to_vec(),
                b"data: {3}\n\n".to_vec(),
            ]
        };
        let text = |fault: Fault| {
            String::from_utf8(spoilt(events(), &fault).concat())
                .unwrap()
                .replace("data: ", "")
                .replace("\n\n", " ")
        };
        assert_eq!(
            text(Fault {
                duplicate: true,
                ..Fault::default()
            }),
            "{1} {1} {2} {2} {3} {3} "
        );
        assert_eq!(
            text(Fault {
                swap: true,
                ..Fault::default()
            }),
            "{2} {1} {3} "
        );
        assert_eq!(
            text(Fault {
                garble: true,
                ..Fault::default()
            }),
            "{{1} {{2} {{3} "
        );
        let mut waiting = b"a\n\nb\n\nc".to_vec();
        assert_eq!(
            (whole_events(&mut waiting).len(), waiting),
            (2, b"c".to_vec())
        );
    }
}
