//! Text within a line, with what its parts mean.

/// How much a part of a text matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// As everything else.
    #[default]
    Plain,
    /// What the eye should find first.
    Strong,
    /// What went wrong.
    Alarm,
    /// What can be passed over.
    Faint,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    /// As it was in the file: not escaped.
    pub text: String,
    /// How much it matters.
    pub tone: Tone,
    /// Whether it is a place in the source, a path, a setting: something to copy.
    pub is_code: bool,
    /// Whether it is a place in the source, whose directory may be said elsewhere ([`super::Document::cut_places`]).
    pub is_place: bool,
}

/// A sentence, a name, a number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    /// One after the other, with nothing between them.
    pub spans: Vec<Span>,
}

impl Text {
    /// With `more` behind it.
    #[must_use]
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        self.spans.extend(more.into().spans);
        self
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.spans.iter().all(|span| span.text.is_empty())
    }

    fn toned(mut self, tone: Tone) -> Self {
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

/// What the eye should find first.
pub fn strong(text: impl Into<Text>) -> Text {
    text.into().toned(Tone::Strong)
}

/// What went wrong.
pub fn alarm(text: impl Into<Text>) -> Text {
    text.into().toned(Tone::Alarm)
}

/// What can be passed over.
pub fn faint(text: impl Into<Text>) -> Text {
    text.into().toned(Tone::Faint)
}

/// A place in the source, a path, a setting.
pub fn code(text: impl Into<String>) -> Text {
    Text { spans: vec![Span { text: text.into(), is_code: true, ..Span::default() }] }
}

/// A place in the source: `file:line in function`.
pub fn place(text: impl Into<String>) -> Text {
    Text {
        spans: vec![Span { text: text.into(), is_code: true, is_place: true, ..Span::default() }],
    }
}
