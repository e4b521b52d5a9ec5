//! Lines, paragraphs, headings and tables: what every page is written with.

use super::style::{Style, wrap};
use super::table::table;
use crate::analysis::Warning;

/// Columns of the names on the left.
const NAMES: usize = 16;

/// A page for a person, as it is being written. What it says is added by the file of each command.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) out: String,
    pub(super) style: Style,
}

impl Page {
    pub(super) fn new(style: Style) -> Self {
        Self { out: String::new(), style }
    }

    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// A paragraph from the left edge.
    pub(super) fn text(&mut self, text: &str) {
        let wrapped = wrap(text, self.style.width, "");
        self.line(&wrapped);
    }

    /// `  name  text`, the text wrapped in its own column.
    pub(super) fn named(&mut self, name: &str, text: &str) {
        let indent = " ".repeat(NAMES + 2);
        let wrapped = wrap(text, self.style.width.saturating_sub(NAMES + 2), &indent);
        self.line(&format!("  {name:<NAMES$}{wrapped}"));
    }

    /// What is odd about the file, before what is made of it.
    pub(super) fn warnings(&mut self, warnings: &[Warning]) {
        for warning in warnings {
            self.text(&format!("warning: {} [{}]", warning.message, warning.code));
        }
    }

    /// A heading after an empty line.
    pub(super) fn heading(&mut self, text: &str) {
        self.line("");
        self.line(&self.style.heading(text));
    }

    pub(super) fn table(&mut self, header: &[&str], left: &[usize], rows: Vec<Vec<String>>) {
        let table = table(self.style, header, left, rows);
        self.out.push_str(&table);
    }
}
