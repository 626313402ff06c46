//! Interfaces that a server declares on its cards.

use serde::{Deserialize, Serialize};

#[cfg(feature = "server")]
use crate::model::{AgentCard, AgentInterface, Binding, Version};

/// Clients whose list of interfaces names gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum GrpcOnCard {
    /// Clients of 0.3. Some 1.0 clients refuse a card with an interface that has no http URL.
    V03,
    /// Clients of 0.3 and 1.0.
    All,
}

/// Interfaces of one agent of a server.
#[cfg(feature = "server")]
pub(crate) struct ServerInterfaces<'a> {
    /// Served bindings, in order of preference.
    pub(crate) bindings: &'a [Binding],
    /// URL of the agent for JSON-RPC and HTTP+JSON.
    pub(crate) url: &'a str,
    /// Host and port for gRPC.
    pub(crate) grpc_authority: &'a str,
    /// URL for gRPC in the list of 0.3.
    pub(crate) grpc_v03_url: &'a str,
    pub(crate) grpc_on_card: GrpcOnCard,
    /// Tenant that addresses an agent below the root.
    pub(crate) tenant: Option<&'a str>,
}

#[cfg(feature = "server")]
impl ServerInterfaces<'_> {
    /// Adds the interfaces to a card that declares none.
    pub(crate) fn add_to(&self, card: &mut AgentCard) {
        if !card.supported_interfaces.is_empty() {
            return;
        }
        for version in Version::ALL {
            for binding in self.bindings {
                match binding {
                    Binding::JsonRpc | Binding::HttpJson => {
                        let interface = AgentInterface::new(self.url, *binding, version);
                        card.supported_interfaces.push(interface);
                    }
                    Binding::Grpc => self.add_grpc(card, version),
                }
            }
        }
    }

    /// gRPC has no base path. Agents below the root are addressed by tenant, in versions that have
    /// tenants.
    fn add_grpc(&self, card: &mut AgentCard, version: Version) {
        if self.tenant.is_some() && !version.has_tenants() {
            return;
        }
        let url = match version {
            Version::V1 => self.grpc_authority,
            Version::V03 => self.grpc_v03_url,
        };
        let mut interface = AgentInterface::new(url, Binding::Grpc, version);
        interface.tenant = self.tenant.map(str::to_owned);
        if self.lists_grpc_for_all() {
            card.supported_interfaces.push(interface);
        } else if version == Version::V03 {
            card.legacy_interfaces.push(interface);
        }
    }

    /// Without other bindings, a card for 1.0 clients needs gRPC.
    fn lists_grpc_for_all(&self) -> bool {
        self.grpc_on_card == GrpcOnCard::All || self.bindings == [Binding::Grpc]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(change: impl FnOnce(&mut ServerInterfaces<'_>)) -> AgentCard {
        let mut interfaces = ServerInterfaces {
            bindings: &Binding::ALL,
            url: "http://h:1",
            grpc_authority: "h:1",
            grpc_v03_url: "h:1",
            grpc_on_card: GrpcOnCard::V03,
            tenant: None,
        };
        change(&mut interfaces);
        let mut card = AgentCard::new("n", "d");
        interfaces.add_to(&mut card);
        card
    }

    fn names(interfaces: &[AgentInterface]) -> Vec<String> {
        interfaces
            .iter()
            .map(|one| {
                format!(
                    "{} {} {}",
                    one.protocol_binding, one.protocol_version, one.url
                )
            })
            .collect()
    }

    #[test]
    fn grpc_is_listed_for_v03_clients_by_default() {
        let default = card(|_| {});
        assert_eq!(
            names(&default.supported_interfaces),
            [
                "JSONRPC 1.0 http://h:1",
                "HTTP+JSON 1.0 http://h:1",
                "JSONRPC 0.3 http://h:1",
                "HTTP+JSON 0.3 http://h:1"
            ]
        );
        assert_eq!(names(&default.legacy_interfaces), ["GRPC 0.3 h:1"]);
        let all = card(|interfaces| interfaces.grpc_on_card = GrpcOnCard::All);
        assert_eq!(names(&all.supported_interfaces)[2], "GRPC 1.0 h:1");
        assert_eq!(all.supported_interfaces.len(), 6);
        assert!(all.legacy_interfaces.is_empty());
    }

    #[test]
    fn only_served_bindings_are_listed_in_their_order() {
        let some = card(|interfaces| interfaces.bindings = &[Binding::HttpJson, Binding::JsonRpc]);
        assert_eq!(
            names(&some.supported_interfaces)[..2],
            ["HTTP+JSON 1.0 http://h:1", "JSONRPC 1.0 http://h:1"]
        );
        assert!(some.legacy_interfaces.is_empty());
        let grpc = card(|interfaces| {
            interfaces.bindings = &[Binding::Grpc];
            interfaces.grpc_v03_url = "http://h:1";
        });
        assert_eq!(
            names(&grpc.supported_interfaces),
            ["GRPC 1.0 h:1", "GRPC 0.3 http://h:1"]
        );
    }

    #[test]
    fn an_agent_below_the_root_has_no_grpc_in_v03() {
        let below = card(|interfaces| interfaces.tenant = Some("echo"));
        assert!(below.legacy_interfaces.is_empty());
        let below = card(|interfaces| {
            interfaces.tenant = Some("echo");
            interfaces.grpc_on_card = GrpcOnCard::All;
        });
        assert_eq!(below.supported_interfaces.len(), 5);
        assert_eq!(
            below.supported_interfaces[2].tenant.as_deref(),
            Some("echo")
        );
    }
}
