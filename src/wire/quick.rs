//! Messages of 1.0 as nearly everybody writes them, read in one go: elsewhere params are looked over to find their end,
//! and read once their method is known.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{check_depth, read_strictly};
use super::jsonrpc::{Id, Text};
use super::method::{Method, method};
use super::v1::{SendIn, sent};
use crate::model::{Operation, Request, Version};

/// A call that sends a message, with its params.
pub struct Sent<'a> {
    /// To be sent back as it is.
    pub id: Id<'a>,
    /// What is called.
    pub method: Method,
    /// What is asked for.
    pub request: Request,
}

/// Reads a call of 1.0 that sends a message and names its method before its params. `None` for whatever else it is, and
/// for whatever is wrong with it: [`read_request`](super::jsonrpc::read_request) says what.
#[must_use]
pub fn read_sent(body: &[u8]) -> Option<Sent<'_>> {
    let text = check_depth(body).ok()?;
    let Envelope { id, method, params } = read_strictly::<_, false>(text).ok()?;
    let id = Id::read(id)?;
    // One without an id is only taken from clients that show in another way who they are.
    let send = sent(params, || false).filter(|send| !send.message.message_id.is_empty())?;
    let request = match method.operation {
        Operation::SendStreamingMessage => Request::SendStreamingMessage(send),
        _ => Request::SendMessage(send),
    };
    Some(Sent { id, method, request })
}

struct Envelope<'a> {
    id: Option<&'a RawValue>,
    method: Method,
    params: SendIn,
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call that sends a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut version, mut id, mut called, mut params) = (None, None, None, None);
        while let Some(Text(name)) = members.next_key()? {
            match (&*name, called) {
                ("jsonrpc", _) if version.is_none() => version = Some(members.next_value::<Text<'_>>()?),
                ("id", _) if id.is_none() => id = Some(members.next_value::<&RawValue>()?),
                ("method", None) => called = Some(sends(&members.next_value()?).ok_or_else(unusual)?),
                ("params", Some(_)) if params.is_none() => params = Some(members.next_value()?),
                _ => return Err(unusual()),
            }
        }
        match (version, called, params) {
            (Some(Text(version)), Some(method), Some(params)) if version == "2.0" => {
                Ok(Envelope { id, method, params })
            }
            _ => Err(unusual()),
        }
    }
}

/// The method of 1.0 with this name, if it sends a message.
fn sends(Text(name): &Text<'_>) -> Option<Method> {
    let method = method(name).ok().filter(|method| method.key.version() == Version::V1)?;
    let sends = matches!(method.operation, Operation::SendMessage | Operation::SendStreamingMessage);
    sends.then_some(method)
}

/// Nobody is told: it is read again, by somebody who says what is wrong.
fn unusual<E: Error>() -> E {
    E::custom("unusual")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: &str = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;

    fn is_read(members: &str) -> bool {
        read_sent(format!("{{{}}}", members.replace("PARAMS", PARAMS)).as_bytes()).is_some()
    }

    #[test]
    fn what_is_unusual_or_wrong_is_left_to_those_who_say_so() {
        let usual = r#""jsonrpc":"2.0","id":1,"method":"SendMessage","params":PARAMS"#;
        assert!(is_read(usual));
        assert!(is_read(&usual.replace("SendMessage", "SendStreamingMessage")));
        assert!(is_read(&usual.replace(r#""id":1,"#, "")));
        for other in [
            r#""jsonrpc":"2.0","id":1,"params":PARAMS,"method":"SendMessage""#.to_owned(),
            usual.replace("2.0", "1.0"),
            usual.replace(r#""jsonrpc":"2.0","#, ""),
            usual.replace("SendMessage", "message/send"),
            usual.replace("SendMessage", "GetTask"),
            usual.replace("\"id\":1", "\"id\":[]"),
            usual.replace("PARAMS", "{}"),
            usual.replace("PARAMS", "[]"),
            format!("{usual},\"params\":PARAMS"),
            format!("{usual},\"method\":\"SendMessage\""),
            format!("\"jsonrpc\":\"2.0\",{usual}"),
            format!("\"id\":2,{usual}"),
            format!("{usual},\"more\":1"),
            format!("{usual}}} {{"),
        ] {
            assert!(!is_read(&other), "{other}");
        }
        let nameless = usual.replace("PARAMS", &PARAMS.replace(r#""messageId":"m","#, ""));
        assert!(!is_read(&nameless), "{nameless}");
    }
}
