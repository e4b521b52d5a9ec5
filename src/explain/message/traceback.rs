//! Parses frames of Python tracebacks, as Python, `IPython` and `rich` print them.

use std::str::FromStr;

/// A frame of a printed traceback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracebackFrame {
    /// Path as printed; may be shortened by `rich` or `IPython`.
    pub file: String,
    /// Line number; 0 if it is not printed.
    pub line: u32,
    /// Name of the function.
    pub name: String,
    /// The source code of the line, if it is printed.
    pub code: Option<String>,
}

impl TracebackFrame {
    /// A frame of the function whose name starts `call`.
    fn new(file: impl Into<String>, line: u32, call: &str) -> Self {
        let name = call.split(|c: char| c.is_whitespace() || c == '(').next().unwrap_or(call);
        Self { file: file.into(), line, name: name.to_owned(), code: None }
    }
}

pub(super) fn is_start(text: &str) -> bool {
    text.contains("Traceback (most recent call last)")
}

pub(super) fn parse_frame(text: &str) -> Option<TracebackFrame> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '│' | '|'));
    if let Some((_, rest)) = text.split_once("File \"") {
        return parse_python_frame(rest);
    }
    if let Some(cell) = text.strip_prefix("Cell ") {
        let (cell, line) = cell.split_once(", line ")?;
        let name = line.split_once(", in ").map_or("<module>", |(_, name)| name);
        return Some(TracebackFrame::new(format!("Cell {cell}"), leading_number(line)?, name));
    }
    let text = text.strip_prefix("File ").unwrap_or(text);
    // `train.py:88, in step(x)`, `train.py:88 in step`, `train.py in step(x)`
    let (location, name) = text.split_once(" in ")?;
    let location = location.trim_end_matches(',');
    let (file, line) = match location.rsplit_once(':') {
        // The colon of a drive letter does not precede a line number.
        Some((file, line)) if !line.starts_with(['\\', '/']) => (file, line.parse().ok()?),
        _ => (location, 0),
    };
    let is_file = file.strip_suffix(".py").is_some() || file.starts_with("<ipython-input");
    // Paths on Windows often have a blank, in the user's name.
    (is_file && (!file.contains(' ') || has_drive(file))).then(|| TracebackFrame::new(file, line, name))
}

fn has_drive(file: &str) -> bool {
    let mut chars = file.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.next() == Some(':')
        && matches!(chars.next(), Some('\\' | '/'))
}

/// Parses the line that `IPython` and `rich` point at below a frame: `---> 88     y = f(x)`, `│ ❱ 88 │   y = f(x) │`.
/// Returns its number and code.
pub(super) fn parse_pointed_line(text: &str) -> Option<(u32, &str)> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '│');
    let behind = match text.strip_prefix('\u{2771}') {
        Some(behind) => behind.trim_start(),
        None => text.strip_prefix("--")?.trim_start_matches('-').strip_prefix("> ")?,
    };
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    let (number, code) = behind.split_at_checked(digits)?;
    Some((number.parse().ok()?, code.trim_matches(|c: char| c.is_whitespace() || c == '│')))
}

/// Longer source lines are truncated to this many bytes.
const MAX_CODE: usize = 200;

/// `text` as a frame's source line; `None` if it only has underlines (`^^^^`, `~~~^^^`).
pub(super) fn parse_code(text: &str) -> Option<String> {
    let text = text.trim();
    let is_underline = text.chars().all(|c| matches!(c, '^' | '~' | ' '));
    let end = (0..=MAX_CODE.min(text.len())).rev().find(|end| text.is_char_boundary(*end))?;
    text.get(..end).filter(|_| !is_underline).map(str::to_owned)
}

/// Python's tracebacks indent source lines deeper than the frame above.
pub(super) fn indentation(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// `train.py", line 88, in step`
fn parse_python_frame(rest: &str) -> Option<TracebackFrame> {
    let (file, rest) = rest.split_once("\", line ")?;
    let line = leading_number(rest)?;
    let (_, name) = rest.split_once(", in ")?;
    Some(TracebackFrame::new(file, line, name))
}

/// The number at the start of `text`.
pub(super) fn leading_number<N: FromStr>(text: &str) -> Option<N> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_in_every_format_are_read() {
        for (text, file, line, name) in [
            ("  File \"/app/a b.py\", line 88, in step", "/app/a b.py", 88, "step"),
            ("File \"<string>\", line 1, in <module>", "<string>", 1, "<module>"),
            ("File ~/x/train.py:88, in step(self, x)", "~/x/train.py", 88, "step"),
            ("│ /app/train.py:88 in step      │", "/app/train.py", 88, "step"),
            ("/usr/lib/torch/_ops.py in __call__(self)", "/usr/lib/torch/_ops.py", 0, "__call__"),
            (r#"  File "C:\my x\train.py", line 8, in step"#, r"C:\my x\train.py", 8, "step"),
            (r"│ C:\my x\train.py:88 in step  │", r"C:\my x\train.py", 88, "step"),
            (r"File D:\x\train.py:8, in step(self)", r"D:\x\train.py", 8, "step"),
            (r"C:\x\train.py in step(self)", r"C:\x\train.py", 0, "step"),
            ("Cell In[3], line 5", "Cell In[3]", 5, "<module>"),
            ("Cell In[3], line 5, in f(x)", "Cell In[3]", 5, "f"),
            ("<ipython-input-3-ab> in <module>", "<ipython-input-3-ab>", 0, "<module>"),
        ] {
            let expected = TracebackFrame { file: file.into(), line, name: name.into(), code: None };
            assert_eq!(parse_frame(text), Some(expected), "{text}");
        }
        for none in ["", "for x in y", "File \"a.py\"", "see a.py in the tree of b", "a b.py in c"] {
            assert_eq!(parse_frame(none), None, "{none}");
        }
        assert_eq!(parse_pointed_line("---> 88     y = f(x)"), Some((88, "y = f(x)")));
        assert_eq!(parse_pointed_line("│ ❱ 864 │   train(args)      │"), Some((864, "train(args)")));
        assert_eq!(parse_pointed_line("-- 88"), None);
    }
}
