//! Counting what a message repeats, before it is decoded.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Whether the field at the end of `path` is there no more than `most` times, in all messages that lie on the path.
/// What is no protobuf is left to the decoder.
pub(super) fn at_most(most: usize, bytes: &[u8], path: &[u32]) -> bool {
    let mut found = 0;
    count(bytes, path, most, &mut found);
    found <= most
}

/// Stops where the bytes do, where they are broken, and where there is too much already.
fn count(mut bytes: &[u8], path: &[u32], most: usize, found: &mut usize) {
    let Some((field, rest)) = path.split_first() else {
        *found += 1;
        return;
    };
    while !bytes.is_empty() && *found <= most {
        let Ok((tag, wire)) = decode_key(&mut bytes) else {
            return;
        };
        if tag != *field || wire != WireType::LengthDelimited {
            if skip_field(wire, tag, &mut bytes, DecodeContext::default()).is_err() {
                return;
            }
            continue;
        }
        let length = decode_varint(&mut bytes)
            .ok()
            .and_then(|length| usize::try_from(length).ok());
        let Some((inner, after)) = length.and_then(|length| bytes.split_at_checked(length)) else {
            return;
        };
        count(inner, rest, most, found);
        bytes = after;
    }
}

#[cfg(test)]
mod tests {
    use attache_proto::v1;
    use prost::Message;

    use super::*;

    #[test]
    fn s62_parts_are_counted_wherever_they_hide() {
        let message = v1::Message {
            parts: vec![v1::Part::default(); 3],
            ..Default::default()
        };
        let message = v1::Message {
            message_id: "m".to_owned(),
            ..message
        };
        let request = v1::SendMessageRequest {
            tenant: "t".to_owned(),
            message: Some(message),
            ..v1::SendMessageRequest::default()
        };
        let once = request.encode_to_vec();
        // Pieces of one message may come apart; a decoder puts them together.
        let twice = once.repeat(2);
        assert!(at_most(3, &once, &[2, 5]) && !at_most(2, &once, &[2, 5]));
        assert!(at_most(6, &twice, &[2, 5]) && !at_most(5, &twice, &[2, 5]));
        for cut in 0..once.len() {
            assert!(at_most(3, &once[..cut], &[2, 5]));
        }
    }
}
