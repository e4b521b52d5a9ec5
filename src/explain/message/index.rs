//! Finds the forms of messages in a line with one automaton, and skips most lines of a log.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use itertools::Itertools as _;

use crate::explain::table::{FORMS, Form, PLACES};

/// Words of lines that matter and are of no form. Unless a message or frame is unfinished, any other line is
/// skipped.
const WORDS: [&str; 10] = [
    "Tried to allocate",
    "Allocation on device",
    "memory mapping failed",
    "memory block with size",
    "expandable_segments",
    "Traceback",
    "File \"",
    "Cell In[",
    "--> ",
    "\u{2771} ",
];
/// A line with both may be a frame as `rich` and `IPython` print it. Each alone is too common.
const PYTHON_FRAME: [&str; 2] = [".py", " in "];

pub(super) struct Index {
    /// Its patterns: those of `forms`, then words that only make a line matter, then [`PYTHON_FRAME`].
    automaton: AhoCorasick,
    /// The form of each of the first patterns.
    forms: Vec<&'static Form>,
    python_file: usize,
}

pub(super) static INDEX: LazyLock<Index> = LazyLock::new(Index::new);

impl Index {
    #[expect(clippy::expect_used, reason = "the patterns are part of the program, and every test builds the automaton")]
    fn new() -> Self {
        let literals = |form: &'static Form| form.text.iter().map(move |text| (form, text.longest_literal()));
        let (forms, mut patterns): (Vec<_>, Vec<_>) = FORMS.iter().flat_map(literals).unzip();
        patterns.extend(PLACES.iter().flat_map(|place| &place.words).map(String::as_str).chain(WORDS));
        let python_file = patterns.len();
        patterns.extend(PYTHON_FRAME);
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(patterns);
        Self { automaton: automaton.expect("valid patterns"), forms, python_file }
    }

    /// True if the line matters.
    pub(super) fn is_match(&self, line: &[u8]) -> bool {
        let (mut has_file, mut has_in) = (false, false);
        self.automaton.find_overlapping_iter(line).any(|found| {
            let pattern = found.pattern().as_usize();
            has_file |= pattern == self.python_file;
            has_in |= pattern > self.python_file;
            pattern < self.python_file || has_file && has_in
        })
    }

    /// The first form of the table that `text` has, and the byte at which its message starts.
    pub(super) fn find(&self, text: &str) -> Option<(&'static Form, usize)> {
        let found = self.automaton.find_overlapping_iter(text).map(|found| found.pattern().as_usize());
        // Patterns have the order of the table.
        let mut forms = found.sorted_unstable().dedup().filter_map(|pattern| self.forms.get(pattern));
        forms.find_map(|form| Some((*form, form.find(text)?)).filter(|_| form.in_frame.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::table::Pattern;

    #[test]
    fn known_messages_pass_and_ordinary_lines_do_not() {
        for Pattern(text) in FORMS.iter().flat_map(|form| &form.text) {
            assert!(INDEX.is_match(text.as_bytes()), "{text}");
        }
        for usual in ["step 1200 loss 2.31 lr 3.0e-4 12.1 it/s", "eta: 1:02:03, memory: 5312, loss: 0.2"] {
            assert!(!INDEX.is_match(usual.as_bytes()), "{usual}");
        }
        assert!(INDEX.is_match(b"x in train.py:3"));
    }
}
