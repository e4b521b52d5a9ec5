//! Everything that is known about messages of a lack of memory, as data: one row a form.
//!
//! Tables in TOML go in; rows with a form's pattern, the meaning of its figures, the reason that it gives and advice
//! come out. `like = "NAME"` copies the keys that a row lacks from `[like.NAME]`; a sentence that is a key of `[text]`
//! is replaced by that text. This room does not know logs ([`crate::explain::message`] finds the forms there) or
//! reports.

mod amount;
mod numbers;
mod pattern;
mod places;
mod vendors;

pub use amount::PrintedAmount;
pub use numbers::{PrintedNumbers, fill};
pub use pattern::{Pattern, Side};
pub use places::{Place, places};
pub use vendors::{Vendor, vendor};

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

/// A form of messages.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Form {
    /// The kind of memory that ran out, as JSON names it.
    pub kind: String,
    /// The system that prints the message.
    pub name: String,
    /// A heading: what happened.
    pub title: String,
    /// The printed text, in one or more wordings. The message starts where the pattern does.
    pub text: Vec<Pattern>,
    pub role: Role,
    /// The line adds to the last message of this system, which contains these words, and makes it one of this form.
    /// Empty for a message that stands alone.
    pub continues: String,
    /// The innermost frame of the traceback contains this word, in its file, function or code. Such a row takes
    /// precedence over one without. Empty for a message that any frame may precede.
    pub in_frame: String,
    /// How many of the next lines belong to the message.
    pub below: u64,
    /// Words that a line of the message must have for it to be one.
    pub needs: String,
    /// Amounts of memory: the patterns of each, and its meaning at the end.
    pub figures: BTreeMap<String, Vec<String>>,
    /// Other numbers: the patterns of each.
    pub numbers: BTreeMap<String, Vec<Pattern>>,
    /// Clauses that say why memory ran out. The first whose numbers are all in the message is the reason.
    pub why: Vec<String>,
    /// Advice, the most useful first. A line whose numbers are not all in the message is left out.
    #[serde(rename = "do")]
    pub advice: Vec<String>,
    /// Text to copy for the advice: the first whose numbers are all in the message.
    pub copy: Vec<String>,
    /// How to confirm the reason, where the message leaves it open.
    pub settled_by: Option<String>,
    /// A snapshot of PyTorch's allocator would show more.
    pub is_recordable: bool,
}

/// The evidence in a line of a form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// That memory ran out.
    #[default]
    Message,
    /// The same, if no other message of the system says it.
    Note,
    /// That a process was killed, which another message about host memory explains better.
    Echo,
    /// Nothing alone: it has numbers for the messages of the system.
    Context,
    /// Another failure, which people take for a lack of memory.
    OtherFailure,
    /// Words about a lack of memory, of a system that no other row has.
    Unknown,
}

impl Form {
    /// The byte at which a message of this form starts in `text`.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.text.iter().find_map(|pattern| pattern.find(text))
    }

    /// The first wording of this form that `text` has.
    pub fn wording(&self, text: &str) -> Option<&Pattern> {
        self.text.iter().find(|pattern| pattern.find(text).is_some())
    }

    /// True for messages of PyTorch's allocator of device memory.
    pub fn is_allocator(&self) -> bool {
        self.kind == "allocator"
    }

    /// The names of the figures, with their patterns and meanings.
    pub fn figures(&self) -> impl Iterator<Item = (&str, &[String], &str)> {
        self.figures.iter().filter_map(|(name, texts)| {
            let (meaning, patterns) = texts.split_last()?;
            Some((name.as_str(), patterns, meaning.as_str()))
        })
    }
}

/// A file of rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    text: BTreeMap<String, String>,
    #[serde(default)]
    like: BTreeMap<String, Table>,
    form: Vec<Table>,
}

impl Tables {
    fn parse<Row: DeserializeOwned>(file: &str) -> Result<Vec<Row>, toml::de::Error> {
        let Self { text, like, form: rows } = toml::from_str(file)?;
        let complete = |mut row: Table| {
            while let Some(base) = row.remove("like") {
                let base = base.as_str().and_then(|name| like.get(name));
                let base = base.ok_or_else(|| serde::de::Error::custom("unknown `like`"))?;
                for (key, value) in base {
                    row.entry(key).or_insert_with(|| value.clone());
                }
            }
            row.iter_mut().for_each(|(_, value)| replace_shared(value, &text));
            row.try_into()
        };
        rows.into_iter().map(complete).collect()
    }
}

/// Replaces keys of `[text]` in `value`.
fn replace_shared(value: &mut toml::Value, text: &BTreeMap<String, String>) {
    match value {
        toml::Value::String(key) => *key = text.get(key).unwrap_or(key).clone(),
        toml::Value::Array(values) => values.iter_mut().for_each(|value| replace_shared(value, text)),
        _ => {}
    }
}

/// Reads a file of the program.
#[expect(clippy::expect_used, reason = "the files are part of the program, and every test reads them")]
fn rows<Row: DeserializeOwned>(file: &str) -> Vec<Row> {
    Tables::parse(file).expect("a valid table")
}

static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    [
        include_str!("pytorch.toml"),
        include_str!("frameworks.toml"),
        include_str!("serving.toml"),
        include_str!("device.toml"),
        include_str!("host.toml"),
        include_str!("other.toml"),
    ]
    .into_iter()
    .flat_map(rows)
    .collect()
});

static CONCLUSIONS: LazyLock<Vec<Form>> = LazyLock::new(|| rows(include_str!("conclusions.toml")));

/// The words of a conclusion from a message of PyTorch's allocator.
#[expect(clippy::expect_used, reason = "the rows are part of the program, and a test looks every name up")]
pub fn conclusion_row(name: &str) -> &'static Form {
    CONCLUSIONS.iter().find(|row| row.name == name).expect("a row for every conclusion")
}

/// Every form, in the order in which they are tried.
pub fn forms() -> impl Iterator<Item = &'static Form> {
    FORMS.iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete_and_matches_its_own_words_first() {
        let rows: Vec<_> = forms().collect();
        assert!(rows.len() > 100, "{}", rows.len());
        for row in &rows {
            let parts = [&row.kind, &row.name, &row.title];
            let is_shown = matches!(row.role, Role::Message | Role::Note | Role::Echo) && !row.is_allocator();
            assert!(!is_shown || parts.iter().all(|part| !part.is_empty()), "{row:?}");
            assert!(!is_shown || !row.advice.is_empty() && !row.why.is_empty(), "{row:?}");
            assert!(row.why.iter().all(|why| !why.ends_with('.')), "{row:?}");
            for pattern in &row.text {
                let text = pattern.0.replace('…', " x ").replace("{}", "7");
                let text = text.trim_start_matches('^').trim_end_matches('$');
                assert!(row.find(text).is_some(), "{text}");
                assert!(pattern.longest_literal().len() > 2, "{text}");
                let first = rows.iter().find(|other| other.in_frame == row.in_frame && other.find(text).is_some());
                assert_eq!(first, Some(row), "{text}: another row is found first");
            }
            let is_pattern = |text: &String| text.matches("{}").count() == 1;
            for (name, patterns, meaning) in row.figures() {
                assert!(!patterns.is_empty() && patterns.iter().all(is_pattern), "{name} of {row:?}");
                assert!(!is_pattern(&meaning.to_owned()), "{name} of {row:?}");
            }
            assert!(row.numbers.values().flatten().all(|pattern| is_pattern(&pattern.0)), "{row:?}");
            let names: Vec<&String> = row.figures.keys().chain(row.numbers.keys()).collect();
            for template in row.why.iter().chain(&row.advice).chain(&row.copy) {
                let used = template.split('{').skip(1).map(|piece| piece.split_once('}').unwrap().0);
                for name in used.flat_map(|used| used.trim_start_matches(['=', '?', '!']).split(['-', '/'])) {
                    assert!(names.iter().any(|known| *known == name), "{name} in {template:?} is no number");
                }
            }
        }
    }

    #[test]
    fn a_row_takes_what_it_lacks_from_its_base() {
        let file = "[text]\nA = 'a'\n[like.X]\nname = 'x'\ndo = ['A', 'b']\n[like.Y]\nlike = 'X'\ntitle = 'y'\n\
                    [[form]]\nlike = 'Y'\nname = 'own'\n";
        let [row] = &Tables::parse::<Form>(file).unwrap()[..] else { panic!("one row") };
        assert_eq!((row.name.as_str(), row.title.as_str()), ("own", "y"));
        assert_eq!(row.advice, ["a", "b"]);
        assert!(Tables::parse::<Form>("[like]\n[[form]]\nlike = 'Z'\n").is_err());
        assert!(Tables::parse::<Form>("[like]\n[[form]]\nmeans = 'typo'\n").is_err());
    }
}
