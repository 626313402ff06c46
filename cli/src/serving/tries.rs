//! Commands that work as they are printed, whatever the program was started as.

/// A command to paste.
pub(crate) struct Try {
    about: &'static str,
    what: What,
}

enum What {
    Say(&'static str),
    Stream(&'static str),
    Tasks,
    Card,
}

impl Try {
    /// Says a text to the agent.
    pub(crate) const fn say(about: &'static str, text: &'static str) -> Self {
        Self { about, what: What::Say(text) }
    }

    /// Says a text to the agent, and follows what happens.
    pub(crate) const fn stream(about: &'static str, text: &'static str) -> Self {
        Self { about, what: What::Stream(text) }
    }

    /// Lists tasks.
    pub(crate) const fn tasks(about: &'static str) -> Self {
        Self { about, what: What::Tasks }
    }

    /// Shows the card.
    pub(crate) const fn card(about: &'static str) -> Self {
        Self { about, what: What::Card }
    }

    /// What it is good for.
    pub(crate) fn about(&self) -> &str {
        self.about
    }

    /// The command, for the agent at a URL.
    pub(crate) fn command(&self, url: &str) -> String {
        let program = std::env::args_os().next();
        let program =
            program.map_or_else(|| "attache".to_owned(), |word| word.to_string_lossy().into_owned());
        let words: Vec<&str> = match self.what {
            What::Say(text) => vec!["send", "-a", url, text],
            What::Stream(text) => vec!["send", "-a", url, "--stream", text],
            What::Tasks => vec!["task", "list", "-a", url],
            What::Card => vec!["card", "get", "-a", url],
        };
        shell_words::join([program.as_str()].into_iter().chain(words))
    }
}

/// Where the card of the agent at a URL is.
pub(super) fn card(url: &str) -> String {
    format!("{url}.well-known/agent-card.json")
}
