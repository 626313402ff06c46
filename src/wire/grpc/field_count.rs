//! Counts repeated fields in an encoded protobuf message before it is decoded.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Whether the field at `path` occurs at most `limit` times in all messages on the path. Invalid
/// protobuf is left to the decoder.
pub(super) fn has_at_most(limit: usize, bytes: &[u8], path: &[u32]) -> bool {
    let mut count = 0;
    count_fields(bytes, path, limit, &mut count);
    count <= limit
}

/// Counts occurrences. Stops at the end, at invalid bytes, and when the limit is exceeded.
fn count_fields(mut bytes: &[u8], path: &[u32], limit: usize, count: &mut usize) {
    let Some((field, rest)) = path.split_first() else {
        *count += 1;
        return;
    };
    while !bytes.is_empty() && *count <= limit {
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
        count_fields(inner, rest, limit, count);
        bytes = after;
    }
}

#[cfg(test)]
mod tests {
    use attache_proto::v1;
    use prost::Message;

    use super::*;

    #[test]
    fn s62_parts_are_counted_in_split_messages() {
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
        // An embedded message may be split; decoders merge the pieces.
        let twice = once.repeat(2);
        assert!(has_at_most(3, &once, &[2, 5]) && !has_at_most(2, &once, &[2, 5]));
        assert!(has_at_most(6, &twice, &[2, 5]) && !has_at_most(5, &twice, &[2, 5]));
        for cut in 0..once.len() {
            assert!(has_at_most(3, &once[..cut], &[2, 5]));
        }
    }
}
