//! The help of the program and of each verb.
//!
//! The help of a verb shows its own options, those common options that matter for it, and two examples. The options of all
//! verbs are on one page, `attache help options`.

mod verbs;

use std::ffi::OsString;

use clap::{Arg, Command};

use super::CommonFlags;
use crate::settings::flags::{AGENT_CARD, FLAGS, Flag};
use crate::settings::{ResolvedSettings, SettingSources};
use crate::terminal::{TerminalStyle, wrap};
use verbs::{FIRST_GROUPS, GROUPS, VerbGroup, VerbHelp};

/// Page of the options of all verbs.
const OPTIONS_PAGE: &str = "options";
/// Widest column of options; the description of a longer one starts on the next line.
const MAX_OPTION_WIDTH: usize = 28;

/// Returns the help that `attache`, `attache help …` or `attache … --help` asks for. `None` if it asks for a verb that does
/// not exist.
pub(super) fn requested(words: &[OsString], program: &Command) -> Option<String> {
    let words: Vec<_> = words
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy())
        .collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => Some(first_page(program)),
        ["help"] => Some(for_verbs(&[], program)),
        ["help", OPTIONS_PAGE] => Some(options_page()),
        ["help", verbs @ ..] if find(verbs, program).is_some() => Some(for_verbs(verbs, program)),
        _ => None,
    }
}

fn find<'a>(verbs: &[&str], program: &'a Command) -> Option<&'a Command> {
    verbs
        .iter()
        .try_fold(program, |command, verb| command.find_subcommand(verb))
}

/// The help of a verb, of a group of verbs, or of the program.
pub(super) fn for_verbs(verbs: &[&str], program: &Command) -> String {
    let mut page = HelpPage::new();
    let Some(command) = find(verbs, program).filter(|_| !verbs.is_empty()) else {
        page.add_program(program, GROUPS);
        page.text.push_str(
            "\nTry:          attache demo          Learn:            attache docs\n\
             One command:  attache help send     Common options:   attache help options\n",
        );
        return page.text;
    };
    // An alias leads to the same page.
    let mut name = String::new();
    let mut current = program;
    for verb in verbs {
        if let Some(next) = current.find_subcommand(verb) {
            name.push_str(&format!(" {}", next.get_name()));
            current = next;
        }
    }
    let name = name.trim_start();
    if command.has_subcommands() && command.is_subcommand_required_set() {
        page.add_group(name, command);
    } else {
        page.add_verb(name, command);
    }
    page.text
}

/// The help without any arguments: the verbs to begin with.
fn first_page(program: &Command) -> String {
    let mut page = HelpPage::new();
    page.add_program(program, FIRST_GROUPS);
    page.text.push_str(
        "\nTry:           attache demo         Learn:        attache docs\n\
         All commands:  attache help         One of them:  attache help send\n",
    );
    page.text
}

fn options_page() -> String {
    let mut page = HelpPage::new();
    page.add_text(
        "Options of all commands that call agents. They may precede the command. A flag precedes the environment variable, \
         which precedes the nearest .env, agents/<host>.env and .env in ~/.config/a2a-cli. Switches take =true or =false. \
         send, chat, task, card, auth, config, conformance, completion and demo-server are the commands of the a2a-cli \
         contract; all others are additions to it.",
    );
    let mut headings: Vec<&str> = Vec::new();
    for flag in FLAGS.iter().filter(|flag| !flag.is_hidden) {
        if !headings.contains(&flag.heading) {
            headings.push(flag.heading);
        }
    }
    for heading in headings {
        let flags = FLAGS
            .iter()
            .filter(|flag| flag.heading == heading && !flag.is_hidden);
        let rows = flags.map(|flag| {
            let variable = flag.variable().map(|name| format!(" [{name}]"));
            HelpRow {
                name: flag_name(flag),
                about: format!("{}{}", flag.about, variable.unwrap_or_default()),
            }
        });
        page.add_rows(heading, &rows.collect::<Vec<_>>());
    }
    page.add_defaults();
    page.text
}

/// An option or a command with its description.
struct HelpRow {
    name: String,
    about: String,
}

struct HelpPage {
    text: String,
    width: usize,
}

impl HelpPage {
    fn new() -> Self {
        Self {
            text: String::new(),
            width: TerminalStyle::for_stdout().text_width(),
        }
    }

    fn add_text(&mut self, text: &str) {
        for line in wrap(text, self.width) {
            self.text.push_str(&format!("{line}\n"));
        }
    }

    /// Adds a section of two columns.
    fn add_rows(&mut self, heading: &str, rows: &[HelpRow]) {
        if rows.is_empty() {
            return;
        }
        self.text.push_str(&format!("\n{heading}:\n"));
        let names = rows.iter().map(|row| row.name.chars().count());
        let column = names.filter(|length| *length <= MAX_OPTION_WIDTH).max();
        let column = column.unwrap_or(MAX_OPTION_WIDTH);
        let indent = " ".repeat(column + 4);
        for row in rows {
            let name = &row.name;
            let is_wide = name.chars().count() > column;
            let about = wrap(&row.about, self.width.saturating_sub(column + 4));
            let mut about = about.iter();
            let first = if is_wide { None } else { about.next() };
            let first = first.map(String::as_str).unwrap_or_default();
            let line = format!("  {name:<column$}  {first}");
            self.text.push_str(&format!("{}\n", line.trim_end()));
            for line in about {
                self.text.push_str(&format!("{indent}{line}\n"));
            }
        }
    }

    fn add_program(&mut self, program: &Command, groups: &[VerbGroup]) {
        self.text
            .push_str("Serve A2A agents, and call them.\n\nUsage: attache <COMMAND> [OPTIONS]\n");
        for group in groups {
            let rows = group.verbs.iter().filter_map(|verb| {
                let about = program.find_subcommand(verb)?.get_about()?.to_string();
                let about = about.split("; ").next().unwrap_or_default();
                Some(HelpRow {
                    name: (*verb).to_owned(),
                    about: about.trim_end_matches('.').to_owned(),
                })
            });
            self.add_rows(group.title, &rows.collect::<Vec<_>>());
        }
    }

    /// Adds the help of a verb with verbs below it.
    fn add_group(&mut self, name: &str, command: &Command) {
        self.add_about(command);
        self.text
            .push_str(&format!("\nUsage: attache {name} <COMMAND> [OPTIONS]\n"));
        self.add_rows("Commands", &command_rows(command));
        self.text.push_str(&format!(
            "\nOptions of one: attache help {name} <COMMAND>\n"
        ));
        self.add_defaults();
    }

    fn add_verb(&mut self, name: &str, command: &Command) {
        self.add_about(command);
        self.text.push('\n');
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start().trim_start_matches("Usage:");
        // A verb with a default action has one line for it and one for its commands.
        for (number, line) in usage.lines().enumerate() {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            let line = line.strip_prefix("attache ").unwrap_or(&line);
            let line = line.strip_prefix(name).unwrap_or(line);
            if number == 0 {
                self.add_text(&format!("Usage: attache {name}{line}"));
            } else {
                self.text
                    .push_str(&format!("       attache {name}{line}\n"));
            }
        }
        self.add_rows("Commands", &command_rows(command));
        let help = VerbHelp::of(name);
        let common = help.map(|help| help.common).unwrap_or_default();
        for section in sections(command, common) {
            self.add_rows(&section.heading, &section.rows);
        }
        if let Some(help) = help {
            self.text.push_str("\nExamples:\n");
            for example in help.examples {
                self.text.push_str(&format!("  {example}\n"));
            }
        }
        if is_client(command) {
            self.text.push_str(
                "\nMore: attache help options. The process list shows credentials in flags.\n",
            );
            self.add_defaults();
        }
    }

    fn add_about(&mut self, command: &Command) {
        let about = command.get_about().map(ToString::to_string);
        self.add_text(&about.unwrap_or_default());
    }

    /// Adds the effective defaults of the common options. Unreadable files are ignored: help must always work.
    fn add_defaults(&mut self) {
        let sources = SettingSources::from_process(None).unwrap_or_default();
        let settings = sources.resolve(&CommonFlags::default());
        self.text.push('\n');
        self.add_text(&format!("Defaults: {}.", effective_defaults(&settings)));
    }
}

/// The values that apply unless a flag overrides them, with the sources of those that are not built in.
fn effective_defaults(settings: &ResolvedSettings) -> String {
    let values = settings.listed().filter_map(|setting| {
        let value = setting.display_value()?;
        let origin = setting.origin().map(|origin| format!(" (from {origin})"));
        if origin.is_none() && value == "false" {
            return None;
        }
        let value = crate::output::line(&value);
        let name = setting.flag.name;
        Some(format!("{name}: {value}{}", origin.unwrap_or_default()))
    });
    let values: Vec<_> = values.collect();
    format!("{}; switches: off", values.join("; "))
}

/// The verbs below a verb, with their descriptions.
fn command_rows(command: &Command) -> Vec<HelpRow> {
    let verbs = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let about = |verb: &Command| verb.get_about().map(ToString::to_string);
    verbs
        .map(|verb| HelpRow {
            name: verb.get_name().to_owned(),
            about: about(verb).unwrap_or_default(),
        })
        .collect()
}

struct HelpSection {
    heading: String,
    rows: Vec<HelpRow>,
}

/// The arguments of a verb and the given common options, by heading.
fn sections(command: &Command, common: &[&str]) -> Vec<HelpSection> {
    let mut sections: Vec<HelpSection> = Vec::new();
    let mut add = |heading: &str, row: HelpRow| {
        let found = sections
            .iter_mut()
            .find(|section| section.heading == heading);
        match found {
            Some(section) => section.rows.push(row),
            None => sections.push(HelpSection {
                heading: heading.to_owned(),
                rows: vec![row],
            }),
        }
    };
    let arguments = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in arguments().filter(|arg| arg.is_positional()) {
        add("Arguments", argument_row(arg));
    }
    let own = arguments().filter(|arg| !arg.is_positional() && !is_common(command, arg));
    for arg in own.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
        add(
            arg.get_help_heading().unwrap_or("Options"),
            argument_row(arg),
        );
    }
    for flag in FLAGS.iter().filter(|flag| common.contains(&flag.name)) {
        let row = HelpRow {
            name: flag_name(flag),
            about: short_about(flag.about),
        };
        add(verb_heading(flag), row);
    }
    sections
}

/// Section of a common option in the help of a verb.
fn verb_heading(flag: &Flag) -> &'static str {
    match flag.heading {
        "Agent" | "Output" => "Agent and output",
        heading => heading,
    }
}

/// The first sentence of a description, and its default.
fn short_about(about: &str) -> String {
    let Some((first, rest)) = about.split_once(". ") else {
        return about.to_owned();
    };
    match rest.find(" [default") {
        Some(start) => format!("{first}{}", &rest[start..]),
        None => first.to_owned(),
    }
}

/// Whether an argument is one of the common options. Verbs without an agent have options of the same name.
fn is_common(command: &Command, arg: &Arg) -> bool {
    is_client(command) && FLAGS.iter().any(|flag| flag.name == arg.get_id().as_str())
}

/// Whether the verb has the common options.
fn is_client(command: &Command) -> bool {
    let mut arguments = command.get_arguments();
    arguments.any(|arg| arg.get_id().as_str() == AGENT_CARD.name)
}

fn flag_name(flag: &Flag) -> String {
    let value = match flag.kind {
        crate::settings::flags::FlagKind::Switch => String::new(),
        _ => format!(" <{}>", flag.value_name),
    };
    match flag.short {
        Some(short) => format!("-{short}, --{}{value}", flag.name),
        None => format!("--{}{value}", flag.name),
    }
}

fn argument_row(arg: &Arg) -> HelpRow {
    let takes_value = arg.get_action().takes_values();
    let values = arg.get_value_names().unwrap_or_default();
    let value = values.first().map(|name| format!("<{name}>"));
    let value = value.filter(|_| takes_value).unwrap_or_default();
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
        (None, Some(long)) => format!("--{long} {value}"),
        (Some(short), None) => format!("-{short} {value}"),
        (None, None) if arg.is_required_set() => value,
        (None, None) => format!("[{}]", value.trim_matches(['<', '>'])),
    };
    let about = arg.get_help().map(ToString::to_string);
    let mut about = short_about(&about.unwrap_or_default());
    let possible = arg.get_possible_values();
    let possible: Vec<_> = possible.iter().map(|value| value.get_name()).collect();
    let is_listed = possible.iter().all(|name| about.contains(name));
    if takes_value && !is_listed && !arg.is_hide_possible_values_set() {
        about += &format!(": {}", possible.join(", "));
    }
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    if takes_value && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        about += &format!(" [default: {}]", defaults.join(", "));
    }
    HelpRow {
        name: name.trim_end().to_owned(),
        about,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    /// Maximum number of lines of the help of a verb.
    const MAX_LINES: usize = 39;

    /// Names of all verbs, without groups.
    fn leaves(command: &Command, prefix: &str) -> Vec<String> {
        let verbs = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
        let mut found = Vec::new();
        for verb in verbs {
            let name = format!("{prefix}{}", verb.get_name());
            found.extend(leaves(verb, &format!("{name} ")));
            if !verb.is_subcommand_required_set() {
                found.push(name);
            }
        }
        found
    }

    #[test]
    fn the_help_of_every_verb_is_short_and_has_two_examples() {
        let mut program = Args::command();
        program.build();
        for name in leaves(&program, "") {
            let verbs: Vec<_> = name.split(' ').collect();
            let help = for_verbs(&verbs, &program);
            let lines = help.lines().count();
            assert!(lines <= MAX_LINES, "{name}: {lines} lines\n{help}");
            assert!(
                help.lines().all(|line| line.chars().count() <= 100),
                "{help}"
            );
            assert!(
                help.contains(&format!("Usage: attache {name}")),
                "{name}: {help}"
            );
            assert!(VerbHelp::of(&name).is_some(), "{name} has no examples");
        }
        let root = for_verbs(&[], &program);
        assert!(root.lines().count() <= MAX_LINES + 4, "{root}");
        assert!(!root.contains("Defaults:"), "{root}");
        let first = first_page(&program);
        assert!(first.lines().count() <= 30, "{first}");
        assert!(
            first.lines().all(|line| line.chars().count() <= 80),
            "{first}"
        );
    }

    #[test]
    fn every_example_is_a_valid_command_line() {
        for help in verbs::VERBS {
            for example in help.examples {
                // What follows a pipe or precedes a variable is no argument.
                let command = example.split(" | ").next().unwrap_or_default();
                let command = command.split(" > ").next().unwrap_or_default();
                let start = command.find("attache ").unwrap_or_default();
                let words = shell_words::split(&command[start..]).unwrap();
                let words = words
                    .into_iter()
                    .take_while(|word| word != "&" && word != "#");
                let parsed = Args::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
                assert!(command[start..].contains(help.name), "{example}");
            }
        }
    }

    #[test]
    fn every_verb_of_the_program_is_listed_once() {
        let program = Args::command();
        let listed: Vec<_> = GROUPS
            .iter()
            .flat_map(|group| group.verbs.iter().copied())
            .collect();
        for verb in program.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let count = listed.iter().filter(|name| **name == verb.get_name());
            assert_eq!(count.count(), 1, "{}", verb.get_name());
        }
    }

    #[test]
    fn common_options_of_verbs_exist() {
        for help in verbs::VERBS {
            for name in help.common {
                assert!(FLAGS.iter().any(|flag| flag.name == *name), "{name}");
            }
        }
    }
}
