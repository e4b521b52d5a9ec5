//! Splits a line of a log into the prefixes of launchers and loggers, and the text after them.

use std::borrow::Cow;

use serde_json::Value;

/// The process that wrote a line, as far as launchers label it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineSource {
    /// From `[rank3]:`, `[default3]:`, `3: ` (srun -l) or `[1,3]<stderr>:` (mpirun --tag-output).
    pub rank: Option<u32>,
    /// Another label, such as `RayTrainWorker pid=123, ip=10.0.0.1` or a host name.
    pub label: Option<String>,
}

/// `raw` without escape sequences of terminals. Invalid UTF-8 becomes the replacement character.
pub(super) fn plain_text(raw: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(raw);
    if !text.contains('\x1b') {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            out.push(c);
        } else if chars.next() == Some('[') {
            // A control sequence ends with a character from '@' to '~'.
            chars.by_ref().find(|c| ('@'..='~').contains(c));
        }
    }
    Cow::Owned(out)
}

/// The lines inside `text`, if it is a logger's JSON record, or a traceback or message with its line breaks escaped as
/// `\n`.
pub(super) fn embedded_lines(text: &str) -> Option<Vec<String>> {
    if let Some(record) = text.find('{').and_then(|at| text.get(at..))
        && record.contains(r#"":"#)
        && let Ok(value @ Value::Object(_)) = serde_json::from_str(record.trim())
    {
        let mut lines = Vec::new();
        collect_strings(&value, &mut lines);
        return Some(lines);
    }
    let is_escaped = text.contains(r"\n  File ") || text.contains(r"(out of memory)\n");
    is_escaped.then(|| unescape(text).split('\n').map(str::to_owned).collect())
}

/// Undoes the backslash escapes of quotes, line breaks and backslashes.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some(c @ ('"' | '\'' | '\\')) => out.push(c),
            other => out.extend(['\\'].into_iter().chain(other)),
        }
    }
    out
}

fn collect_strings(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::String(text) => lines.extend(text.lines().map(str::to_owned)),
        Value::Array(items) => items.iter().for_each(|item| collect_strings(item, lines)),
        Value::Object(pairs) => pairs.values().for_each(|value| collect_strings(value, lines)),
        _ => {}
    }
}

/// Splits off labels, times and log levels: the source of the line, and the rest.
pub(super) fn split_source(text: &str) -> (LineSource, &str) {
    let mut source = LineSource::default();
    let mut rest = text;
    loop {
        // Blanks after the last prefix are the indentation of the text.
        let trimmed = rest.trim_start();
        let Some((prefix, behind)) = parse_prefix(trimmed, rest.len() == text.len()) else {
            // The line has no further prefix.
            return (source, rest.strip_prefix(' ').unwrap_or(rest));
        };
        match prefix {
            Prefix::Rank(rank) => source.rank = source.rank.or(Some(rank)),
            Prefix::Label(label) => {
                source.label.get_or_insert_with(|| label.to_owned());
            }
            Prefix::Ignored => {}
        }
        rest = behind;
    }
}

enum Prefix<'a> {
    Rank(u32),
    Label(&'a str),
    Ignored,
}

/// Parses one prefix at the start of `text`; also returns the rest.
fn parse_prefix(text: &str, at_line_start: bool) -> Option<(Prefix<'_>, &str)> {
    if let Some(inside) = text.strip_prefix('[') {
        let (inside, behind) = inside.split_once(']')?;
        return parse_bracketed(inside, behind);
    }
    if let Some(inside) = text.strip_prefix('(') {
        let (inside, behind) = inside.split_once(')')?;
        return inside.contains("pid=").then_some((Prefix::Label(inside), behind));
    }
    let (word, behind) = text.split_once(char::is_whitespace)?;
    if is_time(word) || is_level(word) || matches!(word, "-" | "|" | "│" | "stderr" | "stdout") {
        return Some((Prefix::Ignored, behind));
    }
    let label = word.strip_suffix(':')?;
    if !at_line_start {
        return None;
    }
    if let Ok(rank) = label.parse() {
        return Some((Prefix::Rank(rank), behind));
    }
    for name in ["rank", "Rank", "worker"] {
        if let Some(rank) = label.strip_prefix(name).and_then(|n| n.parse().ok()) {
            return Some((Prefix::Rank(rank), behind));
        }
    }
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_host = label.contains(|c: char| c.is_ascii_digit()) && label.chars().all(is_host);
    (is_host && !label.ends_with("Error")).then_some((Prefix::Label(label), behind))
}

/// `[rank3]:`, `[default3]:`, `[1,3]<stderr>:`, `[2026-11-21 10:00:00,123]`, `[ERROR]`, `[launch.py:318:f]`,
/// `[W1121 10:00:00 file.cpp:12]`.
fn parse_bracketed<'a>(inside: &'a str, behind: &'a str) -> Option<(Prefix<'a>, &'a str)> {
    let unlabelled = behind.strip_prefix(':').unwrap_or(behind);
    let lower = inside.trim().to_ascii_lowercase();
    for name in ["rank", "default", "trainer", "worker", ""] {
        let number = lower.strip_prefix(name).map(|n| n.trim_start_matches([' ', ':', '=', '-']));
        if let Some(rank) = number.and_then(|n| n.parse().ok())
            && (!name.is_empty() || behind.starts_with(':'))
        {
            return Some((Prefix::Rank(rank), unlabelled));
        }
    }
    if let Some((_, rank)) = inside.split_once(',')
        && let Some((_, behind)) = behind.split_once(">:").filter(|_| behind.starts_with("<std"))
    {
        return Some((rank.parse().map_or(Prefix::Ignored, Prefix::Rank), behind));
    }
    let mut words = inside.split_whitespace();
    // SGLang: `[2025-03-29 18:18:34 TP0]` has the rank of tensor parallelism.
    if words.next().is_some_and(is_time)
        && let Some(rank) = words.find_map(|word| word.strip_prefix("TP")?.parse().ok())
    {
        return Some((Prefix::Rank(rank), unlabelled));
    }
    let mut words = inside.split_whitespace();
    let is_ignored = words.any(|word| is_time(word) || is_level(word)) || inside.contains(".py:");
    is_ignored.then_some((Prefix::Ignored, unlabelled))
}

/// A date (also `03-10`), a time of day, or both.
fn is_time(word: &str) -> bool {
    if let [a, b, b'-' | b'/', c, d] = word.as_bytes()
        && [a, b, c, d].iter().all(|b| b.is_ascii_digit())
    {
        return true;
    }
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let marks = word.bytes().filter(|b| matches!(b, b':' | b'-' | b'/')).count();
    digits >= 6 && marks >= 2 && word.bytes().all(|b| b.is_ascii_digit() || b":-/.,TZ+".contains(&b))
}

fn is_level(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphabetic());
    let levels = ["TRACE", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"];
    levels.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Option<u32>, Option<String>, String) {
        let (source, body) = split_source(text);
        (source.rank, source.label, body.to_owned())
    }

    #[test]
    fn prefixes_are_split_from_text() {
        let rank = |rank, body: &str| (Some(rank), None, body.to_owned());
        let label = |label: &str, body: &str| (None, Some(label.to_owned()), body.to_owned());
        let none = |body: &str| (None, None, body.to_owned());
        assert_eq!(parts("[rank3]: RuntimeError: x"), rank(3, "RuntimeError: x"));
        assert_eq!(parts("[rank3]:   File \"a.py\""), rank(3, "  File \"a.py\""));
        assert_eq!(parts("[default12]:x y"), rank(12, "x y"));
        assert_eq!(parts("3: x y"), rank(3, "x y"));
        assert_eq!(parts("[1,5]<stderr>:x y"), rank(5, "x y"));
        assert_eq!(parts("rank7: x y"), rank(7, "x y"));
        assert_eq!(parts("[2026-11-21 10:00:00,123] [ERROR] [launch.py:3:main] [Rank 2] x y"), rank(2, "x y"));
        assert_eq!(parts("[2025-03-29 18:18:34 DP0 TP2] x y"), rank(2, "x y"));
        assert_eq!(
            parts("(EngineCore pid=3) ERROR 10-25 13:08:43 [core.py:708]   File"),
            label("EngineCore pid=3", "  File")
        );
        assert_eq!(parts("(Worker pid=12, ip=10.0.0.1) x y"), label("Worker pid=12, ip=10.0.0.1", "x y"));
        assert_eq!(parts("node-1: [rank0]: x"), (Some(0), Some("node-1".into()), "x".into()));
        assert_eq!(parts("2026-11-21T10:00:00.5Z ERROR x y"), none("x y"));
        assert_eq!(parts("torch.OutOfMemoryError: x"), none("torch.OutOfMemoryError: x"));
        assert_eq!(parts("  File \"a.py\", line 1, in f"), none(" File \"a.py\", line 1, in f"));
        assert_eq!(parts(""), none(""));
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(plain_text(b"\x1b[31;1mred\x1b[0m \xff"), "red \u{fffd}");
        assert_eq!(plain_text(b"\x1b"), "");
    }

    #[test]
    fn lines_in_records_are_extracted() {
        let lines = embedded_lines(r#"{"level": "error", "msg": "a\nb", "n": 3}"#).unwrap();
        assert_eq!(lines, ["error", "a", "b"]);
        let lines = embedded_lines(r#"E Traceback:\n  File \"a.py\", line 1\nX: b"#).unwrap();
        assert_eq!(lines, ["E Traceback:", "  File \"a.py\", line 1", "X: b"]);
        let lines = embedded_lines(r#"E Traceback:\n  File \"C:\\new\\a.py\", line 1, in f\nX: b"#).unwrap();
        assert_eq!(lines, ["E Traceback:", r#"  File "C:\new\a.py", line 1, in f"#, "X: b"]);
        let lines = embedded_lines(r"x would exceed allowed memory. (out of memory)\nRequested : 2.00 GiB").unwrap();
        assert_eq!(lines.last().unwrap(), "Requested : 2.00 GiB");
        assert_eq!(embedded_lines(r"C:\new\file"), None);
        assert_eq!(embedded_lines("{'a': 1}"), None);
    }
}
