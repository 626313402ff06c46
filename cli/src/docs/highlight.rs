//! Syntax highlighting of code blocks: comments, strings, numbers and keywords.

use super::html::escape;

/// Lexical rules of a language.
struct Syntax {
    line_comment: &'static str,
    /// Whether numbers have a class. In a shell they are mostly parts of addresses.
    marks_numbers: bool,
    quotes: &'static [char],
    keywords: &'static [&'static str],
}

const RUST: Syntax = Syntax {
    line_comment: "//",
    marks_numbers: true,
    quotes: &['"'],
    keywords: &[
        "as", "async", "await", "const", "else", "enum", "false", "fn", "for", "if", "impl", "in",
        "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "Self",
        "struct", "trait", "true", "type", "use", "where", "while",
    ],
};

const TOML: Syntax = Syntax {
    line_comment: "#",
    marks_numbers: true,
    quotes: &['"', '\''],
    keywords: &["true", "false"],
};

const JSON: Syntax = Syntax {
    line_comment: "//",
    marks_numbers: true,
    quotes: &['"'],
    keywords: &["true", "false", "null"],
};

const SHELL: Syntax = Syntax {
    line_comment: "#",
    marks_numbers: false,
    quotes: &['"', '\''],
    keywords: &["attache", "cargo", "curl", "npm", "pip", "python3", "node"],
};

const PYTHON: Syntax = Syntax {
    line_comment: "#",
    marks_numbers: true,
    quotes: &['"', '\''],
    keywords: &[
        "and", "as", "async", "await", "class", "def", "elif", "else", "except", "False", "for",
        "from", "if", "import", "in", "is", "lambda", "None", "not", "or", "pass", "raise",
        "return", "True", "try", "while", "with", "yield",
    ],
};

const JAVASCRIPT: Syntax = Syntax {
    line_comment: "//",
    marks_numbers: true,
    quotes: &['"', '\'', '`'],
    keywords: &[
        "async", "await", "class", "const", "else", "export", "false", "for", "from", "function",
        "if", "import", "let", "new", "null", "of", "return", "this", "throw", "true", "try",
        "while",
    ],
};

fn syntax(language: &str) -> Option<&'static Syntax> {
    match language {
        "rust" => Some(&RUST),
        "toml" => Some(&TOML),
        "json" => Some(&JSON),
        "sh" | "console" => Some(&SHELL),
        "python" => Some(&PYTHON),
        "js" | "javascript" => Some(&JAVASCRIPT),
        _ => None,
    }
}

/// Returns the code as HTML. Code of an unknown language is escaped only.
pub(super) fn highlight(language: &str, code: &str) -> String {
    let Some(syntax) = syntax(language) else {
        return escape(code);
    };
    let mut html = String::with_capacity(code.len() * 2);
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let token = next_token(syntax, rest, first, html.ends_with(is_word));
        let (text, after) = rest.split_at(token.length);
        match token.class {
            Some(class) => {
                html.push_str(&format!("<span class=\"{class}\">{}</span>", escape(text)));
            }
            None => html.push_str(&escape(text)),
        }
        rest = after;
    }
    html
}

/// Length in bytes and CSS class of a token.
struct Token {
    length: usize,
    class: Option<&'static str>,
}

fn next_token(syntax: &Syntax, rest: &str, first: char, is_inside_word: bool) -> Token {
    let token = |length, class| Token { length, class };
    if rest.starts_with(syntax.line_comment) && !is_inside_word {
        return token(rest.find('\n').unwrap_or(rest.len()), Some("c"));
    }
    if syntax.quotes.contains(&first) {
        return token(quoted_length(rest, first), Some("s"));
    }
    if is_word(first) {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let word = &rest[..length];
        let class = if syntax.keywords.contains(&word) {
            Some("k")
        } else if first.is_ascii_digit() && syntax.marks_numbers {
            Some("n")
        } else {
            None
        };
        return token(length, class);
    }
    token(first.len_utf8(), None)
}

/// Length of a quoted string with its quotes. A string without an end stops at the end of its line.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\n' if quote != '\'' && quote != '`' => return index,
            _ if c == quote => return index + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_classified_and_the_text_is_kept() {
        let html = highlight("rust", "let a = \"<b>\"; // x\n");
        assert_eq!(
            html,
            "<span class=\"k\">let</span> a = <span class=\"s\">&quot;&lt;b&gt;&quot;</span>; <span class=\"c\">// x</span>\n"
        );
        assert_eq!(highlight("text", "a < b"), "a &lt; b");
        let shell = highlight("sh", "attache send -a http://h:1 'a b' # note");
        assert!(shell.contains("<span class=\"s\">'a b'</span> <span class=\"c\"># note</span>"));
        assert!(
            shell.contains("http://h:"),
            "no comment inside a URL: {shell}"
        );
    }

    #[test]
    fn unterminated_strings_end_with_their_line() {
        let html = highlight("json", "{\"a: 1\n}");
        assert!(html.ends_with("</span>\n}"), "{html}");
    }
}
