//! Proxy in front of a mock server that injects the faults of its script into responses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_agents::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Maximum size of a request that faults apply to, in bytes. Larger ones are forwarded unchanged.
const MAX_REQUEST: usize = 16 << 20;
/// Maximum number of open connections; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// First bytes of an HTTP/2 connection, which is forwarded unchanged.
const HTTP2_PREFACE: &[u8] = b"PRI ";

/// Fault-injecting proxy.
pub(super) struct FaultProxy {
    listener: TcpListener,
    faults: Arc<[CountedFault]>,
}

/// A fault with the number of requests it matched.
struct CountedFault {
    fault: Fault,
    matches: AtomicUsize,
}

impl CountedFault {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            matches: AtomicUsize::new(0),
        }
    }
}

impl FaultProxy {
    /// Listens on the first address that can be bound.
    pub(super) async fn bind(addresses: &[SocketAddr], faults: Vec<Fault>) -> io::Result<Self> {
        let listener = TcpListener::bind(addresses).await?;
        Ok(Self {
            listener,
            faults: faults.into_iter().map(CountedFault::new).collect(),
        })
    }

    pub(super) fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}/", self.listener.local_addr()?))
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Forwards all connections to the mock, until the future is dropped.
    pub(super) async fn run(self, mock: SocketAddr) {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < MAX_CONNECTIONS => if let Ok((stream, _)) = accepted {
                    open.spawn(forward(stream, mock, self.faults.clone()));
                },
                Some(_) = open.join_next() => {}
            }
        }
    }
}

/// Forwards one request and its response. Each response closes its connection, so its length is not needed.
async fn forward(
    mut client: TcpStream,
    mock: SocketAddr,
    faults: Arc<[CountedFault]>,
) -> io::Result<()> {
    let mut request = Vec::new();
    if read_request(&mut client, &mut request).await? == Request::Opaque {
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
    forward_with_fault(&mut upstream, &mut client, &fault).await
}

/// Whether a request can be inspected.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// The whole request has been read.
    Complete,
    /// HTTP/2, too large, or not a request.
    Opaque,
}

/// Reads a request.
async fn read_request(client: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<Request> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        if request.starts_with(HTTP2_PREFACE) || request.len() > MAX_REQUEST {
            return Ok(Request::Opaque);
        }
        if let Some((head, body)) = parts(request)
            && body.len() >= content_length(head)
        {
            return Ok(Request::Complete);
        }
        let read = client.read(&mut buffer).await?;
        if read == 0 {
            return Ok(Request::Opaque);
        }
        request.extend_from_slice(&buffer[..read]);
    }
}

/// Head and body of a message, if the head is complete.
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

/// The fault to inject into the response of a request; an empty one if none matches.
fn fault_for(request: &[u8], faults: &[CountedFault]) -> Fault {
    let body = parts(request)
        .map(|(_, body)| String::from_utf8_lossy(body))
        .unwrap_or_default();
    let matching = faults
        .iter()
        .filter(|counted| !body.is_empty() && body.contains(&counted.fault.contains));
    let mut due = matching.filter(|counted| {
        let before = counted.matches.fetch_add(1, Ordering::Relaxed);
        counted.fault.times.is_none_or(|times| before < times)
    });
    due.next()
        .map(|counted| counted.fault.clone())
        .unwrap_or_default()
}

/// The request as HTTP/1.0, whose responses end with the connection.
fn as_http_1_0(request: &[u8]) -> Vec<u8> {
    let Some(at) = request.windows(8).position(|window| window == b"HTTP/1.1") else {
        return request.to_vec();
    };
    let mut older = request.to_vec();
    older[at + 7] = b'0';
    older
}

/// Forwards a response with a fault.
async fn forward_with_fault(
    mock: &mut TcpStream,
    client: &mut TcpStream,
    fault: &Fault,
) -> io::Result<()> {
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
    let is_stream = head.to_ascii_lowercase().contains("text/event-stream");
    client
        .write_all(head_without_length(&head).as_bytes())
        .await?;
    let mut left = fault.cut_after.unwrap_or(usize::MAX);
    let mut pending = answer.split_off(body_at + 4);
    loop {
        let pieces = if is_stream {
            take_events(&mut pending)
        } else {
            Vec::new()
        };
        for piece in inject(pieces, fault) {
            if !send(client, &piece, &mut left).await? {
                return Ok(());
            }
        }
        let read = mock.read(&mut buffer).await?;
        pending.extend_from_slice(&buffer[..read]);
        if read == 0 {
            break;
        }
    }
    let rest = std::mem::take(&mut pending);
    for piece in inject(vec![rest], fault) {
        if !send(client, &piece, &mut left).await? {
            break;
        }
    }
    Ok(())
}

/// The head of a response that ends with the connection.
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

/// Sends a piece up to the byte limit; returns `false` if the connection must be cut.
async fn send(client: &mut TcpStream, piece: &[u8], left: &mut usize) -> io::Result<bool> {
    let fits = &piece[..piece.len().min(*left)];
    client.write_all(fits).await?;
    *left -= fits.len();
    Ok(fits.len() == piece.len())
}

/// Removes and returns the complete events of a buffer.
fn take_events(pending: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    while let Some(end) = pending.windows(2).position(|window| window == b"\n\n") {
        events.push(pending.drain(..end + 2).collect());
    }
    events
}

/// Applies a fault to events, or to a whole body: invalid JSON, duplicates, wrong order.
fn inject(mut pieces: Vec<Vec<u8>>, fault: &Fault) -> Vec<Vec<u8>> {
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
    fn a_fault_applies_as_often_as_configured() {
        let fault = |contains: &str, times| Fault {
            contains: contains.to_owned(),
            times,
            garble: true,
            ..Fault::default()
        };
        let faults = [
            CountedFault::new(fault("cut", Some(1))),
            CountedFault::new(fault("always", None)),
        ];
        let applies = |body: &str| {
            fault_for(format!("POST / HTTP/1.1\r\n\r\n{body}").as_bytes(), &faults).garble
        };
        assert_eq!(
            [
                applies("cut"),
                applies("cut"),
                applies("always"),
                applies("always"),
                applies("else"),
                applies("")
            ],
            [true, false, true, true, false, false]
        );
    }

    #[test]
    fn faults_apply_to_each_event() {
        let events = || {
            vec![
                b"data: {1}\n\n".to_vec(),
                b"data: {2}\n\n".to_vec(),
                b"data: {3}\n\n".to_vec(),
            ]
        };
        let text = |fault: Fault| {
            String::from_utf8(inject(events(), &fault).concat())
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
            (take_events(&mut waiting).len(), waiting),
            (2, b"c".to_vec())
        );
    }
}
