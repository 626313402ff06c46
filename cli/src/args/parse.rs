//! The command line, read; what is not understood is reported like every other failure.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::args::{Args, CommonFlags};
use crate::error::CliError;
use crate::settings::{OutputFormat, SettingSources, Settings};

/// What was typed, or what there is to say instead.
pub(crate) enum ParsedArgs {
    Command(Box<Args>, ArgMatches),
    /// Help or the version.
    Help(String),
    Invalid(CliError),
}

pub(crate) fn parse(words: Vec<OsString>) -> ParsedArgs {
    let program = Args::command();
    let words = super::hoist::move_behind_verb(words, &program);
    let typed = verbs(&words, &program);
    let read = program.try_get_matches_from(words);
    let read = read.and_then(|matches| Ok((Args::from_arg_matches(&matches)?, matches)));
    match read {
        Ok((args, matches)) => ParsedArgs::Command(Box::new(args), matches),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => {
                ParsedArgs::Help(format!("{}{}", error.render(), effective_settings()))
            }
            ErrorKind::DisplayVersion => ParsedArgs::Help(error.render().to_string()),
            _ => ParsedArgs::Invalid(usage_error(&error, &typed)),
        },
    }
}

/// The verbs that were typed and understood, and what could follow them.
struct TypedVerbs {
    path: String,
    next: Vec<String>,
}

fn verbs(words: &[OsString], program: &clap::Command) -> TypedVerbs {
    let (mut at, mut path) = (program, String::new());
    for word in words.iter().skip(1).map(|word| word.to_string_lossy()) {
        let Some(next) = at.find_subcommand(&*word) else {
            break;
        };
        path.push_str(&format!(" {word}"));
        at = next;
    }
    let next = at
        .get_subcommands()
        .filter(|one| !one.is_hide_set())
        .map(|one| one.get_name().to_owned());
    TypedVerbs {
        path,
        next: next.collect(),
    }
}

/// The parser's complaint on one line, and where to read on.
fn usage_error(error: &clap::Error, typed: &TypedVerbs) -> CliError {
    let text = error.render().to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.contains("try '--help'"));
    let words: Vec<_> = lines
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("tip:"))
        .collect();
    let said = words.join(" ");
    let said = said.strip_prefix("error: ").unwrap_or(&said).to_owned();
    let said = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a command is missing".to_owned(),
        _ => said,
    };
    let suggestion = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ]
    .into_iter()
    .find_map(|kind| error.get(kind))
    .map(ToString::to_string);
    let read_on = format!("see attache help{}", typed.path);
    let named = typed.next.join(", ");
    let names_verb = matches!(
        error.kind(),
        ErrorKind::InvalidSubcommand
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    match suggestion.filter(|it| !it.is_empty()) {
        Some(word) => CliError::usage(said).hint(format!("did you mean {word}? {read_on}")),
        None if names_verb && !named.is_empty() => {
            CliError::usage(said).hint(format!("there are {named}; {read_on}"))
        }
        None => CliError::usage(said).hint(read_on),
    }
}

/// What is in force where nothing is typed; broken files are no reason to give no help.
fn effective_settings() -> String {
    let sources = SettingSources::from_process(None).unwrap_or_default();
    let mut text = "\nIn force where no flag says otherwise:\n".to_owned();
    for setting in sources.resolve(&CommonFlags::default()) {
        let Some(value) = setting.display_value() else {
            continue;
        };
        let from = setting
            .origin()
            .map(|origin| format!(" (from {origin})"))
            .unwrap_or_default();
        text.push_str(&format!(
            "  {}: {}{from}\n",
            setting.name,
            crate::output::line(&value)
        ));
    }
    text
}

/// How to report a failure when the command line itself is at fault: by all that can be found out anyway.
pub(crate) fn error_format(words: &[OsString]) -> (OutputFormat, bool) {
    let words: Vec<_> = words
        .iter()
        .map(|word| word.to_string_lossy())
        .take_while(|word| word != "--")
        .collect();
    let stream = words
        .iter()
        .any(|word| word == "--stream" || word == "--stream=true");
    let behind = |flag: &str| {
        words
            .windows(2)
            .rfind(|pair| pair[0] == *flag)
            .map(|pair| pair[1].to_string())
    };
    let mut joined = words.iter().filter_map(|word| {
        word.strip_prefix("--output=")
            .or_else(|| word.strip_prefix("-o").filter(|rest| !rest.is_empty()))
    });
    let typed = behind("-o")
        .or_else(|| behind("--output"))
        .or_else(|| joined.next_back().map(str::to_owned));
    let common = CommonFlags {
        output: typed,
        ..CommonFlags::default()
    };
    let sources = SettingSources::from_process(behind("--config").as_deref()).unwrap_or_default();
    let output = sources
        .resolve(&common)
        .into_iter()
        .find(|setting| setting.name == "output");
    let json = output.is_some_and(|setting| {
        setting.is_set() && setting.text().trim_start_matches('=') == "json"
    });
    (
        if json {
            OutputFormat::Json
        } else {
            OutputFormat::Text
        },
        stream,
    )
}

/// The settings of a verb.
pub(crate) fn load_settings(common: &CommonFlags) -> Result<Settings, CliError> {
    Settings::new(
        common,
        &SettingSources::from_process(common.config.as_deref())?,
    )
}
