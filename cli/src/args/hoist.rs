//! Common flags may precede the verb: `attache -a agent.example send hi`.

use std::ffi::OsString;

use clap::{Args as _, Command};

use super::CommonFlags;

/// Moves the common flags that precede the verb behind it.
pub(super) fn move_behind_verb(words: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let flags = CommonFlags::augment_args(Command::new("common"));
    let mut end = 1;
    while let Some(word) = words.get(end).and_then(|word| word.to_str()) {
        match flag_length(word, &flags) {
            Some(length) => end += length,
            None => break,
        }
    }
    let verbs = count_verbs(words.get(end..).unwrap_or_default(), program);
    if end == 1 || verbs == 0 {
        return words;
    }
    let (before, rest) = words.split_at(end);
    let (verb, rest) = rest.split_at(verbs);
    [&before[..1], verb, &before[1..], rest].concat()
}

/// Returns how many words the flag takes, value included; `None` if the word is no common flag.
fn flag_length(word: &str, flags: &Command) -> Option<usize> {
    let (name, has_value) = match word.split_once('=') {
        Some((name, _)) => (name, true),
        None => (word, false),
    };
    let flag = flags
        .get_arguments()
        .find(|flag| match name.strip_prefix("--") {
            Some(long) => flag
                .get_long_and_visible_aliases()
                .is_some_and(|names| names.contains(&long)),
            None => name
                .strip_prefix('-')
                .is_some_and(|short| flag.get_short() == short.chars().next()),
        })?;
    let is_joined = has_value || (!name.starts_with("--") && name.len() > 2);
    Some(if is_joined || flag.is_require_equals_set() {
        1
    } else {
        2
    })
}

/// Counts the words that name a verb: 1 for `send`, 2 for `task get`.
fn count_verbs(words: &[OsString], program: &Command) -> usize {
    let mut command = program;
    let verbs = words.iter().map_while(|word| {
        command = command.find_subcommand(word)?;
        Some(())
    });
    verbs.count()
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
