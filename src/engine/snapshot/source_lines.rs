//! Text of the program's source lines.

use std::collections::BTreeMap;

use crate::base::units::{escape_name, escape_text};

/// Longer lines are cut, in characters. `python/oomscope/_source.py` cuts at the same length.
const MAX_LINE_CHARS: usize = 160;
/// Takes the place of a tab.
const TAB: &str = "    ";

/// Text of source lines by file and line number, as reports show both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceLines {
    /// By [`escape_name`] of the file.
    files: BTreeMap<String, BTreeMap<u32, String>>,
}

impl SourceLines {
    /// Adds the text of a line, unless it is known. It is cut, and escaped for output.
    pub fn add(&mut self, file: &str, line: u32, text: &str) {
        let shown = || {
            let text: String = text.trim_end().chars().take(MAX_LINE_CHARS).collect();
            escape_text(&text.replace('\t', TAB))
        };
        self.files.entry(escape_name(file)).or_default().entry(line).or_insert_with(shown);
    }

    /// The text of `line` of `file`, which is named as in a report with complete paths.
    pub fn get(&self, file: &str, line: u32) -> Option<&str> {
        self.files.get(file)?.get(&line).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_escaped_once() {
        let mut lines = SourceLines::default();
        lines.add("/app/train.py", 3, "\tloss.backward()  \r\n");
        lines.add("/app/train.py", 3, "another text");
        lines.add("/app/\u{1b}.py", 1, &format!("\u{1b}[31m{}", "é".repeat(1000)));
        assert_eq!(lines.get("/app/train.py", 3), Some("    loss.backward()"));
        assert_eq!(lines.get("/app/train.py", 4), None);
        let text = lines.get("/app/\\u{1b}.py", 1).unwrap();
        assert_eq!(text, format!("\\u{{1b}}[31m{}", "é".repeat(155)));
    }
}
