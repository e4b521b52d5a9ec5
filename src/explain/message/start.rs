//! Finds the start of an out-of-memory message in a line, and the system that printed it. One automaton has the forms of
//! all messages, and skips most lines of a log.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use itertools::Itertools as _;

use super::allocation::{ALLOCATION, ASYNC, BLOCK_LIMIT, TRIED, Wording};
use super::traceback::TracebackFrame;
use crate::explain::table::{FORMS, Form, PLACES};

/// Finds the first message in `text`, and the byte at which it starts. Any row of PyTorch's allocator of device memory
/// stands for all of them, as only the whole message shows which it is.
pub(super) fn find_start(text: &str) -> Option<(&'static Form, usize)> {
    if let Some(at) = find_allocation(text) {
        return Some((Wording::Bare.form(), at));
    }
    INDEX.find(text).filter(|(_, at)| !is_code(text, *at))
}

/// True if the message at byte `at` of `text` is in the source code that raises or handles the error.
fn is_code(text: &str, at: usize) -> bool {
    let Some((before, message)) = text.split_at_checked(at) else { return false }; // not a boundary
    let before =
        before.trim_start().trim_end_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '"'));
    let name = message.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(message.len());
    let behind = message.get(name..).unwrap_or_default().trim_start();
    let is_compared = ["==", "!=", "case", "return", "throw", "catch (", "catch (const", "except", "#define", "//"];
    before.contains("raise ")
        || is_compared.iter().any(|word| before.trim_end().ends_with(word))
        || behind.strip_prefix("= ").is_some_and(|value| value.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
}

/// The row for the message `text` of `form` after a traceback that ends in `innermost`.
pub(super) fn choose_by_frame(form: &'static Form, text: &str, innermost: Option<&TracebackFrame>) -> &'static Form {
    let Some(frame) = innermost else { return form }; // no traceback to choose by
    let mut rows = FORMS.iter().filter(|row| !row.in_frame.is_empty() && row.find(text).is_some());
    let parts = [&frame.file, &frame.name].into_iter().chain(&frame.code);
    rows.find(|row| parts.clone().any(|part| part.contains(&row.in_frame))).unwrap_or(form)
}

/// The byte at which a message of PyTorch's allocator starts.
fn find_allocation(text: &str) -> Option<usize> {
    if let Some(at) = text.find(BLOCK_LIMIT) {
        return Some(at);
    }
    let named = text.match_indices(ALLOCATION).find_map(|(at, _)| {
        let (before, behind) = (text.get(..at)?, text.get(at + ALLOCATION.len()..)?);
        if before.ends_with("MPS backend") {
            return before.len().checked_sub("MPS backend".len());
        }
        let name = before.trim_end_matches(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit());
        let is_message = match behind.trim_start_matches(['.', ' ']).strip_prefix(TRIED) {
            // In a source line of a traceback, code follows instead of a number.
            Some(rest) => {
                let rest = rest.trim_start();
                rest.is_empty() || rest.starts_with("more than 1EB") || is_amount_of_message(rest)
            }
            // The rest may be on the next line.
            None => (is_exception(name) || name.trim_end().ends_with(':')) && matches!(behind.trim_end(), "" | "."),
        };
        (is_message && name.len() < before.len()).then_some(name.len())
    });
    named.or_else(|| {
        let at = text.find(ASYNC)?;
        let (before, behind) = (text.get(..at)?, text.get(at + ASYNC.len()..)?);
        let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_control() || c == ' ');
        let is_message = behind.starts_with("would exceed allowed memory") || behind.is_empty() && is_exception(before);
        is_message.then_some(at)
    })
}

/// True if `text` starts with an amount, and then goes on as PyTorch's messages do: prose goes on with a comma or a word.
fn is_amount_of_message(text: &str) -> bool {
    let behind = text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | ' '));
    let behind = behind.trim_start_matches(|c: char| c.is_ascii_alphabetic()).trim_start();
    let is_prose = behind.starts_with(',') || behind.starts_with(char::is_alphabetic) && !behind.starts_with("on ");
    text.starts_with(|c: char| c.is_ascii_digit()) && !is_prose
}

/// True if the text after `before` is that of an exception, or starts the line.
pub(super) fn is_exception(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || ["Error:", "Error('", "Exception Message:**", "!!!"].iter().any(|end| before.ends_with(end))
}

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
        let (forms, mut patterns): (Vec<_>, Vec<_>) =
            FORMS.iter().flat_map(|form| form.text.iter().map(move |text| (form, text.longest_literal()))).unzip();
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
    fn find(&self, text: &str) -> Option<(&'static Form, usize)> {
        let found = self.automaton.find_overlapping_iter(text).map(|found| found.pattern().as_usize());
        // Patterns have the order of the table.
        let mut forms = found.sorted_unstable().dedup().filter_map(|pattern| self.forms.get(pattern));
        forms.find_map(|form| Some((*form, form.find(text)?)).filter(|_| form.in_frame.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::table::{Pattern, Role};

    #[test]
    fn messages_are_distinguished_from_other_text() {
        for (text, start) in [
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "CUDA"),
            ("(RuntimeError('HIP out of memory. Tried to allocate 2.00 MiB. GPU", "HIP "),
            ("CUDA out of memory. Tried to allocate", "CUDA"),
            ("RuntimeError: CUDA out of memory.", "CUDA"),
            ("CUDA out of memory. Tried to allocate more than 1EB memory.", "CUDA"),
            ("E: MPS backend out of memory (MPS allocated: 1.00 GB", "MPS "),
            ("torch.OutOfMemoryError: Allocation on device ", "Allo"),
            ("Allocation on device 0 would exceed allowed memory. (out of memory)", "Allo"),
            ("Generation(\"Allocation on device 0 would exceed allowed memory. (out", "Allo"),
        ] {
            let (form, at) = find_start(text).unwrap();
            assert!(form.is_allocator() && text[at..].starts_with(start), "{text}");
        }
        for (text, name, at) in [
            ("RuntimeError: CUDA error: out of memory", "CUDA", 14),
            ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", "cuBLAS", 12),
            ("NCCL WARN Cuda failure 2 'out of memory'", "NCCL", 0),
        ] {
            let (form, found_at) = find_start(text).unwrap();
            assert_eq!((form.role, &*form.name, found_at), (Role::Message, name, at));
        }
        for other in [
            "",
            "    raise RuntimeError(\"CUDA out of memory. Tried to allocate \" + size)",
            "hint: on CUDA out of memory, lower the batch size",
            "after CUDA out of memory. Tried to allocate 2.00 GiB, lower the batch size",
            "  return \"CUDNN_STATUS_ALLOC_FAILED\";",
            "  VK_ERROR_OUT_OF_DEVICE_MEMORY = -2,",
            "} catch (const std::bad_alloc& error) {",
            "Allocation on device not large enough for array",
            "Cuda failure 'invalid argument'",
            "    raise ValueError(\"No available memory for the cache blocks. \"",
            "Task was Killed by signal",
            "ran out of memory. Tried to allocate 2.00 GiB",
        ] {
            assert!(find_start(other).is_none_or(|(form, _)| form.role == Role::Unknown), "{other}");
        }
    }

    #[test]
    fn known_messages_pass_and_ordinary_lines_do_not() {
        for Pattern(text) in FORMS.iter().flat_map(|form| &form.text) {
            assert!(INDEX.is_match(text.as_bytes()), "{text}");
        }
        for usual in [
            "step 1200 loss 2.31 lr 3.0e-4 12.1 it/s",
            "eta: 1:02:03, memory: 5312, loss: 0.2",
            "step in in step",
            "train.py: other.py",
        ] {
            assert!(!INDEX.is_match(usual.as_bytes()), "{usual}");
        }
        assert!(INDEX.is_match(b"x in train.py:3") && INDEX.is_match(b"train.py:3 in step"));
    }
}
