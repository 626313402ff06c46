//! Cards: one model, written as 1.0, 0.3, 0.2 or all in one, and read from any of them.

pub(super) mod legacy;
mod read;
mod scheme;
mod union;
mod write;

use serde::{Deserialize, Serialize};

use super::json;
use crate::model::{AgentCard, Error, ErrorKind};
use legacy::LegacyCard;
use read::AnyCard;
use union::Union;
use write::LegacyCardWriter;

/// Where the public card is, below the agent's base: 0.3 and 1.0 look at the first, older readers at the second.
pub const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// How a card is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CardForm {
    /// 1.0 alone.
    V1,
    /// 0.3 alone.
    V03,
    /// 0.3, with the member that 1.0 readers look for inside each security scheme.
    V03Wrapped,
    /// 0.2: 0.3 without what came later.
    V02,
    /// 1.0, and 0.3 beside it: readable by everybody.
    Union,
}

/// Writes a card.
///
/// # Errors
/// Unsupported: an older form was asked for, and the agent speaks no version older than 1.0.
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
                "This operation is not supported: the agent has no interface older than 1.0",
            ));
        }
    }
    Ok(())
}

/// Reads a card of any version, or of all at once.
///
/// # Errors
/// It is not JSON, or a member has the wrong shape.
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
    fn a_card_of_the_first_days_is_read() {
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
    fn the_card_that_names_only_its_protocols_is_json_rpc_at_its_base() {
        let card = read_card(
            br#"{"name":"k","protocolVersion":"0.3.0","supportedProtocols":["jsonrpc"],
                "capabilities":{"streaming":true,"stateTransitionHistory":true}}"#,
        );
        let card = card.unwrap();
        assert_eq!(
            card.supported_interfaces,
            [AgentInterface::new("", Binding::JsonRpc, Version::V1)]
        );
        assert_eq!(card.capabilities.state_transition_history, Some(true));
    }

    #[test]
    fn a_scheme_of_an_unknown_kind_does_not_make_a_card_unreadable() {
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
    fn several_flows_under_one_name_become_several_schemes() {
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
    fn what_older_versions_cannot_say_is_left_out_with_all_that_needs_it() {
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
        // Without a type, readers of 0.3 take it for something else or refuse the card.
        let device = &union["securitySchemes"]["d"];
        assert_eq!(device["type"], "oauth2");
        assert_eq!(device["flows"], device["oauth2SecurityScheme"]["flows"]);
    }

    #[test]
    fn an_agent_that_speaks_only_1_0_has_no_older_card_and_a_plain_union() {
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
