//! Parsing of the command line. Errors of the parser are reported in the same form as every other error.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use super::{Args, CommonFlags, help, hoist};
use crate::error::CliError;
use crate::settings::{OutputFormat, SettingSources, flags};

/// Result of parsing the command line.
pub(crate) enum ParsedArgs {
    Command(Box<Args>, ArgMatches),
    /// Text of the help or the version, to print.
    Help(String),
    Invalid(CliError),
}

/// Parses the command line. Common flags may precede the verb.
pub(crate) fn parse(words: Vec<OsString>) -> ParsedArgs {
    let mut program = Args::command();
    program.build();
    if let Some(help) = help::requested(&words, &program) {
        return ParsedArgs::Help(help);
    }
    let words = hoist::move_behind_verb(words, &program);
    let verbs = typed_verbs(&words, &program);
    let matches = program.clone().try_get_matches_from(words);
    let parsed = matches.and_then(|matches| Ok((Args::from_arg_matches(&matches)?, matches)));
    match parsed {
        Ok((args, matches)) => ParsedArgs::Command(Box::new(args), matches),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => {
                let path: Vec<_> = verbs.path.split_whitespace().collect();
                ParsedArgs::Help(help::for_verbs(&path, &program))
            }
            ErrorKind::DisplayVersion => ParsedArgs::Help(error.render().to_string()),
            _ => ParsedArgs::Invalid(usage_error(&error, &verbs)),
        },
    }
}

/// The typed verbs that exist, and the verbs that may follow.
struct TypedVerbs {
    /// Each verb with a space before it.
    path: String,
    next: Vec<String>,
}

fn typed_verbs(words: &[OsString], program: &clap::Command) -> TypedVerbs {
    let mut command = program;
    let mut path = String::new();
    for word in words.iter().skip(1).map(|word| word.to_string_lossy()) {
        let Some(next) = command.find_subcommand(&*word) else {
            break;
        };
        path.push_str(&format!(" {word}"));
        command = next;
    }
    let next = command
        .get_subcommands()
        .filter(|next| !next.is_hide_set())
        .map(|next| next.get_name().to_owned());
    TypedVerbs {
        path,
        next: next.collect(),
    }
}

/// Converts an error of the parser: its message on one line, and a hint with a suggestion or the verbs that exist.
fn usage_error(error: &clap::Error, verbs: &TypedVerbs) -> CliError {
    let suggestion = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ]
    .into_iter()
    .find_map(|kind| error.get(kind))
    .map(ToString::to_string)
    .filter(|suggestion| !suggestion.is_empty());
    let is_verb_missing = matches!(
        error.kind(),
        ErrorKind::InvalidSubcommand
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let help = format!("see attache help{}", verbs.path);
    let hint = match suggestion {
        Some(word) => format!("did you mean {word}? {help}"),
        None if is_verb_missing && !verbs.next.is_empty() => {
            format!("there are {}; {help}", verbs.next.join(", "))
        }
        None => help,
    };
    CliError::usage(parser_message(error)).hint(hint)
}

/// The message of a parser error on one line, without usage and tips.
fn parser_message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".to_owned();
    }
    let text = error.render().to_string();
    let lines: Vec<_> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.contains("try '--help'"))
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("tip:"))
        .collect();
    let message = lines.join(" ");
    message
        .strip_prefix("error: ")
        .unwrap_or(&message)
        .to_owned()
}

/// The output format and `--stream` of a command line that could not be parsed, by a scan of its words.
pub(crate) fn scan_format(words: &[OsString]) -> (OutputFormat, bool) {
    let words: Vec<_> = words
        .iter()
        .map(|word| word.to_string_lossy())
        .take_while(|word| word != "--")
        .collect();
    let stream = words
        .iter()
        .any(|word| word == "--stream" || word == "--stream=true");
    let value_after = |flag: &str| {
        words
            .windows(2)
            .rfind(|pair| pair[0] == *flag)
            .map(|pair| pair[1].to_string())
    };
    let mut joined = words.iter().filter_map(|word| {
        word.strip_prefix("--output=")
            .or_else(|| word.strip_prefix("-o").filter(|rest| !rest.is_empty()))
    });
    let output = value_after("-o")
        .or_else(|| value_after("--output"))
        .or_else(|| joined.next_back().map(str::to_owned));
    let mut common = CommonFlags::default();
    common.replace(&flags::OUTPUT, output);
    let sources = SettingSources::from_process(value_after("--config").as_deref());
    let resolved = sources.unwrap_or_default().resolve(&common);
    let format = resolved
        .get(&flags::OUTPUT)
        .and_then(|setting| OutputFormat::from_name(setting.text().trim_start_matches('=')))
        .unwrap_or_default();
    (format, stream)
}
