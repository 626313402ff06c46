//! The bytes of the rpcs: each operation takes and gives the message that its rpc says, and no bytes make it panic.

use attache::model::{Operation, Response, Version};
use attache::wire::{read_grpc, write_grpc, write_grpc_event};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::{self, Fit};
use crate::wire::protobuf::{read_request, write_event, write_request, write_response};

const CASES: u32 = 300;

#[test]
fn requests_are_read_from_the_message_of_their_rpc() {
    strategies::check(CASES, strategies::request(Fit::Protobuf), |request| {
        for version in Version::ALL {
            let Some((_, bytes)) = write_request(&request, version) else {
                continue;
            };
            let read = read_grpc(request.operation(), version, &bytes);
            prop_assert_eq!(read, read_request(&request, version, &bytes));
        }
        Ok(())
    });
}

#[test]
fn answers_are_written_as_the_message_of_their_rpc() {
    strategies::check(CASES, strategies::response(Fit::Protobuf), |response| {
        for version in Version::ALL {
            let mut out = Vec::new();
            let written = write_grpc(&mut out, &response, version);
            match (write_response(&response, version), &response) {
                (Some((_, bytes)), _) => prop_assert_eq!((written, out), (Ok(()), bytes)),
                (None, Response::Empty) => prop_assert_eq!((written, out), (Ok(()), Vec::new())),
                // 0.3 has no such answer, or not of this agent.
                (None, _) => prop_assert!(written.is_err() && out.is_empty(), "{:?}", written),
            }
        }
        Ok(())
    });
}

#[test]
fn events_are_written_as_the_message_of_their_rpc() {
    let events = (strategies::stream_response(Fit::Protobuf), any::<bool>());
    strategies::check(CASES, events, |(event, closes)| {
        for version in Version::ALL {
            let mut out = Vec::new();
            write_grpc_event(&mut out, &event, closes, version);
            prop_assert_eq!(out, write_event(&event, closes, version).1);
        }
        Ok(())
    });
}

#[test]
fn no_bytes_make_a_reader_panic() {
    strategies::check(CASES, vec(any::<u8>(), 0..64), |bytes| {
        for operation in Operation::ALL {
            for version in Version::ALL {
                let _ = read_grpc(operation, version, &bytes);
            }
        }
        Ok(())
    });
}
