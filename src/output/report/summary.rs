//! The lines that every page begins with.

use crate::base::summary::Summary;
use crate::output::document::{Document, code, strong};

/// What happened, who holds most, what to do and what to copy for it.
pub(super) fn summary(document: &mut Document, summary: &Summary) {
    document.field("result", strong(&*summary.answer));
    what_to_do(document, summary);
}

/// The same below a title that says what happened.
pub(super) fn what_to_do(document: &mut Document, summary: &Summary) {
    document.fields("held by", summary.who.as_deref());
    document.fields("to do", summary.action.as_deref());
    document.fields("copy", summary.copy.as_deref().map(code));
}
