//! Allowed and required members of each object in each form. Written documents are checked against
//! these tables.

use std::collections::BTreeSet;
use std::fmt;

use attache::wire::card::CardForm;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::wire::lossy_conversion::Form;

/// Table to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shapes {
    Of(Form),
    Card(CardForm),
}

/// Checks a document against a shape. `!` marks required members, `:` names the shape of a member,
/// `:*` that of each of its members.
///
/// 01 §5: required members are always written, none is `null` or duplicate, and the document is on
/// one line.
pub(crate) fn check(shapes: Shapes, shape: &str, text: &[u8]) -> Result<(), TestCaseError> {
    prop_assert!(text.iter().all(|&byte| byte >= b' '), "a control character");
    let text = std::str::from_utf8(text).unwrap();
    walk(shapes, shape, text)
        .map_err(|fault| TestCaseError::fail(format!("{shapes:?} {shape}{fault}\n{text}")))
}

/// Whether no object in the document has duplicate names.
pub(crate) fn is_unique(text: &str) -> bool {
    if text.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text).unwrap();
        return items.iter().all(|item| is_unique(item.get()));
    }
    let Ok(Members(members)) = serde_json::from_str(text) else {
        return true;
    };
    let mut seen = BTreeSet::new();
    members
        .iter()
        .all(|(name, value)| seen.insert(name) && is_unique(value.get()))
}

fn walk(shapes: Shapes, shape: &str, text: &str) -> Result<(), String> {
    if text.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text).unwrap();
        return items
            .iter()
            .try_for_each(|item| walk(shapes, shape, item.get()));
    }
    let Ok(Members(members)) = serde_json::from_str(text) else {
        return Err(" is no object".to_owned());
    };
    if let Some(shape) = shape.strip_prefix('*') {
        return members
            .iter()
            .try_for_each(|(_, value)| walk(shapes, shape, value.get()));
    }
    let kind = members
        .iter()
        .find(|(name, _)| name == "kind")
        .map(|(_, kind)| kind.get());
    let Some(allowed_members) = allowed_members(shapes, shape, kind) else {
        return Ok(());
    };
    let known: Vec<_> = allowed_members
        .split_whitespace()
        .map(Member::new)
        .collect();
    let mut seen = BTreeSet::new();
    for (at, (name, value)) in members.iter().enumerate() {
        let Some(member) = known.iter().find(|known| known.name == name) else {
            return Err(format!(".{name} is not one of {allowed_members}"));
        };
        if !seen.insert(name)
            || (name == "kind" && at > 0)
            || value.get() == "null" && name != "data"
        {
            return Err(format!(".{name} is there twice, null, or late"));
        }
        if let Some(shape) = member.shape {
            walk(shapes, shape, value.get()).map_err(|fault| format!(".{name}{fault}"))?;
        }
    }
    match known
        .iter()
        .find(|known| known.required && !seen.contains(&known.name.to_owned()))
    {
        Some(missing) => Err(format!(".{} is missing", missing.name)),
        None => Ok(()),
    }
}

struct Member<'a> {
    name: &'a str,
    required: bool,
    shape: Option<&'a str>,
}

impl<'a> Member<'a> {
    fn new(token: &'a str) -> Self {
        let (name, shape) = token
            .split_once(':')
            .map_or((token, None), |(name, shape)| (name, Some(shape)));
        Self {
            name: name.trim_start_matches('!'),
            required: name.starts_with('!'),
            shape,
        }
    }
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Returns the members of a shape; `None` if they are not fixed.
fn allowed_members(shapes: Shapes, shape: &str, kind: Option<&str>) -> Option<&'static str> {
    match shapes {
        Shapes::Of(Form::V1) => Some(v1(shape)),
        Shapes::Of(Form::V03) if shape == "Part" => part_v03(kind),
        Shapes::Of(Form::V03) => Some(v03(shape)),
        Shapes::Of(_) => Some(v03_rest(shape)),
        Shapes::Card(form) => Some(card(form, shape)),
    }
}

fn v1(shape: &str) -> &'static str {
    match shape {
        "Event" => {
            "task:Task message:Message statusUpdate:StatusEvent artifactUpdate:ArtifactEvent"
        }
        "Task" => "!id !status:Status contextId artifacts:Artifact history:Message metadata",
        "Status" => "!state message:Message timestamp",
        "Message" => {
            "!messageId !role !parts:Part contextId taskId referenceTaskIds extensions metadata"
        }
        "Part" => "text raw url data filename mediaType metadata",
        "Artifact" => "!artifactId !parts:Part name description extensions metadata",
        "StatusEvent" => "!taskId !contextId !status:Status metadata",
        "ArtifactEvent" => "!taskId !contextId !artifact:Artifact append lastChunk metadata",
        "Tasks" => "!tasks:Task !nextPageToken !pageSize !totalSize",
        "PushConfig" => "!url tenant id taskId token authentication:Authentication",
        "Authentication" => "!scheme credentials",
        "PushConfigs" => "!configs:PushConfig nextPageToken",
        "SendMessage" => "!message:Message tenant configuration:Configuration metadata",
        "Configuration" => {
            "acceptedOutputModes taskPushNotificationConfig:PushConfig historyLength returnImmediately"
        }
        "GetTask" => "!id tenant historyLength",
        "ListTasks" => {
            "tenant contextId status pageSize pageToken historyLength statusTimestampAfter includeArtifacts"
        }
        "CancelTask" => "!id tenant metadata",
        "SubscribeToTask" => "!id tenant",
        "GetPushConfig" | "DeletePushConfig" => "!taskId !id tenant",
        "ListPushConfigs" => "!taskId tenant pageSize pageToken",
        "GetExtendedAgentCard" => "tenant",
        _ => panic!("no shape {shape}"),
    }
}

/// Returns the members of a 0.3 part by its kind; parts of unknown kinds may have any.
fn part_v03(kind: Option<&str>) -> Option<&'static str> {
    match kind {
        Some(r#""text""#) => Some("!kind !text metadata"),
        Some(r#""file""#) => Some("!kind !file:File metadata"),
        Some(r#""data""#) => Some("!kind !data metadata"),
        Some(_) => None,
        None => Some("!kind"),
    }
}

fn v03(shape: &str) -> &'static str {
    match shape {
        "Task" => "!kind !id !contextId !status:Status artifacts:Artifact history:Message metadata",
        "Status" => "!state message:Message timestamp",
        "Message" => {
            "!kind !messageId !role !parts:Part contextId taskId referenceTaskIds extensions metadata"
        }
        "File" => "bytes uri mimeType name",
        "Artifact" => "!artifactId !parts:Part name description extensions metadata",
        "StatusEvent" => "!kind !taskId !contextId !status:Status !final metadata",
        "ArtifactEvent" => {
            "!kind !taskId !contextId !artifact:Artifact !append !lastChunk metadata"
        }
        "Tasks" => "!tasks:Task !nextPageToken !pageSize !totalSize",
        "PushConfigs" | "PushConfig" | "CreatePushConfig" => {
            "!taskId !pushNotificationConfig:Nested"
        }
        "Nested" => "!url id token authentication:Authentication",
        "Authentication" => "!schemes credentials",
        "SendMessage" => "!message:Message configuration:Configuration metadata",
        "Configuration" => {
            "!blocking historyLength acceptedOutputModes pushNotificationConfig:Nested"
        }
        "GetTask" => "!id historyLength",
        "CancelTask" => "!id metadata",
        "SubscribeToTask" | "ListPushConfigs" => "!id",
        "GetPushConfig" | "DeletePushConfig" => "!id !pushNotificationConfigId",
        "GetExtendedAgentCard" => "",
        _ => panic!("no shape {shape}"),
    }
}

fn v03_rest(shape: &str) -> &'static str {
    match shape {
        "Event" => {
            "task:Task message:Message statusUpdate:StatusEvent artifactUpdate:ArtifactEvent"
        }
        "Task" => "!id !contextId !status:Status artifacts:Artifact history:Message metadata",
        "Status" => "!state message:Message timestamp",
        "Message" => "!messageId !role !content:Part contextId taskId extensions metadata",
        "Part" => "text file:File data:Data metadata",
        "File" => "fileWithBytes fileWithUri mimeType name",
        "Data" => "!data",
        "Artifact" => "!artifactId !parts:Part name description extensions metadata",
        "StatusEvent" => "!taskId !contextId !status:Status final metadata",
        "ArtifactEvent" => "!taskId !contextId !artifact:Artifact append lastChunk metadata",
        "PushConfig" => "!name !pushNotificationConfig:Nested",
        "PushConfigs" => "!configs:PushConfig",
        "Nested" => "!url id token authentication:Authentication",
        "Authentication" => "!schemes credentials",
        "SendMessage" => "!message:Message configuration:Configuration metadata",
        "Configuration" => "acceptedOutputModes pushNotification:Nested historyLength blocking",
        "CancelTask" => "!name",
        "CreatePushConfig" => "!parent configId !config:PushConfig",
        _ => panic!("no shape {shape}"),
    }
}

fn card(form: CardForm, shape: &str) -> &'static str {
    match shape {
        "Card" => match form {
            CardForm::V1 => {
                "!name !description !supportedInterfaces:Interface provider:Provider !version documentationUrl
                 !capabilities:Capabilities securitySchemes:*Scheme securityRequirements:Requirement
                 !defaultInputModes !defaultOutputModes !skills:Skill signatures:Signature iconUrl"
            }
            CardForm::V03 | CardForm::V03Wrapped => {
                "!protocolVersion !name !description !url !preferredTransport !additionalInterfaces:Transport
                 provider:Provider !version documentationUrl iconUrl !capabilities:Capabilities
                 securitySchemes:*Scheme security !defaultInputModes !defaultOutputModes !skills:Skill
                 supportsAuthenticatedExtendedCard signatures:Signature"
            }
            CardForm::V02 => {
                "!protocolVersion !name !description !url preferredTransport additionalInterfaces:Transport
                 provider:Provider !version documentationUrl iconUrl !capabilities:Capabilities
                 securitySchemes:*Scheme security !defaultInputModes !defaultOutputModes !skills:Skill
                 supportsAuthenticatedExtendedCard"
            }
            CardForm::Union => {
                "!name !description !supportedInterfaces:Interface provider:Provider !version documentationUrl
                 !capabilities:Capabilities securitySchemes:*Scheme securityRequirements:Requirement security
                 !defaultInputModes !defaultOutputModes !skills:Skill signatures:Signature iconUrl
                 protocolVersion url preferredTransport additionalInterfaces:Transport
                 supportedProtocols supportsAuthenticatedExtendedCard"
            }
        },
        "Capabilities" => match form {
            CardForm::V1 => "streaming pushNotifications extensions:Extension extendedAgentCard",
            CardForm::V03 | CardForm::V03Wrapped | CardForm::V02 => {
                "streaming pushNotifications extensions:Extension stateTransitionHistory"
            }
            CardForm::Union => {
                "streaming pushNotifications extensions:Extension stateTransitionHistory extendedAgentCard"
            }
        },
        "Skill" => match form {
            CardForm::V1 => {
                "!id !name !description !tags examples inputModes outputModes securityRequirements:Requirement"
            }
            CardForm::V03 | CardForm::V03Wrapped => {
                "!id !name !description !tags examples inputModes outputModes security"
            }
            CardForm::V02 => "!id !name !description !tags examples inputModes outputModes",
            CardForm::Union => {
                "!id !name !description !tags examples inputModes outputModes securityRequirements:Requirement security"
            }
        },
        "Scheme" => match form {
            CardForm::V1 => {
                "apiKeySecurityScheme:ApiKey httpAuthSecurityScheme:Http oauth2SecurityScheme:OAuth2
                 openIdConnectSecurityScheme:OpenId mtlsSecurityScheme:Tls"
            }
            CardForm::V03 => {
                "!type in name description scheme bearerFormat flows:OldFlows oauth2MetadataUrl openIdConnectUrl"
            }
            CardForm::V02 => "!type in name description scheme bearerFormat flows:OldFlows openIdConnectUrl",
            CardForm::Union => {
                "apiKeySecurityScheme:ApiKey httpAuthSecurityScheme:Http oauth2SecurityScheme:OAuth2
                 openIdConnectSecurityScheme:OpenId mtlsSecurityScheme:Tls
                 type in name description scheme bearerFormat flows:Flows oauth2MetadataUrl openIdConnectUrl"
            }
            CardForm::V03Wrapped => {
                "apiKeySecurityScheme:ApiKey httpAuthSecurityScheme:Http oauth2SecurityScheme:OAuth2
                 openIdConnectSecurityScheme:OpenId mtlsSecurityScheme:Tls
                 type in name description scheme bearerFormat flows:OldFlows oauth2MetadataUrl openIdConnectUrl"
            }
        },
        "Interface" => "!url !protocolBinding !protocolVersion tenant",
        "Transport" => "!url !transport",
        "Provider" => "!url !organization",
        "Extension" => "!uri description required params",
        "Signature" => "!protected !signature header",
        "Requirement" => "!schemes:*Scopes",
        "Scopes" => "!list",
        "ApiKey" => "!location !name description",
        "Http" => "!scheme bearerFormat description",
        "OAuth2" => "!flows:Flows oauth2MetadataUrl description",
        "OpenId" => "!openIdConnectUrl description",
        "Tls" => "description",
        "Flows" => {
            "authorizationCode:Code clientCredentials:Token implicit:Browser password:Token deviceCode:Device"
        }
        "OldFlows" => "authorizationCode:OldCode clientCredentials:Token implicit:Browser password:Token",
        "Code" => "!authorizationUrl !tokenUrl !scopes refreshUrl pkceRequired",
        "OldCode" => "!authorizationUrl !tokenUrl !scopes refreshUrl",
        "Token" => "!tokenUrl !scopes refreshUrl",
        "Browser" => "!authorizationUrl !scopes refreshUrl",
        "Device" => "!deviceAuthorizationUrl !tokenUrl !scopes refreshUrl",
        _ => panic!("no shape {shape}"),
    }
}
