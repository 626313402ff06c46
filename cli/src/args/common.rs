//! The flags that every client verb accepts, as clap arguments.
//!
//! Values stay text here: flags, variables and files have the same syntax, so `settings` parses all of them in one way.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::settings::flags::{FLAGS, Flag, FlagKind};

/// Values of the common flags as typed on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommonFlags {
    /// By the name of the flag; a flag that was not typed has no entry.
    values: BTreeMap<&'static str, Vec<String>>,
}

impl CommonFlags {
    /// Adds a value, as if the flag had been typed.
    #[must_use]
    pub(crate) fn with(mut self, flag: &'static Flag, value: impl Into<String>) -> Self {
        self.values.entry(flag.name).or_default().push(value.into());
        self
    }

    /// Replaces the values of a flag by a value, if there is one.
    pub(crate) fn replace(&mut self, flag: &'static Flag, value: Option<String>) {
        if let Some(value) = value {
            self.values.insert(flag.name, vec![value]);
        }
    }

    /// The values typed for a flag; empty if it was not typed.
    pub(crate) fn values(&self, flag: &Flag) -> &[String] {
        self.values.get(flag.name).map_or(&[], Vec::as_slice)
    }

    /// The first value typed for a flag.
    pub(crate) fn value(&self, flag: &Flag) -> Option<&str> {
        self.values(flag).first().map(String::as_str)
    }

    /// Whether the flag was typed.
    pub(crate) fn has(&self, flag: &Flag) -> bool {
        self.values.contains_key(flag.name)
    }
}

impl Args for CommonFlags {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(|flag| argument(flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CommonFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in FLAGS {
            if let Some(values) = matches.get_many::<String>(flag.name) {
                self.values.insert(flag.name, values.cloned().collect());
            }
        }
        Ok(())
    }
}

/// The clap argument of a flag.
fn argument(flag: &'static Flag) -> Arg {
    let argument = Arg::new(flag.name)
        .long(flag.name)
        .visible_aliases(flag.aliases.iter().copied())
        .value_name(flag.value_name)
        .help(flag.help())
        .help_heading(flag.heading)
        .hide(flag.is_hidden);
    let argument = match flag.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    match flag.kind {
        FlagKind::Switch => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        FlagKind::Value => argument,
        FlagKind::List { .. } => argument.action(ArgAction::Append),
    }
}
