//! `-o` of the verbs that call no agent.
//!
//! Its value is not stored: the format also depends on variables and files, and
//! [`Output::for_command_line`](crate::output::Output::for_command_line) finds it for every command line.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::settings::flags::OUTPUT;

#[derive(Debug)]
pub(super) struct OutputFlag;

impl Args for OutputFlag {
    fn augment_args(command: Command) -> Command {
        let argument = Arg::new(OUTPUT.name)
            .long(OUTPUT.name)
            .value_name(OUTPUT.value_name)
            .value_parser(["text", "json", "plain", "pretty"])
            .hide_possible_values(true)
            .help("Format of results: text or json")
            .global(true);
        command.arg(match OUTPUT.short {
            Some(short) => argument.short(short),
            None => argument,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OutputFlag {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}
