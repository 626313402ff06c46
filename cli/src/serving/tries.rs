//! Commands that work as they are printed, whatever the program was started as.

use std::fmt::Write;

/// A command to paste.
pub(crate) struct Try {
    about: &'static str,
    what: What,
}

enum What {
    Say(&'static str),
    Tasks,
    Card,
}

impl Try {
    /// Says a text to the agent; one without quotes or backslashes, as it goes into both JSON and a shell.
    pub(crate) const fn say(about: &'static str, text: &'static str) -> Self {
        Self { about, what: What::Say(text) }
    }

    /// Lists tasks.
    pub(crate) const fn tasks(about: &'static str) -> Self {
        Self { about, what: What::Tasks }
    }

    /// Fetches the card.
    pub(crate) const fn card(about: &'static str) -> Self {
        Self { about, what: What::Card }
    }

    /// What it is good for.
    pub(crate) fn about(&self) -> &str {
        self.about
    }

    /// The command, for the agent at a URL. No quote in it ends the quotes around it.
    pub(crate) fn command(&self, url: &str) -> String {
        match self.what {
            What::Say(text) => {
                let parts = format!(r#"[{{"text":"{text}"}}]"#);
                let message = format!(r#"{{"messageId":"m-1","role":"ROLE_USER","parts":{parts}}}"#);
                call(url, "SendMessage", &format!(r#"{{"message":{message}}}"#))
            }
            What::Tasks => call(url, "ListTasks", "{}"),
            What::Card => format!("curl -sS '{}'", card(url)),
        }
    }
}

/// Where the card of the agent at a URL is.
pub(super) fn card(url: &str) -> String {
    format!("{url}.well-known/agent-card.json")
}

fn call(url: &str, method: &str, params: &str) -> String {
    let mut command = format!("curl -sS '{url}' -H 'Content-Type: application/json' -H 'A2A-Version: 1.0'");
    // Writing to a string cannot fail.
    let _ = write!(command, r#" -d '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'"#);
    command
}
