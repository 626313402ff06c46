//! Full-text search over the sections of all pages: an inverted index with BM25 scores.
//!
//! The site contains the same index as JSON, and its script computes the same stems.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pulldown_cmark::{Event, Tag, TagEnd};
use serde::Serialize;

use super::html::{code_language, headings, parser, visible_code};
use super::pages::{self, Page};

/// Term frequency saturation of BM25.
const K1: f64 = 1.2;
/// Length normalization of BM25.
const B: f64 = 0.6;
/// Weights of a word by its place, in fractions of a word in a paragraph.
const TITLE_WEIGHT: u32 = 6 * BODY_WEIGHT;
const HEADING_WEIGHT: u32 = 4 * BODY_WEIGHT;
const BODY_WEIGHT: u32 = 5;
const CODE_WEIGHT: u32 = 2;
/// Factor for integer scores, which keep the index small.
const SCALE: f64 = 16.0;
/// Share of the score that a word with a matching prefix gets.
const PREFIX_FACTOR: f64 = 0.5;
/// Shortest query word that matches as a prefix.
const MIN_PREFIX: usize = 3;
const EXCERPT_CHARS: usize = 160;
/// Number of words of a passage in which matches are counted.
const PASSAGE_WORDS: usize = 22;
/// A passage begins at most this number of words before its first match.
const MAX_WORDS_BEFORE_MATCH: usize = 10;

/// Heading of the links at the end of a page. Its section would be found instead of the pages that it names.
const LINKS_HEADING: &str = "Read on";

/// Words that do not select a section.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "attache", "be", "but", "by", "can", "do", "does", "for",
    "from", "happens", "has", "have", "how", "i", "if", "in", "is", "it", "its", "me", "my", "of",
    "on", "one", "or", "our", "so", "that", "the", "then", "there", "this", "to", "use", "was",
    "what", "when", "where", "which", "who", "why", "will", "with", "you", "your",
];

/// A section of a page: a heading and the text below it.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    /// Path of the page.
    pub(crate) page: &'static str,
    /// Anchor of the heading; empty for the text below the title.
    pub(crate) anchor: String,
    pub(crate) title: &'static str,
    pub(crate) heading: String,
    /// Summary of the page, or the start of the text below a heading.
    pub(crate) excerpt: String,
    /// The whole text below the heading.
    #[serde(skip)]
    text: String,
}

impl Section {
    /// Title of the page, and the heading below it.
    pub(crate) fn label(&self) -> String {
        if self.anchor.is_empty() {
            self.title.to_owned()
        } else {
            format!("{} › {}", self.title, self.heading)
        }
    }

    /// Name of the section as an argument of `attache docs`: `push#retries-and-dead-letters`.
    pub(crate) fn address(&self) -> String {
        if self.anchor.is_empty() {
            self.page.to_owned()
        } else {
            format!("{}#{}", self.page, self.anchor)
        }
    }

    /// The part of the text that contains the most words of a query. Returns the excerpt if it contains none.
    pub(crate) fn passage(&self, query: &str) -> String {
        let wanted = stems(query);
        let words: Vec<&str> = self.text.split_whitespace().collect();
        let matches: Vec<Vec<usize>> = words
            .iter()
            .map(|word| {
                let found = stems(word);
                let positions = wanted.iter().enumerate();
                positions
                    .filter(|(_, stem)| found.contains(stem))
                    .map(|(position, _)| position)
                    .collect()
            })
            .collect();
        let mut start = 0;
        let mut most = 0;
        for (first, window) in matches
            .windows(PASSAGE_WORDS.min(words.len()).max(1))
            .enumerate()
        {
            let distinct: BTreeSet<&usize> = window.iter().flatten().collect();
            if distinct.len() > most {
                most = distinct.len();
                start = first;
            }
        }
        if most == 0 {
            return self.excerpt.clone();
        }
        // The first matching word opens the best window: its sentence begins before it.
        let begins_sentence = |at: usize| at == 0 || words[at - 1].ends_with(['.', ':', ';']);
        let earliest = start.saturating_sub(MAX_WORDS_BEFORE_MATCH);
        let first = (earliest..=start).rev().find(|at| begins_sentence(*at));
        let first = first.unwrap_or(start);
        let mark = if first == 0 { "" } else { "… " };
        format!("{mark}{}", excerpt(&words[first..].join(" ")))
    }
}

/// Inverted index: for each stem, the sections that contain it with their scores.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) sections: Vec<Section>,
    postings: BTreeMap<String, Vec<(usize, u32)>>,
    stop_words: &'static [&'static str],
}

/// Weighted words of a section while the index is built.
struct SectionWords {
    counts: HashMap<String, u32>,
    length: u32,
}

impl SectionWords {
    fn add(&mut self, text: &str, weight: u32) {
        for stem in stems(text) {
            *self.counts.entry(stem).or_default() += weight;
            self.length += 1;
        }
    }
}

impl Index {
    /// Indexes all pages.
    pub(crate) fn build() -> Self {
        let mut sections = Vec::new();
        let mut words = Vec::new();
        for page in pages::all() {
            for text in split_sections(page) {
                if text.section.heading == LINKS_HEADING {
                    continue;
                }
                let mut section_words = SectionWords {
                    counts: HashMap::new(),
                    length: 0,
                };
                if text.section.anchor.is_empty() {
                    section_words.add(page.title, TITLE_WEIGHT);
                    section_words.add(&page.path.replace('/', " "), TITLE_WEIGHT);
                    section_words.add(&page.words.join(" "), TITLE_WEIGHT);
                    section_words.add(page.summary, HEADING_WEIGHT);
                } else {
                    section_words.add(page.title, BODY_WEIGHT);
                    section_words.add(&text.section.heading, HEADING_WEIGHT);
                }
                section_words.add(&text.prose, BODY_WEIGHT);
                section_words.add(&text.code, CODE_WEIGHT);
                sections.push(text.section);
                words.push(section_words);
            }
        }
        let postings = score(&words);
        Self {
            sections,
            postings,
            stop_words: STOP_WORDS,
        }
    }

    /// Returns the best sections for a query, at most `limit`.
    pub(crate) fn search(&self, query: &str, limit: usize) -> Vec<&Section> {
        let mut scores: HashMap<usize, f64> = HashMap::new();
        let mut matched: HashMap<usize, u32> = HashMap::new();
        let wanted = stems(query);
        for (position, stem) in wanted.iter().enumerate() {
            let is_last = position + 1 == wanted.len();
            let mut best: HashMap<usize, f64> = HashMap::new();
            for (word, postings) in self.matching_words(stem, is_last) {
                let factor = if word == stem { 1.0 } else { PREFIX_FACTOR };
                for &(section, score) in postings {
                    let score = f64::from(score) * factor;
                    let entry = best.entry(section).or_default();
                    *entry = entry.max(score);
                }
            }
            for (section, score) in best {
                *scores.entry(section).or_default() += score;
                *matched.entry(section).or_default() += 1;
            }
        }
        let mut found: Vec<(usize, f64)> = scores
            .into_iter()
            .map(|(section, score)| {
                let words = f64::from(matched.get(&section).copied().unwrap_or_default());
                (section, score * words)
            })
            .collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        found.truncate(limit);
        let sections = found
            .iter()
            .filter_map(|(section, _)| self.sections.get(*section));
        sections.collect()
    }

    /// The indexed words that equal the stem. Words that begin with it match too if it is the last word, which a reader
    /// may still be typing, or if no indexed word equals it.
    fn matching_words<'a>(
        &'a self,
        stem: &'a str,
        is_last: bool,
    ) -> impl Iterator<Item = (&'a String, &'a Vec<(usize, u32)>)> {
        let is_prefix = is_last || !self.postings.contains_key(stem);
        let is_prefix = is_prefix && stem.len() >= MIN_PREFIX;
        self.postings
            .range(stem.to_owned()..)
            .take_while(move |(word, _)| *word == stem || (is_prefix && word.starts_with(stem)))
    }
}

/// Computes the BM25 score of each word in each section.
fn score(words: &[SectionWords]) -> BTreeMap<String, Vec<(usize, u32)>> {
    let count = words.len() as f64;
    let total: u32 = words.iter().map(|section| section.length).sum();
    let average = f64::from(total) / count.max(1.0);
    let mut frequency: HashMap<&str, u32> = HashMap::new();
    for section in words {
        for word in section.counts.keys() {
            *frequency.entry(word).or_default() += 1;
        }
    }
    let mut postings: BTreeMap<String, Vec<(usize, u32)>> = BTreeMap::new();
    for (number, section) in words.iter().enumerate() {
        let norm = K1 * (1.0 - B + B * f64::from(section.length) / average);
        for (word, &uses) in &section.counts {
            let sections = f64::from(frequency.get(word.as_str()).copied().unwrap_or(1));
            let idf = (1.0 + (count - sections + 0.5) / (sections + 0.5)).ln();
            let tf = f64::from(uses) / f64::from(BODY_WEIGHT);
            let score = SCALE * idf * tf * (K1 + 1.0) / (tf + norm);
            let entry = postings.entry(word.clone()).or_default();
            entry.push((number, score.round().max(1.0) as u32));
        }
    }
    postings
}

/// Text of a section.
struct SectionText {
    section: Section,
    /// Text outside of code blocks.
    prose: String,
    /// Text of code blocks.
    code: String,
}

impl SectionText {
    /// Adds text: of a code block if it has a language, else of a paragraph or table.
    fn push(&mut self, text: &str, language: Option<&str>) {
        match language {
            Some(language) => {
                let code = visible_code(language, text);
                self.section.text.push_str(&code);
                self.code.push_str(&code);
            }
            None => {
                self.section.text.push_str(text);
                self.prose.push_str(text);
            }
        }
    }
}

/// Splits a page at its headings below the title.
fn split_sections(page: Page) -> Vec<SectionText> {
    let mut next_heading = headings(page.markdown).into_iter();
    let mut sections: Vec<SectionText> = Vec::new();
    let mut is_heading = false;
    let mut language: Option<String> = None;
    for event in parser(page.markdown) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                is_heading = true;
                let is_title = sections.is_empty();
                let heading = next_heading.next();
                let anchor = heading.as_ref().map(|it| it.id.clone()).unwrap_or_default();
                sections.push(SectionText {
                    section: Section {
                        page: page.path,
                        anchor: if is_title { String::new() } else { anchor },
                        title: page.title,
                        heading: heading.map(|it| it.text).unwrap_or_default(),
                        excerpt: String::new(),
                        text: String::new(),
                    },
                    prose: String::new(),
                    code: String::new(),
                });
            }
            Event::End(TagEnd::Heading(_)) => is_heading = false,
            Event::Start(Tag::CodeBlock(kind)) => language = Some(code_language(&kind).to_owned()),
            Event::End(TagEnd::CodeBlock) => language = None,
            Event::Text(text) | Event::Code(text) if !is_heading => {
                if let Some(last) = sections.last_mut() {
                    last.push(&text, language.as_deref());
                }
            }
            // A link or an emphasis may end within a word or before a full stop.
            Event::End(TagEnd::Link | TagEnd::Emphasis | TagEnd::Strong) => {}
            Event::SoftBreak | Event::HardBreak | Event::End(_) => {
                if let Some(last) = sections.last_mut() {
                    last.push(" ", None);
                }
            }
            _ => {}
        }
    }
    for text in &mut sections {
        text.section.excerpt = if text.section.anchor.is_empty() {
            page.summary.to_owned()
        } else {
            excerpt(&text.section.text)
        };
    }
    sections
}

/// The first words of a text.
fn excerpt(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= EXCERPT_CHARS {
        return text;
    }
    let cut: String = text.chars().take(EXCERPT_CHARS).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    let cut = cut[..end].trim_end_matches(['.', ',', ':', ';']);
    format!("{cut}…")
}

/// Returns the stems of the words of a text, without stop words.
fn stems(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
        .map(|word| stem(&word))
        .collect()
}

/// Removes the ending of a plural, verb or noun, and a doubled last letter. `site.js` has the same rules.
fn stem(word: &str) -> String {
    let mut stem = without_ending(word);
    let mut letters = stem.chars().rev();
    let last = letters.next();
    if last.is_some_and(|letter| letter.is_ascii_alphabetic() && letter != 's')
        && letters.next() == last
    {
        stem.pop();
    }
    stem
}

/// Removes the ending of a word.
fn without_ending(word: &str) -> String {
    let length = word.chars().count();
    let endings: [(&str, &str, usize); 6] = [
        ("ation", "", 10),
        ("ies", "y", 5),
        ("ing", "", 6),
        ("ed", "", 5),
        ("es", "e", 5),
        ("s", "", 4),
    ];
    for (ending, replacement, min_length) in endings {
        if length >= min_length && word.ends_with(ending) && !word.ends_with("ss") {
            let stem = word.strip_suffix(ending).unwrap_or(word);
            return format!("{stem}{replacement}")
                .trim_end_matches('e')
                .to_owned();
        }
    }
    word.trim_end_matches('e').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_forms_have_one_stem() {
        for words in [
            ["retry", "retries"],
            ["stream", "streaming"],
            ["webhook", "webhooks"],
            ["cancel", "canceled"],
            ["cancel", "cancellation"],
            ["cancels", "cancelled"],
            ["run", "running"],
            ["call", "calling"],
            ["configure", "configuration"],
            ["message", "messages"],
        ] {
            assert_eq!(stem(words[0]), stem(words[1]), "{words:?}");
        }
        assert_eq!(stem("class"), "class");
    }

    #[test]
    fn every_page_is_found_by_its_title() {
        let index = Index::build();
        for page in pages::all() {
            let found = index.search(page.title, 8);
            let is_found = found.iter().any(|section| section.page == page.path);
            assert!(is_found, "{}: {}", page.path, page.title);
        }
    }

    #[test]
    fn a_passage_shows_the_words_of_the_query() {
        let index = Index::build();
        let found = index.search("webhook unreachable retried", 8);
        let section = found
            .iter()
            .find(|section| section.address() == "push#retries-and-dead-letters")
            .unwrap();
        let passage = section.passage("webhook unreachable retried");
        assert!(passage.contains("unreachable, slower than"), "{passage}");
        assert_eq!(section.passage("xyzzy"), section.excerpt);
        assert_eq!(section.passage(""), section.excerpt);
    }

    #[test]
    fn only_the_last_word_of_a_query_is_a_prefix() {
        let index = Index::build();
        let words = |stem, is_last| index.matching_words(stem, is_last).count();
        assert_eq!(words("run", false), 1);
        assert!(words("run", true) > 1);
        assert!(words("idempot", false) > 0);
    }

    #[test]
    fn sections_are_found_by_their_words() {
        let index = Index::build();
        let first = |query| index.search(query, 3).first().map(|section| section.page);
        assert_eq!(first("webhook retries"), Some("push"));
        assert!(first("idempotency-key").is_some());
        assert_eq!(first("xyzzy"), None);
        assert_eq!(index.search("task", 5).len(), 5);
    }
}
