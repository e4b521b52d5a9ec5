//! Inline text: spans with an emphasis.

use anstream::adapter::strip_str;
use unicode_width::UnicodeWidthStr;

use crate::base::units::{exact_size, signed_count, signed_size, size};

/// Emphasis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    #[default]
    Plain,
    /// Draws the eye.
    Strong,
    /// A failure.
    Alarm,
    /// Secondary information.
    Faint,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    /// Raw: the renderers escape it.
    pub text: String,
    pub tone: Tone,
    /// Whether it is a path, a source location or a setting: text that a reader may copy.
    pub is_code: bool,
    /// Bytes of `text` that are the path of a source file, which [`super::Document::shorten_locations`] may cut.
    pub path_len: usize,
    /// The exact number of bytes that `text` rounds, for [`super::Document::with_exact_sizes`].
    pub exact: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    /// Concatenated without separators.
    pub spans: Vec<Span>,
}

impl Text {
    /// Appends `more`.
    #[must_use]
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        self.spans.extend(more.into().spans);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.spans.iter().all(|span| span.text.is_empty())
    }

    /// The text without its emphasis, to escape.
    pub fn raw(&self) -> String {
        self.spans.iter().map(|span| &*span.text).collect()
    }

    fn with_tone(mut self, tone: Tone) -> Self {
        for span in &mut self.spans {
            span.tone = tone;
        }
        self
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self { spans: vec![Span { text, ..Span::default() }] }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A number of bytes with three digits, or the exact one where the reader wants it.
pub fn amount(bytes: u64) -> Text {
    Text { spans: vec![Span { text: size(bytes), exact: Some(exact_size(bytes)), ..Span::default() }] }
}

/// A change in bytes, with its sign.
pub fn signed_amount(bytes: i64) -> Text {
    let exact = Some(format!("{} B", signed_count(bytes)));
    Text { spans: vec![Span { text: signed_size(bytes), exact, ..Span::default() }] }
}

pub fn strong(text: impl Into<Text>) -> Text {
    text.into().with_tone(Tone::Strong)
}

pub fn alarm(text: impl Into<Text>) -> Text {
    text.into().with_tone(Tone::Alarm)
}

pub fn faint(text: impl Into<Text>) -> Text {
    text.into().with_tone(Tone::Faint)
}

/// A path, a setting or a command line.
pub fn code(text: impl Into<String>) -> Text {
    Text { spans: vec![Span { text: text.into(), is_code: true, ..Span::default() }] }
}

/// A source location: the path of a file, and what follows it, such as `:12 forward`.
pub fn source_location(path: &str, rest: &str) -> Text {
    Text { spans: vec![Span { text: format!("{path}{rest}"), is_code: true, path_len: path.len(), ..Span::default() }] }
}

/// Terminal columns of `text`; escape sequences have no width.
pub(super) fn display_width(text: &str) -> usize {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.len();
    }
    strip_str(text).map(UnicodeWidthStr::width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_have_no_width() {
        assert_eq!(display_width("日本 \u{1b}[1mü"), 6);
    }
}
