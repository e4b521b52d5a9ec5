//! The frames of a Python traceback, as Python, `IPython` and `rich` print them.

/// One frame: a file, a line of it, a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracebackFrame {
    /// As printed.
    pub file: String,
    /// Line number; 0 where none is printed.
    pub line: u32,
    /// The function.
    pub name: String,
    /// The line of code, where it is printed.
    pub code: Option<String>,
}

/// Whether a traceback begins here.
pub(super) fn begins(text: &str) -> bool {
    text.contains("Traceback (most recent call last)")
}

/// The frame that `text` names.
pub(super) fn frame(text: &str) -> Option<TracebackFrame> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '│' | '|'));
    if let Some((_, rest)) = text.split_once("File \"") {
        return quoted(rest);
    }
    if let Some(cell) = text.strip_prefix("Cell ") {
        let (cell, line) = cell.split_once(", line ")?;
        let name = line.split_once(", in ").map_or("<module>", |(_, name)| name);
        let line = leading_number(line)?;
        return Some(TracebackFrame {
            file: format!("Cell {cell}"),
            line,
            name: function(name),
            code: None,
        });
    }
    let text = text.strip_prefix("File ").unwrap_or(text);
    // `train.py:88, in step(x)`, `train.py:88 in step`, `train.py in step(x)`
    let (place, name) = text.split_once(" in ")?;
    let place = place.trim_end_matches(',');
    let (file, line) = match place.rsplit_once(':') {
        // What a drive letter ends is no line.
        Some((file, line)) if !line.starts_with(['\\', '/']) => (file, line.parse().ok()?),
        _ => (place, 0),
    };
    let is_file = file.strip_suffix(".py").is_some() || file.starts_with("<ipython-input");
    // Users of Windows have a first name, a blank and a last one.
    (is_file && (!file.contains(' ') || has_drive(file))).then(|| TracebackFrame {
        file: file.to_owned(),
        line,
        name: function(name),
        code: None,
    })
}

/// Whether a path begins with a drive letter.
fn has_drive(file: &str) -> bool {
    let mut chars = file.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.next() == Some(':')
        && matches!(chars.next(), Some('\\' | '/'))
}

/// The line that `IPython` and `rich` point at below a frame, and its number: `---> 88     y = f(x)`,
/// `│ ❱ 88 │   y = f(x) │`.
pub(super) fn pointed_line(text: &str) -> Option<(u32, &str)> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '│');
    let behind = match text.strip_prefix('\u{2771}') {
        Some(behind) => behind.trim_start(),
        None => text.strip_prefix("--")?.trim_start_matches('-').strip_prefix("> ")?,
    };
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    let (number, code) = behind.split_at_checked(digits)?;
    Some((number.parse().ok()?, code.trim_matches(|c: char| c.is_whitespace() || c == '│')))
}

/// Bytes of code that are kept.
const MOST_CODE: usize = 200;

/// `text` as a frame's line of code; nothing where it only underlines (`^^^^`, `~~~^^^`).
pub(super) fn code(text: &str) -> Option<String> {
    let text = text.trim();
    let underlines = text.chars().all(|c| matches!(c, '^' | '~' | ' '));
    let end = (0..=MOST_CODE.min(text.len())).rev().find(|end| text.is_char_boundary(*end))?;
    text.get(..end).filter(|_| !underlines).map(str::to_owned)
}

/// How far `text` is indented. Below a frame of Python's tracebacks stands its code, further in.
pub(super) fn indentation(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// `train.py", line 88, in step`
fn quoted(rest: &str) -> Option<TracebackFrame> {
    let (file, rest) = rest.split_once("\", line ")?;
    let line = leading_number(rest)?;
    let (_, name) = rest.split_once(", in ")?;
    Some(TracebackFrame { file: file.to_owned(), line, name: function(name), code: None })
}

fn function(name: &str) -> String {
    let end = name.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(name.len());
    name.get(..end).unwrap_or(name).to_owned()
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_printer_are_read() {
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
            let expected =
                TracebackFrame { file: file.into(), line, name: name.into(), code: None };
            assert_eq!(frame(text), Some(expected), "{text}");
        }
        for none in ["", "for x in y", "File \"a.py\"", "see a.py in the tree of b", "a b.py in c"]
        {
            assert_eq!(frame(none), None, "{none}");
        }
        assert_eq!(pointed_line("---> 88     y = f(x)"), Some((88, "y = f(x)")));
        assert_eq!(pointed_line("│ ❱ 864 │   train(args)      │"), Some((864, "train(args)")));
        assert_eq!(pointed_line("-- 88"), None);
    }
}
