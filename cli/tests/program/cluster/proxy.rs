//! TCP proxy between a replica and its database: passes, holds back or loses data, and cuts connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// State of the network between a replica and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Open,
    /// No data passes; connections stay open.
    Paused,
    /// Statements reach the database, answers do not arrive.
    AnswersLost,
}

/// Running proxy.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    network: Network,
    /// Open connections on both sides.
    streams: Vec<TcpStream>,
}

impl Proxy {
    pub(crate) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            network: Network::Open,
            streams: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let server = server.to_owned();
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                // While the database is down, the client sees a closed connection.
                if let Ok(upstream) = TcpStream::connect(&server) {
                    of_thread.relay(client, upstream);
                }
            }
        });
        Self { address, shared }
    }

    pub(crate) fn set(&self, network: Network) {
        self.shared.state.lock().unwrap().network = network;
        self.shared.changed.notify_all();
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for stream in self.shared.state.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn relay(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let mut state = self.state.lock().unwrap();
        state.streams.push(client.try_clone().unwrap());
        state.streams.push(server.try_clone().unwrap());
        drop(state);
        for (from, to, is_answer) in [(&client, &server, false), (&server, &client, true)] {
            let from = from.try_clone().unwrap();
            let to = to.try_clone().unwrap();
            let shared = Arc::clone(self);
            thread::spawn(move || shared.copy(from, to, is_answer));
        }
    }

    /// Copies one direction until it is closed.
    fn copy(&self, mut from: TcpStream, mut to: TcpStream, is_answer: bool) {
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let state = self.state.lock().unwrap();
            let is_held = |state: &mut State| match state.network {
                Network::Open => false,
                Network::Paused => true,
                Network::AnswersLost => is_answer,
            };
            drop(self.changed.wait_while(state, is_held).unwrap());
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
