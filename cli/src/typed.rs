//! The command line, read; what is not understood is reported like every other failure.

mod hoist;

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::args::{Args, Common};
use crate::failure::Failure;
use crate::settings::{Format, Settings, Sources};

/// What was typed, or what there is to say instead.
pub(crate) enum Typed {
    Command(Box<Args>, ArgMatches),
    /// Help or the version.
    Shown(String),
    Wrong(Failure),
}

pub(crate) fn read(words: Vec<OsString>) -> Typed {
    let program = Args::command();
    let words = hoist::behind_the_verb(words, &program);
    let typed = verbs(&words, &program);
    let read = program.try_get_matches_from(words);
    let read = read.and_then(|matches| Ok((Args::from_arg_matches(&matches)?, matches)));
    match read {
        Ok((args, matches)) => Typed::Command(Box::new(args), matches),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => Typed::Shown(format!("{}{}", error.render(), effective())),
            ErrorKind::DisplayVersion => Typed::Shown(error.render().to_string()),
            _ => Typed::Wrong(wrong(&error, &typed)),
        },
    }
}

/// The verbs that were typed and understood, and what could follow them.
struct Verbs {
    path: String,
    next: Vec<String>,
}

fn verbs(words: &[OsString], program: &clap::Command) -> Verbs {
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
    Verbs {
        path,
        next: next.collect(),
    }
}

/// The parser's complaint on one line, and where to read on.
fn wrong(error: &clap::Error, typed: &Verbs) -> Failure {
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
        Some(word) => Failure::usage(said).hint(format!("did you mean {word}? {read_on}")),
        None if names_verb && !named.is_empty() => {
            Failure::usage(said).hint(format!("there are {named}; {read_on}"))
        }
        None => Failure::usage(said).hint(read_on),
    }
}

/// What is in force where nothing is typed; broken files are no reason to give no help.
fn effective() -> String {
    let sources = Sources::of_process(None).unwrap_or_default();
    let mut text = "\nIn force where no flag says otherwise:\n".to_owned();
    for setting in sources.resolve(&Common::default()) {
        let Some(value) = setting.shown() else {
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
pub(crate) fn format_of(words: &[OsString]) -> (Format, bool) {
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
    let common = Common {
        output: typed,
        ..Common::default()
    };
    let sources = Sources::of_process(behind("--config").as_deref()).unwrap_or_default();
    let output = sources
        .resolve(&common)
        .into_iter()
        .find(|setting| setting.name == "output");
    let json = output.is_some_and(|setting| {
        setting.is_set() && setting.text().trim_start_matches('=') == "json"
    });
    (if json { Format::Json } else { Format::Text }, stream)
}

/// The settings of a verb.
pub(crate) fn settings(common: &Common) -> Result<Settings, Failure> {
    Settings::new(common, &Sources::of_process(common.config.as_deref())?)
}
