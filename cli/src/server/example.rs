//! Example commands of the banner. They start with the path that this program was started with, so they can be pasted.

/// An example command.
#[derive(Clone, Copy)]
pub(crate) struct Example {
    about: &'static str,
    kind: ExampleKind,
}

#[derive(Clone, Copy)]
enum ExampleKind {
    Send(&'static str),
    Stream(&'static str),
    Tasks,
    Card,
}

impl Example {
    /// Sends a text.
    pub(crate) const fn send(about: &'static str, text: &'static str) -> Self {
        Self {
            about,
            kind: ExampleKind::Send(text),
        }
    }

    /// Sends a text, and follows the events.
    pub(crate) const fn stream(about: &'static str, text: &'static str) -> Self {
        Self {
            about,
            kind: ExampleKind::Stream(text),
        }
    }

    /// Lists tasks.
    pub(crate) const fn tasks(about: &'static str) -> Self {
        Self {
            about,
            kind: ExampleKind::Tasks,
        }
    }

    /// Shows the card.
    pub(crate) const fn card(about: &'static str) -> Self {
        Self {
            about,
            kind: ExampleKind::Card,
        }
    }

    /// Description of the command.
    pub(crate) fn about(&self) -> &str {
        self.about
    }

    /// Whether the command needs a store.
    pub(super) fn needs_tasks(&self) -> bool {
        matches!(self.kind, ExampleKind::Tasks)
    }

    /// The command for the agent at a URL, with additional flags.
    pub(super) fn command(&self, url: &str, flags: &[String]) -> String {
        let program = std::env::args_os().next();
        let program = program.map_or_else(
            || "attache".to_owned(),
            |word| word.to_string_lossy().into_owned(),
        );
        let mut words = vec![program.as_str()];
        words.extend(match self.kind {
            ExampleKind::Send(_) | ExampleKind::Stream(_) => &["send"][..],
            ExampleKind::Tasks => &["task", "list"],
            ExampleKind::Card => &["card", "get"],
        });
        words.extend(["-a", url]);
        words.extend(flags.iter().map(String::as_str));
        match self.kind {
            ExampleKind::Send(text) => words.push(text),
            ExampleKind::Stream(text) => words.extend(["--stream", text]),
            ExampleKind::Tasks | ExampleKind::Card => {}
        }
        shell_words::join(words)
    }
}

/// The URL of the agent's card.
pub(super) fn card_url(url: &str) -> String {
    format!("{url}.well-known/agent-card.json")
}
