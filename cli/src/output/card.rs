//! Text format of agent cards.

use attache::model::{AgentCard, OAuthFlows, SecurityScheme};

use super::text::TextPage;

impl TextPage {
    pub(crate) fn add_card(&mut self, card: &AgentCard, signature: &str) {
        self.add_field("Agent", &card.name);
        self.add_field("Description", &card.description);
        self.add_field("Version", &card.version);
        if let Some(provider) = &card.provider {
            self.add_field(
                "Provider",
                &format!("{} {}", provider.organization, provider.url),
            );
        }
        for one in &card.supported_interfaces {
            let tenant = one
                .tenant
                .as_ref()
                .map(|tenant| format!(" tenant {tenant}"))
                .unwrap_or_default();
            self.add_field(
                "Interface",
                &format!(
                    "{} {} {}{tenant}",
                    one.protocol_binding, one.protocol_version, one.url
                ),
            );
        }
        self.add_capabilities(card);
        for (name, scheme) in &card.security_schemes {
            self.add_field("Scheme", &format!("{name} ({})", describe(scheme)));
        }
        if self.is_verbose() {
            self.add_field("Input", &card.default_input_modes.join(", "));
            self.add_field("Output", &card.default_output_modes.join(", "));
        }
        for skill in &card.skills {
            self.add_field(
                "Skill",
                &format!("{} ({}): {}", skill.id, skill.name, skill.description),
            );
        }
        self.add_field("Signature", signature);
    }

    fn add_capabilities(&mut self, card: &AgentCard) {
        let can = &card.capabilities;
        for (is, name) in [
            (can.streaming, "streaming"),
            (can.push_notifications, "push notifications"),
            (can.extended_agent_card, "extended card"),
        ] {
            if is == Some(true) {
                self.add_field("Capability", name);
            }
        }
        for extension in &can.extensions {
            let needed = if extension.required == Some(true) {
                " (required)"
            } else {
                ""
            };
            self.add_field(
                "Capability",
                &format!("extension {}{needed}", extension.uri),
            );
        }
    }
}

fn describe(scheme: &SecurityScheme) -> String {
    match scheme {
        SecurityScheme::ApiKey(key) => format!("API key in {} {}", key.location, key.name),
        SecurityScheme::HttpAuth(http) => format!("HTTP {}", http.scheme),
        SecurityScheme::OAuth2(oauth) => {
            format!(
                "OAuth 2, {}",
                oauth.flows.as_ref().map_or("unknown flow", flow)
            )
        }
        SecurityScheme::OpenIdConnect(oidc) => {
            format!("OpenID Connect, {}", oidc.open_id_connect_url)
        }
        SecurityScheme::MutualTls(_) => "mutual TLS".to_owned(),
    }
}

fn flow(flow: &OAuthFlows) -> &'static str {
    match flow {
        OAuthFlows::AuthorizationCode(_) => "authorization code",
        OAuthFlows::ClientCredentials(_) => "client credentials",
        OAuthFlows::Implicit(_) => "implicit",
        OAuthFlows::Password(_) => "password",
        OAuthFlows::DeviceCode(_) => "device code",
    }
}
