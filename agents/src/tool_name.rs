//! Names of tools as language models can call them: ASCII letters, digits, `-` and `_`.

/// Maximum length of a tool name in bytes, as the chat completion APIs define it.
pub(crate) const MAX_TOOL_NAME: usize = 64;

/// Returns whether a tool name may contain this character.
pub(crate) fn is_tool_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Replaces every character that a tool name may not contain with `_`. The result is ASCII.
pub(crate) fn to_tool_name(text: &str) -> String {
    text.chars()
        .map(|c| if is_tool_name_char(c) { c } else { '_' })
        .collect()
}
