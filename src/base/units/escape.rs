//! Text from files, made plain: names in a file are whatever somebody wrote there, and what shows them (a terminal, a
//! CI runner, a browser) acts on some of it.
//!
//! [`plain`] is for any text, [`plain_name`] for names, [`plain_lines`] for finished pages. JSON keeps what was written and
//! escapes the same characters ([`is_active`]) in its own way.

use std::borrow::Cow;

use super::count;

/// Characters of a name; demangled names of C++ functions have up to this many.
const MAX_NAME_CHARS: usize = 400;
/// Characters of a text: more than any sentence or message has.
const MAX_TEXT_CHARS: usize = 4000;
/// Characters that are kept of what is cut, at its beginning and at its end.
const KEPT_CHARS: [usize; 2] = [160, 100];

/// `text` on one line, with every character escaped that a terminal or a CI runner could act on or that hides what
/// is there. Words longer than names are cut.
pub fn escape_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, word) in truncate(text, MAX_TEXT_CHARS).split(' ').enumerate() {
        if at > 0 {
            out.push(' ');
        }
        push_escaped(&mut out, &truncate(word, MAX_NAME_CHARS));
    }
    out
}

/// The same of a name, which is cut as a whole.
pub fn escape_name(text: &str) -> String {
    escape_text(&truncate(text, MAX_NAME_CHARS))
}

fn push_escaped(out: &mut String, word: &str) {
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        if is_active(c) {
            out.extend(c.escape_default());
        } else if starts_with_command(rest) {
            out.push_str("#\\u{23}");
            rest = rest.get(1..).unwrap_or_default();
        } else {
            out.push(c);
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
}

/// Whether a terminal acts on `c`, or shows nothing of it or the text around it in another order: control
/// characters, marks of direction, characters without width, tags.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether `text` begins with what runners obey wherever it stands: `##[group]`, `##vso[..]`, `##teamcity[..]`.
pub fn starts_with_command(text: &str) -> bool {
    text.strip_prefix("##").is_some_and(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).starts_with('[')
    })
}

/// `page` with no line that a runner obeys because `::` begins it.
pub fn escape_command_lines(page: String) -> String {
    let is_obeyed = |line: &str| line.trim_start().starts_with("::");
    if !page.lines().any(is_obeyed) {
        return page;
    }
    let calm = |line: &str| {
        if is_obeyed(line) { line.replacen("::", ":\\u{3a}", 1) } else { line.to_owned() }
    };
    page.split_inclusive('\n').map(calm).collect()
}

/// `text`, or its beginning and its end with how long it is.
fn truncate(text: &str, most: usize) -> Cow<'_, str> {
    // Bytes are at least as many as characters.
    if text.len() <= most {
        return text.into();
    }
    let length = text.chars().count();
    if length <= most {
        return text.into();
    }
    let place = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    let [first, last] = KEPT_CHARS;
    let (start, end) = (text.get(..place(first)), text.get(place(length - last)..));
    let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
    format!("{start}…{end}({} characters)", count(length as u64)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_or_hides_is_escaped() {
        assert_eq!(escape_text("a\u{1b}[2J\nb\u{9b}1m"), "a\\u{1b}[2J\\nb\\u{9b}1m");
        assert_eq!(
            escape_text("\u{202e}x\u{200b}\u{feff}\u{e0041}"),
            "\\u{202e}x\\u{200b}\\u{feff}\\u{e0041}"
        );
        assert_eq!(escape_text("Zoë  中 😀 at::bmm"), "Zoë  中 😀 at::bmm");
        assert_eq!(
            escape_text("a##[error]b ##vso[x] ###[ # #[ ##x"),
            "a#\\u{23}[error]b #\\u{23}vso[x] ##\\u{23}[ # #[ ##x"
        );
    }

    #[test]
    fn long_names_are_cut_with_their_length() {
        let long = "é".repeat(3000);
        for cut in [escape_name(&long), escape_text(&format!("in {long}"))] {
            assert!(cut.ends_with("éé(3,000 characters)") && cut.chars().count() < MAX_NAME_CHARS, "{cut}");
        }
        assert_eq!(escape_name(&"a ".repeat(MAX_NAME_CHARS)).split_once('…').unwrap().0.len(), KEPT_CHARS[0]);
        let sentence = "word ".repeat(300);
        assert_eq!(escape_text(&sentence), sentence);
    }

    #[test]
    fn no_line_begins_with_a_command() {
        assert_eq!(
            escape_command_lines("a::b\n  ::error::x\n::".to_owned()),
            "a::b\n  :\\u{3a}error::x\n:\\u{3a}"
        );
    }
}
