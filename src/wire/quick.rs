//! The most frequent calls of 1.0 as nearly everybody writes them, read in one go: elsewhere params are looked over to find
//! their end, and read once their method is known.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{check_depth, read_strictly};
use super::jsonrpc::{Id, Text};
use super::method::{Method, method};
use super::v1::{SendIn, sent};
use crate::model::{Operation, Request, Version};

/// A call that sends a message or reads a task, with its params.
pub struct Quick<'a> {
    /// To be sent back as it is.
    pub id: Id<'a>,
    /// What is called.
    pub method: Method,
    /// What is asked for.
    pub request: Request,
}

/// Reads a call of 1.0 that sends a message or reads a task, and names its method before its params. `None` for whatever else it is, and
/// for whatever is wrong with it: [`read_request`](super::jsonrpc::read_request) says what.
#[must_use]
pub fn read_quickly(body: &[u8]) -> Option<Quick<'_>> {
    let text = check_depth(body).ok()?;
    let Envelope { id, method, request } = read_strictly::<_, false>(text).ok()?;
    Some(Quick { id: Id::read(id)?, method, request })
}

struct Envelope<'a> {
    id: Option<&'a RawValue>,
    method: Method,
    request: Request,
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
        f.write_str("a frequent call")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut version, mut id, mut called, mut request) = (None, None, None, None);
        while let Some(Text(name)) = members.next_key()? {
            match (&*name, called) {
                ("jsonrpc", _) if version.is_none() => version = Some(members.next_value::<Text<'_>>()?),
                ("id", _) if id.is_none() => id = Some(members.next_value::<&RawValue>()?),
                ("method", None) => called = Some(frequent(&members.next_value()?).ok_or_else(unusual)?),
                ("params", Some(Method { operation, .. })) if request.is_none() => {
                    request = Some(params(operation, &mut members)?);
                }
                _ => return Err(unusual()),
            }
        }
        match (version, called, request) {
            (Some(Text(version)), Some(method), Some(request)) if version == "2.0" => {
                Ok(Envelope { id, method, request })
            }
            _ => Err(unusual()),
        }
    }
}

/// The params of one of the frequent methods.
fn params<'de, A: MapAccess<'de>>(operation: Operation, members: &mut A) -> Result<Request, A::Error> {
    if operation == Operation::GetTask {
        return members.next_value().map(Request::GetTask);
    }
    // A message without an id is only taken from clients that show in another way who they are.
    let send = sent(members.next_value::<SendIn>()?, || false);
    let send = send.filter(|send| !send.message.message_id.is_empty()).ok_or_else(unusual)?;
    Ok(match operation {
        Operation::SendStreamingMessage => Request::SendStreamingMessage(send),
        _ => Request::SendMessage(send),
    })
}

/// The method of 1.0 with this name, if it is one of the frequent ones.
fn frequent(Text(name): &Text<'_>) -> Option<Method> {
    let method = method(name).ok().filter(|method| method.key.version() == Version::V1)?;
    let frequent = [Operation::SendMessage, Operation::SendStreamingMessage, Operation::GetTask];
    frequent.contains(&method.operation).then_some(method)
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
        read_quickly(format!("{{{}}}", members.replace("PARAMS", PARAMS)).as_bytes()).is_some()
    }

    #[test]
    fn what_is_unusual_or_wrong_is_left_to_those_who_say_so() {
        let usual = r#""jsonrpc":"2.0","id":1,"method":"SendMessage","params":PARAMS"#;
        assert!(is_read(usual));
        assert!(is_read(&usual.replace("SendMessage", "SendStreamingMessage")));
        assert!(is_read(&usual.replace(r#""id":1,"#, "")));
        assert!(is_read(
            r#""jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t","historyLength":3}"#
        ));
        for other in [
            r#""jsonrpc":"2.0","id":1,"params":PARAMS,"method":"SendMessage""#.to_owned(),
            usual.replace("2.0", "1.0"),
            usual.replace(r#""jsonrpc":"2.0","#, ""),
            usual.replace("SendMessage", "message/send"),
            usual.replace("SendMessage", "CancelTask"),
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
