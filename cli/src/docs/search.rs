//! Full-text search over the sections of all pages: an inverted index with BM25 scores.
//!
//! The site contains the same index as JSON, and its script computes the same stems.

use std::collections::{BTreeMap, HashMap};

use pulldown_cmark::{Event, Tag, TagEnd};
use serde::Serialize;

use super::html::{headings, parser};
use super::pages::{self, Page};

/// Term frequency saturation of BM25.
const K1: f64 = 1.2;
/// Length normalization of BM25.
const B: f64 = 0.6;
const TITLE_WEIGHT: u32 = 6;
const HEADING_WEIGHT: u32 = 4;
const BODY_WEIGHT: u32 = 1;
/// Factor for integer scores, which keep the index small.
const SCALE: f64 = 16.0;
/// Share of the score that a word with a matching prefix gets.
const PREFIX_FACTOR: f64 = 0.5;
/// Shortest query word that matches as a prefix.
const MIN_PREFIX: usize = 3;
const EXCERPT_CHARS: usize = 160;

/// Words that do not select a section.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "do", "does", "for", "from",
    "has", "have", "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "one", "or",
    "our", "so", "that", "the", "then", "there", "this", "to", "use", "was", "what", "when",
    "where", "which", "who", "why", "will", "with", "you", "your",
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
    /// Start of the text.
    pub(crate) excerpt: String,
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
                section_words.add(&text.body, BODY_WEIGHT);
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
        for stem in stems(query) {
            let mut best: HashMap<usize, f64> = HashMap::new();
            for (word, postings) in self.matching_words(&stem) {
                let factor = if *word == stem { 1.0 } else { PREFIX_FACTOR };
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

    /// The indexed words that equal the stem or begin with it.
    fn matching_words<'a>(
        &'a self,
        stem: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Vec<(usize, u32)>)> {
        self.postings
            .range(stem.to_owned()..)
            .take_while(move |(word, _)| {
                *word == stem || (stem.len() >= MIN_PREFIX && word.starts_with(stem))
            })
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
            let tf = f64::from(uses);
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
    body: String,
}

/// Splits a page at its headings below the title.
fn split_sections(page: Page) -> Vec<SectionText> {
    let mut next_heading = headings(page.markdown).into_iter();
    let mut sections: Vec<SectionText> = Vec::new();
    let mut is_heading = false;
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
                    },
                    body: String::new(),
                });
            }
            Event::End(TagEnd::Heading(_)) => is_heading = false,
            Event::Text(text) | Event::Code(text) if !is_heading => {
                if let Some(last) = sections.last_mut() {
                    last.body.push_str(&text);
                }
            }
            Event::SoftBreak | Event::HardBreak | Event::End(_) => {
                if let Some(last) = sections.last_mut().filter(|it| !it.body.ends_with(' ')) {
                    last.body.push(' ');
                }
            }
            _ => {}
        }
    }
    for text in &mut sections {
        text.section.excerpt = excerpt(&text.body);
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
    format!("{}…", &cut[..end])
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

/// Removes a plural or verb ending. `site.js` has the same rules.
fn stem(word: &str) -> String {
    let length = word.chars().count();
    let endings: [(&str, &str, usize); 5] = [
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
    fn sections_are_found_by_their_words() {
        let index = Index::build();
        let first = |query| index.search(query, 3).first().map(|section| section.page);
        assert_eq!(first("webhook retries"), Some("push"));
        assert!(first("idempotency-key").is_some());
        assert_eq!(first("xyzzy"), None);
        assert_eq!(index.search("task", 5).len(), 5);
    }
}
