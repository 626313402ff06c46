//! Agent cards: written as 1.0, 0.3, 0.2 or a union of all, and read from any of them (03 §7).

mod interfaces;
pub(super) mod legacy;
mod read;
mod scheme;
mod union;
mod write;

use serde::{Deserialize, Serialize};

use super::json;
use crate::model::{AgentCard, Error, ErrorKind};
pub use interfaces::GrpcOnCard;
#[cfg(feature = "server")]
pub(crate) use interfaces::ServerInterfaces;
use legacy::LegacyCard;
use read::AnyCard;
use union::Union;
use write::LegacyCardWriter;

/// Paths of the public card below the agent's base. 0.3 and 1.0 clients use the first, older ones
/// the second.
pub const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// Form in which a card is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CardForm {
    /// 1.0 only.
    V1,
    /// 0.3 only.
    V03,
    /// 0.3, plus the member that 1.0 readers expect in each security scheme.
    V03Wrapped,
    /// 0.2: 0.3 without later additions.
    V02,
    /// 1.0 and 0.3 in one document, readable by clients of every version.
    Union,
}

/// Writes a card.
///
/// # Errors
/// Unsupported operation: an older form is requested, but the card has no interface before 1.0.
pub fn write_card(out: &mut Vec<u8>, card: &AgentCard, form: CardForm) -> Result<(), Error> {
    let legacy = LegacyCard::new(card);
    match (form, legacy) {
        (CardForm::V1, _) | (CardForm::Union, None) => super::write_json(out, card),
        (CardForm::Union, Some(legacy)) => super::write_json(out, &Union(card, &legacy)),
        (CardForm::V03 | CardForm::V03Wrapped | CardForm::V02, Some(legacy)) => {
            super::write_json(out, &LegacyCardWriter(card, &legacy, form));
        }
        (CardForm::V03 | CardForm::V03Wrapped | CardForm::V02, None) => {
            return Err(Error::new(ErrorKind::UnsupportedOperation).with_message(
                "This operation is not supported: the agent has no interface before version 1.0",
            ));
        }
    }
    Ok(())
}

/// Reads a card of any version or a union.
///
/// # Errors
/// The body is not JSON, or a member is invalid.
pub fn read_card(body: &[u8]) -> Result<AgentCard, Error> {
    read_card_text(json::check(body)?)
}

pub(crate) fn read_card_text(text: &str) -> Result<AgentCard, Error> {
    Ok(json::read::<AnyCard>(text)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AgentInterface, Binding, SecurityRequirement, Version};
    use serde_json::{Value, json};

    fn written(card: &AgentCard, form: CardForm) -> Value {
        let mut out = Vec::new();
        write_card(&mut out, card, form).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn v01_card_is_read() {
        let card = read_card(br#"{"name":"n","url":"u","authentication":{"schemes":["Bearer"]}}"#)
            .unwrap();
        assert_eq!(
            card.supported_interfaces,
            [AgentInterface::new("u", Binding::JsonRpc, Version::V03)]
        );
        assert_eq!(
            card.security_requirements,
            [SecurityRequirement::new("Bearer", Vec::<String>::new())]
        );
    }

    #[test]
    fn kaos_card_has_one_interface_with_its_methods() {
        let seed = include_bytes!("../../../tests/golden/seed/kaos-card.json");
        let card = read_card(seed).unwrap();
        let interface = &card.supported_interfaces[0];
        assert_eq!(card.supported_interfaces.len(), 1);
        assert!(interface.is_kaos() && interface.url.is_empty());
        assert_eq!(interface.binding(), Some(Binding::JsonRpc));
        assert_eq!(interface.protocol_version, Version::V03.as_str());
        assert_eq!(card.capabilities.state_transition_history, Some(true));
    }

    #[test]
    fn supported_protocols_are_ignored_beside_official_members() {
        for official in [
            r#""preferredTransport":"JSONRPC""#,
            r#""additionalInterfaces":[{"url":"r","transport":"HTTP+JSON"}]"#,
            r#""supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]"#,
        ] {
            let card =
                format!(r#"{{"name":"n","url":"u","supportedProtocols":["jsonrpc"],{official}}}"#);
            let card = read_card(card.as_bytes()).unwrap();
            assert!(
                card.supported_interfaces.iter().all(|one| !one.is_kaos()),
                "{official}"
            );
        }
    }

    #[test]
    fn unknown_scheme_type_is_dropped() {
        let card = json!({
            "url": "u",
            "securitySchemes": {
                "new": {"dpopSecurityScheme": {"x": 1}},
                "odd": {"type": "basic"},
                "key": {"type": "apiKey", "in": "header", "name": "K"},
            },
            "security": [{"new": []}, {"key": []}],
        });
        let card = read_card(card.to_string().as_bytes()).unwrap();
        assert_eq!(card.security_schemes.keys().collect::<Vec<_>>(), ["key"]);
        assert_eq!(card.security_requirements.len(), 2);
        let both = json!({"url": "u", "securitySchemes": {"x": {
            "apiKeySecurityScheme": {"location": "header", "name": "K"}, "mtlsSecurityScheme": {},
        }}});
        assert!(read_card(both.to_string().as_bytes()).is_err());
    }

    #[test]
    fn several_flows_of_one_scheme_become_several_schemes() {
        let flow = json!({"tokenUrl": "t", "authorizationUrl": "a", "scopes": {}});
        let card = json!({
            "url": "u",
            "securitySchemes": {"o": {"type": "oauth2", "flows": {"implicit": flow, "clientCredentials": flow}}},
            "security": [{"o": ["s"]}],
        });
        let card = read_card(card.to_string().as_bytes()).unwrap();
        assert_eq!(
            card.security_schemes.keys().collect::<Vec<_>>(),
            ["o", "o.implicit"]
        );
        let either = [
            SecurityRequirement::new("o", ["s"]),
            SecurityRequirement::new("o.implicit", ["s"]),
        ];
        assert_eq!(card.security_requirements, either);
    }

    #[test]
    fn unrepresentable_schemes_and_their_requirements_are_omitted() {
        let card = json!({
            "supportedInterfaces": [{"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}],
            "securitySchemes": {
                "d": {"oauth2SecurityScheme": {"flows": {"deviceCode": {"deviceAuthorizationUrl": "d", "tokenUrl": "t"}}}},
                "k": {"apiKeySecurityScheme": {"location": "header", "name": "K"}},
            },
            "securityRequirements": [{"schemes": {"d": {}, "k": {}}}, {"schemes": {"k": []}}],
        });
        let card = read_card(card.to_string().as_bytes()).unwrap();
        let old = written(&card, CardForm::V03);
        assert_eq!(
            old["securitySchemes"],
            json!({"k": {"type": "apiKey", "in": "header", "name": "K"}})
        );
        assert_eq!(old["security"], json!([{"k": []}]));
        let union = written(&card, CardForm::Union);
        assert_eq!(union["security"], json!([{"k": []}]));
        assert_eq!(union["securityRequirements"].as_array().unwrap().len(), 2);
        // Without a `type`, 0.3 clients misinterpret the scheme or reject the card.
        let device = &union["securitySchemes"]["d"];
        assert_eq!(device["type"], "oauth2");
        assert_eq!(device["flows"], device["oauth2SecurityScheme"]["flows"]);
    }

    #[test]
    fn v1_only_card_has_no_legacy_form() {
        let card = AgentCard::new("n", "d")
            .interface("u", Binding::JsonRpc, Version::V1)
            .with_default_skill();
        assert_eq!(
            written(&card, CardForm::Union),
            written(&card, CardForm::V1)
        );
        let error = write_card(&mut Vec::new(), &card, CardForm::V03).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }
}
