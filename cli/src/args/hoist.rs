//! Options that every verb takes may stand before it: `attache -a agent.example send hi`.

use std::ffi::OsString;

use clap::{Args as _, Command};

use crate::args::CommonFlags;

/// The same words, with such options moved behind the verb.
pub(super) fn move_behind_verb(words: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let known = CommonFlags::augment_args(Command::new("common"));
    let mut end = 1;
    while let Some(word) = words.get(end).and_then(|word| word.to_str()) {
        match length(word, &known) {
            Some(length) => end += length,
            None => break,
        }
    }
    let verbs = verbs(words.get(end..).unwrap_or_default(), program);
    if end == 1 || verbs == 0 {
        return words;
    }
    let (before, rest) = words.split_at(end);
    let (verb, rest) = rest.split_at(verbs);
    [&before[..1], verb, &before[1..], rest].concat()
}

/// How many words an option has, if it is one of ours.
fn length(word: &str, known: &Command) -> Option<usize> {
    let (name, value) = match word.split_once('=') {
        Some((name, _)) => (name, true),
        None => (word, false),
    };
    let option = known
        .get_arguments()
        .find(|option| match name.strip_prefix("--") {
            Some(long) => option
                .get_long_and_visible_aliases()
                .is_some_and(|names| names.contains(&long)),
            None => name
                .strip_prefix('-')
                .is_some_and(|short| option.get_short() == short.chars().next()),
        })?;
    let joined = value || (!name.starts_with("--") && name.len() > 2);
    Some(if joined || option.is_require_equals_set() {
        1
    } else {
        2
    })
}

/// How many of the words name a verb: `send`, `task get`.
fn verbs(words: &[OsString], program: &Command) -> usize {
    let mut command = program;
    let named = words.iter().map_while(|word| {
        command = command.find_subcommand(word)?;
        Some(())
    });
    named.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn default_001_options_may_stand_before_the_verb() {
        let moved = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = move_behind_verb(words, &Args::command());
            words
                .iter()
                .map(|word| word.to_str().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            moved("attache -a x -ojson --debug task get t"),
            "attache task get -a x -ojson --debug t"
        );
        assert_eq!(
            moved("attache --async=true --output json send -- hi"),
            "attache send --async=true --output json -- hi"
        );
        for line in [
            "attache send -a x hi",
            "attache --nonsense send",
            "attache -v",
            "attache -a x",
            "attache --help",
        ] {
            assert_eq!(moved(line), line);
        }
    }
}
