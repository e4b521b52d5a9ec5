//! A message of PyTorch's allocator that is printed on several lines.

use super::allocation::{self, FailedAllocation};
use super::traceback::{self, TracebackFrame};

/// A message of PyTorch's allocator that may continue in the next line.
#[derive(Debug)]
pub(super) struct PartialMessage {
    pub(super) line: u64,
    pub(super) before: String,
    pub(super) pieces: Vec<String>,
    /// A blank line followed the last piece.
    pub(super) has_gap: bool,
    pub(super) frames: Vec<TracebackFrame>,
}

/// Joins the lines of a message. People and loggers wrap lines at blanks, terminals anywhere: digits on both sides of a
/// break are one number, and elsewhere the way that yields more numbers is taken. Lines that add none are left out.
pub(super) fn join_pieces(before: &str, pieces: &[String]) -> (FailedAllocation, String) {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let mut pieces = pieces.iter();
    let mut text = pieces.next().cloned().unwrap_or_default();
    let mut best = (allocation::parse_allocation(before, &text), text.clone());
    for piece in pieces {
        let is_cut_number = text.ends_with(is_number) && piece.starts_with(is_number) && !text.ends_with(", ");
        let [glued, spaced] = [format!("{text}{piece}"), format!("{text} {piece}")];
        let read = [&glued, &spaced].map(|text| allocation::parse_allocation(before, text));
        let [read_glued, read_spaced] = read;
        let is_glued = is_cut_number || completeness(&read_glued) > completeness(&read_spaced);
        let read = if is_glued { read_glued } else { read_spaced };
        text = if is_glued { glued } else { spaced };
        if completeness(&read) > completeness(&best.0) {
            best = (read, text.clone());
        }
    }
    best
}

/// The more numbers are read, the better.
fn completeness(read: &FailedAllocation) -> (usize, bool) {
    (read.printed_numbers().len(), read.device.is_some())
}

/// True if `body` continues a message after a blank line, which people insert when they paste.
pub(super) fn is_continuation(body: &str) -> bool {
    ["Tried to allocate", "GPU ", "Process ", "Including ", "Of the allocated", "with ", "and "]
        .iter()
        .any(|start| body.trim_start().starts_with(start))
}

/// True if `body` cannot belong to an unfinished message.
pub(super) fn ends_message(body: &str) -> bool {
    let body = body.trim();
    traceback::is_start(body)
        || traceback::parse_frame(body).is_some()
        || ["frame #", "Exception raised", "The above exc", "During handling", "srun:", "====", "----"]
            .iter()
            .any(|start| body.starts_with(start))
}
