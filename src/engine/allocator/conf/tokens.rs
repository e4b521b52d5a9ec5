//! Tokens of a settings string.

use super::dialect::Dialect;
use super::error::ConfError;
use crate::allocator::releases::Rule;

/// Words and punctuation of a settings string.
pub(super) struct Tokens {
    pub(super) list: Vec<String>,
    /// Colons and commas are checked, and a missing one is reported.
    pub(super) is_strict: bool,
}

impl Tokens {
    /// Splits `text` at punctuation, which becomes tokens too, and removes blanks.
    pub(super) fn tokenize(text: &str, dialect: Dialect) -> Self {
        let is_strict = !dialect.has(Rule::SharedParser);
        let mut list = Vec::new();
        let mut word = String::new();
        for c in text.chars() {
            if matches!(c, ',' | ':' | '[' | ']') {
                if !word.is_empty() {
                    list.push(std::mem::take(&mut word));
                }
                list.push(c.to_string());
            } else if c != ' ' && (is_strict || !('\t'..='\r').contains(&c)) {
                word.push(c);
            }
        }
        if !word.is_empty() {
            list.push(word);
        }
        Self { list, is_strict }
    }

    pub(super) fn is_token(&self, at: usize, token: &str) -> bool {
        self.list.get(at).is_some_and(|found| found == token)
    }

    /// The token at `at`; an error if the string ends before it.
    pub(super) fn require(&self, at: usize) -> Result<&str, ConfError> {
        self.list.get(at).map(String::as_str).ok_or_else(|| {
            ConfError::new("Index out of bounds in ConfigTokenizer")
                .with_help("the string ends where a value should follow".to_owned())
        })
    }

    /// Checks that the token at `at` is `mark`. A dialect that is not strict accepts any token.
    pub(super) fn expect_mark(&self, at: usize, mark: &str) -> Result<(), ConfError> {
        if !self.is_strict {
            return self.require(at).map(drop);
        }
        if self.is_token(at, mark) {
            return Ok(());
        }
        let message = format!("Error parsing CachingAllocator settings, expected {mark}");
        let help = match self.list.get(at) {
            Some(token) => format!("found '{token}'"),
            None => "the string ends there".to_owned(),
        };
        Err(ConfError::new(message).with_help(help))
    }

    /// Position of the last token of the value that belongs to the key at `at`: the value, or the `]` of a list.
    pub(super) fn skip_value(&self, at: usize) -> Result<usize, ConfError> {
        self.require(at + 1)?;
        if self.require(at + 2)? != "[" {
            return Ok(at + 2);
        }
        let rest = self.list.iter().skip(at + 3).position(|token| token == "]");
        rest.map(|rest| at + 3 + rest).ok_or_else(unclosed_list)
    }
}

/// PyTorch's error for a list without `]`.
pub(super) fn unclosed_list() -> ConfError {
    let message = "Expected closing bracket ']' in ConfigTokenizer but reached end of config";
    ConfError::new(message)
}
