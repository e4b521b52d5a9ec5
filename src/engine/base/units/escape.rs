//! Escapes text from files: a name may contain anything, and terminals, CI runners and browsers act on some characters.
//!
//! [`escape_text`] is for any text, [`escape_name`] for names, [`escape_command_lines`] for complete pages. JSON keeps
//! the original text, and escapes the same characters ([`is_active`]) in its own way.

use std::borrow::Cow;

use super::count;

/// Maximum length of a name, in characters. Demangled names of C++ functions are up to this long.
const MAX_NAME_CHARS: usize = 400;
/// Maximum length of a text, in characters: longer than any sentence or message.
const MAX_TEXT_CHARS: usize = 4000;
/// Characters kept at the start and at the end of truncated text.
const KEPT_CHARS: [usize; 2] = [160, 100];

/// `text` on one line, with every character escaped that a terminal or a CI runner could act on or that hides text.
/// Words longer than a name are truncated.
pub fn escape_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, word) in truncate(text, MAX_TEXT_CHARS).split(' ').enumerate() {
        if index > 0 {
            out.push(' ');
        }
        push_escaped(&mut out, &truncate(word, MAX_NAME_CHARS));
    }
    out
}

/// A long `name` without its middle, which gives way to the length: short enough for every output, with the start and the
/// end by which a name is classified.
pub fn without_middle(name: &str) -> String {
    let (start, length, end) = ends(name);
    format!("{start}…({length} characters)…{end}")
}

/// The characters that are kept of a long `text`, and their number without truncation.
fn ends(text: &str) -> (String, String, String) {
    let length = text.chars().count();
    let [first, last] = KEPT_CHARS;
    let end = text.chars().skip(length.saturating_sub(last)).collect();
    (text.chars().take(first).collect(), count(length as u64), end)
}

/// [`escape_text`] of a name, which is truncated as a whole, also if only its escapes make it too long.
pub fn escape_name(text: &str) -> String {
    truncate(&escape_text(&truncate(text, MAX_NAME_CHARS)), MAX_NAME_CHARS).into_owned()
}

fn push_escaped(out: &mut String, word: &str) {
    let mut chars = word.chars();
    while let (rest, Some(c)) = (chars.as_str(), chars.next()) {
        if is_active(c) {
            out.extend(c.escape_default());
        } else if starts_with_command(rest) {
            out.push_str("#\\u{23}");
            chars.next(); // the second `#`
        } else {
            out.push(c);
        }
    }
}

/// Whether `c` controls a terminal, is invisible, or changes the order of text: control characters, direction marks,
/// characters without width, tags.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether `text` starts with a command that CI runners obey anywhere in a line: `##[group]`, `##vso[..]`,
/// `##teamcity[..]`.
pub fn starts_with_command(text: &str) -> bool {
    text.strip_prefix("##")
        .is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).starts_with('['))
}

/// Escapes lines of `page` that start with `::`, which CI runners obey.
pub fn escape_command_lines(page: &str) -> String {
    let lines = page.split_inclusive('\n').map(|line| {
        let is_command = line.trim_start().starts_with("::");
        if is_command { Cow::Owned(line.replacen("::", ":\\u{3a}", 1)) } else { Cow::Borrowed(line) }
    });
    lines.collect()
}

/// `text`, or its start and end with its length if it is longer than `max` characters.
fn truncate(text: &str, max: usize) -> Cow<'_, str> {
    // There are at least as many bytes as characters.
    if text.len() <= max || text.chars().nth(max).is_none() {
        return text.into();
    }
    let (start, length, end) = ends(text);
    format!("{start}…{end}({length} characters)").into()
}

/// Quotes `text` as one word of a POSIX shell, if needed.
pub fn quote_shell_word(text: &str) -> String {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c)) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_and_hidden_characters_are_escaped() {
        assert_eq!(escape_text("a\u{1b}[2J\nb\u{9b}1m"), "a\\u{1b}[2J\\nb\\u{9b}1m");
        assert_eq!(escape_text("\u{202e}x\u{200b}\u{feff}\u{e0041}"), "\\u{202e}x\\u{200b}\\u{feff}\\u{e0041}");
        assert_eq!(escape_text("Zoë  中 😀 index::bmm"), "Zoë  中 😀 index::bmm");
        assert_eq!(
            escape_text("a##[error]b ##vso[x] ###[ # #[ ##x"),
            "a#\\u{23}[error]b #\\u{23}vso[x] ##\\u{23}[ # #[ ##x"
        );
    }

    #[test]
    fn long_names_are_truncated_with_their_length() {
        let long = "é".repeat(3000);
        for truncated in [escape_name(&long), escape_text(&format!("in {long}"))] {
            assert!(
                truncated.ends_with("éé(3,000 characters)") && truncated.chars().count() < MAX_NAME_CHARS,
                "{truncated}"
            );
        }
        assert_eq!(escape_name(&"a ".repeat(MAX_NAME_CHARS)).split_once('…').unwrap().0.len(), KEPT_CHARS[0]);
        let sentence = "word ".repeat(300);
        assert_eq!(escape_text(&sentence), sentence);
    }

    #[test]
    fn no_line_starts_with_a_command() {
        assert_eq!(escape_command_lines("a::b\n  ::error::x\n::"), "a::b\n  :\\u{3a}error::x\n:\\u{3a}");
    }
}
