//! The action that a page ends with.

use crate::output::document::{Document, code};
use crate::output::wording::Summary;

/// The action, and the command or the text to copy for it: the last lines of a first screen.
pub(super) fn add_action(document: &mut Document, summary: &Summary) {
    document.fields("do", summary.action.as_deref());
    add_copy(document, summary.copy.as_deref());
}

/// A command to paste next, or another text to copy.
pub(super) fn add_copy(document: &mut Document, copy: Option<&str>) {
    let name = if copy.is_some_and(|copy| copy.starts_with("oomscope ")) { "next" } else { "copy" };
    document.fields(name, copy.map(code));
}
