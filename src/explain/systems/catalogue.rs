//! The messages of other systems, read from the tables beside this file.
//!
//! A table has `[[message]]` rows in the order in which they are tried. `like = "NAME"` copies the keys that a row
//! lacks from `[like.NAME]`. An answer, advice or `settled_by` that is a key of `[text]` is replaced by that text. Answers,
//! advice and commands may have the message's numbers in braces ([`crate::explain`] fills them in).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use toml::Table;

/// A message of a system other than PyTorch's allocator of device memory.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KnownMessage {
    /// The kind of memory that ran out, as JSON names it.
    pub kind: String,
    /// The system that prints the message.
    pub name: String,
    /// A heading: what happened.
    pub title: String,
    /// The printed words. One line has all of them, and the message starts at the first.
    pub words: Vec<String>,
    /// The line has nothing but the first of the words.
    pub is_whole_line: bool,
    /// The line only adds to another message of this system, and is ignored beside one.
    pub is_side_note: bool,
    /// The line continues a message of the line before, which has these words, and shows that it is this system's.
    /// Empty for a message that stands alone.
    pub continues: String,
    /// The innermost frame of the traceback contains this word, in its file, function or code. Such a row takes
    /// precedence over one without. Empty for a message that any frame may precede.
    pub in_frame: String,
    /// How many of the next lines belong to the message.
    pub lines_below: u64,
    pub amounts: Vec<MessageAmount>,
    /// Other numbers: the name of each, and the words that may come before it.
    pub numbers: BTreeMap<String, Vec<String>>,
    /// A clause: why memory ran out.
    pub meaning: String,
    /// Clauses with numbers. The first whose numbers are all in the message replaces `meaning`.
    pub answers: Vec<String>,
    /// The most useful first. A line whose numbers are not all in the message is left out.
    pub advice: Vec<String>,
    /// Text to copy for the advice: the first whose numbers are all in the message.
    pub copies: Vec<String>,
    /// How to confirm the meaning, where the words alone leave it open.
    pub settled_by: Option<String>,
    /// A snapshot of PyTorch's allocator would show more.
    pub is_recordable: bool,
}

/// An amount of memory in a message, found by the words next to it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageAmount {
    /// The name of the figure in JSON.
    pub name: String,
    /// The words before the amount; `…` stands for any text between them.
    pub after: Option<String>,
    /// The words behind it, for a message without `after`.
    pub before: Option<String>,
    pub meaning: String,
}

impl MessageAmount {
    pub fn after_and_before(&self) -> (Option<&str>, Option<&str>) {
        (self.after.as_deref(), self.before.as_deref())
    }
}

impl KnownMessage {
    /// The byte at which this message starts in `text`.
    pub fn find(&self, text: &str) -> Option<usize> {
        let (first, others) = self.words.split_first()?;
        if self.is_whole_line {
            return (text.trim() == *first).then(|| text.find(first)).flatten();
        }
        let start = text.find(first)?;
        others.iter().all(|word| text.contains(word)).then_some(start)
    }
}

/// A file of rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    text: BTreeMap<String, String>,
    like: BTreeMap<String, Table>,
    message: Vec<Table>,
}

impl Tables {
    fn parse(file: &str) -> Result<Vec<KnownMessage>, toml::de::Error> {
        let Self { text, like, message: rows } = toml::from_str(file)?;
        let shared = |words: String| text.get(&words).cloned().unwrap_or(words);
        let message = |mut row: Table| {
            while let Some(base) = row.remove("like") {
                let base = base.as_str().and_then(|name| like.get(name));
                let base = base.ok_or_else(|| serde::de::Error::custom("unknown `like`"))?;
                for (key, value) in base {
                    row.entry(key).or_insert_with(|| value.clone());
                }
            }
            let message: KnownMessage = row.try_into()?;
            Ok(KnownMessage {
                answers: message.answers.into_iter().map(shared).collect(),
                advice: message.advice.into_iter().map(shared).collect(),
                settled_by: message.settled_by.filter(|words| !words.is_empty()).map(shared),
                ..message
            })
        };
        rows.into_iter().map(message).collect()
    }
}

const FILES: [&str; 4] = [
    include_str!("frameworks.toml"),
    include_str!("serving.toml"),
    include_str!("device.toml"),
    include_str!("host.toml"),
];

#[expect(clippy::expect_used, reason = "the files are part of the program, and every test reads them")]
static MESSAGES: LazyLock<Vec<KnownMessage>> = LazyLock::new(|| {
    let read = |file| Tables::parse(file).expect("a valid table of messages");
    FILES.into_iter().flat_map(read).collect()
});

/// Every known message, in the order in which they are tried.
pub fn known_messages() -> impl Iterator<Item = &'static KnownMessage> {
    MESSAGES.iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete_and_matches_its_own_words_first() {
        let rows: Vec<_> = known_messages().collect();
        assert!(rows.len() > 100, "{}", rows.len());
        for row in &rows {
            let text = row.words.join(" ");
            assert_eq!(row.find(&text), Some(0), "{text}");
            let parts = [&row.kind, &row.name, &row.title, &row.meaning];
            assert!(parts.iter().all(|part| !part.is_empty()), "{text}");
            assert!(!row.advice.is_empty() && !row.meaning.ends_with('.'), "{text}");
            let amounts = &row.amounts;
            assert!(amounts.iter().all(|a| a.after.is_some() != a.before.is_some()), "{text}");
            let first = rows.iter().find(|other| other.in_frame == row.in_frame && other.find(&text).is_some());
            assert_eq!(first, Some(row), "{text}: another row is found first");
            let names: Vec<&str> =
                amounts.iter().map(|a| a.name.as_str()).chain(row.numbers.keys().map(String::as_str)).collect();
            for template in row.answers.iter().chain(&row.advice).chain(&row.copies) {
                let used = template.split('{').skip(1).map(|piece| piece.split_once('}').unwrap().0);
                for name in used.flat_map(|used| used.trim_start_matches('=').split(['-', '/'])) {
                    assert!(names.contains(&name), "{text}: {name} in {template:?} is no number of the message");
                }
            }
        }
    }

    #[test]
    fn a_row_takes_what_it_lacks_from_its_base() {
        let file = "[text]\nA = 'a'\n[like.X]\nname = 'x'\nadvice = ['A', 'b']\n[like.Y]\nlike = 'X'\ntitle = 'y'\n\
                    [[message]]\nlike = 'Y'\nname = 'own'\n";
        let [row] = &Tables::parse(file).unwrap()[..] else { panic!("one row") };
        assert_eq!((row.name.as_str(), row.title.as_str()), ("own", "y"));
        assert_eq!(row.advice, ["a", "b"]);
        assert!(Tables::parse("[like]\n[[message]]\nlike = 'Z'\n").is_err());
        assert!(Tables::parse("[like]\n[[message]]\nmeans = 'typo'\n").is_err());
    }
}
