//! The summary at the top of every page.

use crate::output::document::{Document, code, strong};
use crate::output::wording::Summary;

/// The result, the largest holder, the action and a line to copy.
pub(super) fn summary(document: &mut Document, summary: &Summary) {
    document.field("result", strong(&*summary.answer));
    holder_and_action(document, summary);
}

/// The same without the result, for pages whose title states it.
pub(super) fn holder_and_action(document: &mut Document, summary: &Summary) {
    document.fields("held by", summary.who.as_deref());
    document.fields("kept by", summary.variable.as_deref());
    document.fields("to do", summary.action.as_deref());
    document.fields("copy", summary.copy.as_deref().map(code));
}

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
