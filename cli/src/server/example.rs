//! Commands that work as they are printed, whatever the program was started as.

/// A command to paste.
#[derive(Clone, Copy)]
pub(crate) struct Example {
    about: &'static str,
    what: ExampleKind,
}

#[derive(Clone, Copy)]
enum ExampleKind {
    Say(&'static str),
    Stream(&'static str),
    Tasks,
    Card,
}

impl Example {
    /// Says a text to the agent.
    pub(crate) const fn say(about: &'static str, text: &'static str) -> Self {
        Self {
            about,
            what: ExampleKind::Say(text),
        }
    }

    /// Says a text to the agent, and follows what happens.
    pub(crate) const fn stream(about: &'static str, text: &'static str) -> Self {
        Self {
            about,
            what: ExampleKind::Stream(text),
        }
    }

    /// Lists tasks.
    pub(crate) const fn tasks(about: &'static str) -> Self {
        Self {
            about,
            what: ExampleKind::Tasks,
        }
    }

    /// Shows the card.
    pub(crate) const fn card(about: &'static str) -> Self {
        Self {
            about,
            what: ExampleKind::Card,
        }
    }

    /// What it is good for.
    pub(crate) fn about(&self) -> &str {
        self.about
    }

    /// Whether it is of no use where no tasks are kept.
    pub(super) fn needs_tasks(&self) -> bool {
        matches!(self.what, ExampleKind::Tasks)
    }

    /// The command, for the agent at a URL; `flags` go along.
    pub(super) fn command(&self, url: &str, flags: &[String]) -> String {
        let program = std::env::args_os().next();
        let program = program.map_or_else(
            || "attache".to_owned(),
            |word| word.to_string_lossy().into_owned(),
        );
        let (verb, more): (&[&str], &[&str]) = match &self.what {
            ExampleKind::Say(text) => (&["send"], &[*text]),
            ExampleKind::Stream(text) => (&["send"], &["--stream", *text]),
            ExampleKind::Tasks => (&["task", "list"], &[]),
            ExampleKind::Card => (&["card", "get"], &[]),
        };
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        shell_words::join([&[program.as_str()], verb, &["-a", url], &flags, more].concat())
    }
}

/// Where the card of the agent at a URL is.
pub(super) fn card_url(url: &str) -> String {
    format!("{url}.well-known/agent-card.json")
}
