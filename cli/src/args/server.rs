//! The flags of the verbs that serve agents, as clap arguments.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use crate::config::{FlagValues, OVERRIDES, Override, OverrideKind, ServerFlag, StoreKind};

/// Values of the server flags as typed, by configuration key.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerFlags {
    pub(crate) values: FlagValues,
}

impl Args for ServerFlags {
    fn augment_args(command: Command) -> Command {
        let arguments = OVERRIDES
            .iter()
            .filter_map(|entry| Some(argument(entry, entry.flag.as_ref()?)));
        command.args(arguments)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServerFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for entry in OVERRIDES.iter().filter(|entry| entry.flag.is_some()) {
            let key = entry.key;
            match entry.kind {
                OverrideKind::Bool if matches.get_flag(key) => self.values.set(key, true),
                OverrideKind::Bool => {}
                OverrideKind::Text | OverrideKind::StoreUrl | OverrideKind::Store => {
                    if let Some(text) = matches.get_one::<String>(key) {
                        self.values.set(key, text.as_str());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The clap argument of a server flag. Its id is the configuration key.
fn argument(entry: &'static Override, flag: &'static ServerFlag) -> Arg {
    let argument = Arg::new(entry.key)
        .long(flag.option.trim_start_matches('-'))
        .help(flag.help);
    let argument = match flag.requires {
        Some(key) => argument.requires(key),
        None => argument,
    };
    match entry.kind {
        OverrideKind::Bool => argument.action(ArgAction::SetTrue),
        OverrideKind::Text | OverrideKind::StoreUrl => argument.value_name(flag.value_name),
        OverrideKind::Store => argument
            .value_name(flag.value_name)
            .value_parser(check_store),
    }
}

/// Returns the name of a kind as in a file. A URL is checked with the configuration: the error of an argument would print it
/// with its password.
fn check_store(text: &str) -> Result<String, String> {
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let kind = StoreKind::from_str(text, false);
    kind.map(|kind| kind.name().to_owned()).map_err(|_| {
        "expected sqlite, memory, null, or a URL that begins with postgres://".to_owned()
    })
}
