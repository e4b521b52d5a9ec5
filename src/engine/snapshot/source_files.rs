//! Text of the program's source files.

use std::collections::BTreeMap;

use crate::base::units::{escape_name, escape_text};

/// Longer lines are cut, in characters.
const MAX_LINE_CHARS: usize = 160;
/// Takes the place of a tab.
const TAB: &str = "    ";

/// Texts of source files by recorded path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceFiles {
    texts: BTreeMap<String, String>,
    /// The recorder stored all files of the program.
    pub is_complete: bool,
}

impl SourceFiles {
    /// Adds the text of a file, unless it is known.
    pub fn add(&mut self, path: &str, text: String) {
        self.texts.entry(path.to_owned()).or_insert(text);
    }

    /// The text of the file, if it is known.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Paths with their texts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of `line` of `file`, which is named as in a report with complete paths: cut, and escaped for output.
    pub fn line(&self, file: &str, line: u32) -> Option<String> {
        let text = self.texts.get(file).or_else(|| {
            let escaped = self.texts.iter().find(|(path, _)| escape_name(path) == file);
            escaped.map(|(_, text)| text)
        })?;
        let line = text.split('\n').nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
        let shown: String = line.trim_end().chars().take(MAX_LINE_CHARS).collect();
        Some(escape_text(&shown.replace('\t', TAB)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_escaped() {
        let mut files = SourceFiles::default();
        files.add("/app/train.py", "one\n\tloss.backward()  \r\n".to_owned());
        files.add("/app/train.py", "another text".to_owned());
        files.add("/app/\u{1b}.py", format!("\u{1b}[31m{}", "é".repeat(1000)));
        assert_eq!(files.line("/app/train.py", 2).as_deref(), Some("    loss.backward()"));
        assert_eq!((files.line("/app/train.py", 4), files.line("/app/train.py", 0)), (None, None));
        let text = files.line("/app/\\u{1b}.py", 1).unwrap();
        assert_eq!(text, format!("\\u{{1b}}[31m{}", "é".repeat(155)));
    }
}
