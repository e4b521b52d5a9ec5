//! The string in pieces.

use super::dialect::Dialect;
use super::error::ConfError;

/// The pieces of a string: words and punctuation.
pub(super) struct Tokens {
    pub(super) list: Vec<String>,
    /// See [`Dialect::is_strict`].
    pub(super) is_strict: bool,
}

impl Tokens {
    pub(super) fn of(text: &str, dialect: &Dialect) -> Self {
        Self { list: cut(text, dialect), is_strict: dialect.is_strict }
    }

    pub(super) fn is(&self, at: usize, token: &str) -> bool {
        self.list.get(at).is_some_and(|found| found == token)
    }

    /// The token at `at`.
    pub(super) fn need(&self, at: usize) -> Result<&str, ConfError> {
        self.list.get(at).map(String::as_str).ok_or_else(|| {
            ConfError::new("Index out of bounds in ConfigTokenizer")
                .with_help("the string ends where a value should follow".to_owned())
        })
    }

    /// Checks that `at` holds `mark` or, where that is not looked at, anything at all.
    pub(super) fn mark(&self, at: usize, mark: &str) -> Result<(), ConfError> {
        if !self.is_strict {
            return self.need(at).map(drop);
        }
        if self.is(at, mark) {
            return Ok(());
        }
        let words = format!("Error parsing CachingAllocator settings, expected {mark}");
        let help = match self.list.get(at) {
            Some(token) => format!("found '{token}'"),
            None => "the string ends there".to_owned(),
        };
        Err(ConfError::new(words).with_help(help))
    }

    /// The end of the value of the key at `at`: the value itself or the `]` of a list.
    pub(super) fn skip(&self, at: usize) -> Result<usize, ConfError> {
        self.need(at + 1)?;
        if self.need(at + 2)? != "[" {
            return Ok(at + 2);
        }
        let rest = self.list.iter().skip(at + 3).position(|token| token == "]");
        rest.map(|rest| at + 3 + rest).ok_or_else(unclosed)
    }
}

/// The error of a list without an end.
pub(super) fn unclosed() -> ConfError {
    let words = "Expected closing bracket ']' in ConfigTokenizer but reached end of config";
    ConfError::new(words)
}

/// The string cut at its punctuation, which is kept, and less its blanks.
fn cut(text: &str, dialect: &Dialect) -> Vec<String> {
    let mut list = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if matches!(c, ',' | ':' | '[' | ']') {
            if !word.is_empty() {
                list.push(std::mem::take(&mut word));
            }
            list.push(c.to_string());
        } else if c != ' ' && !(dialect.removes_all_blanks && ('\t'..='\r').contains(&c)) {
            word.push(c);
        }
    }
    if !word.is_empty() {
        list.push(word);
    }
    list
}
