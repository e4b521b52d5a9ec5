//! Splits a line of a log into the prefixes of launchers and loggers, and the text after them.

use std::borrow::Cow;

use itertools::Itertools as _;
use serde_json::Value;

use super::traceback::leading_number;
use crate::base::units::is_number;

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
/// `\n`; and the process that a record names.
pub(super) fn embedded_lines(text: &str) -> Option<(LineSource, Vec<String>)> {
    if let Some(record) = text.find('{').and_then(|at| text.get(at..))
        && record.contains("\":")
        && let Ok(value @ Value::Object(_)) = serde_json::from_str(record.trim())
    {
        let mut found = Record::default();
        found.collect("", &value);
        found.lines.push(found.scalars);
        return Some((found.source, found.lines));
    }
    let is_escaped = text.contains(r"\n  File ") || text.contains(r"(out of memory)\n");
    is_escaped.then(|| (LineSource::default(), unescape(text).split('\n').map(str::to_owned).collect()))
}

/// The contents of a JSON record.
#[derive(Default)]
struct Record {
    source: LineSource,
    lines: Vec<String>,
    /// Numbers and booleans, as the record prints them.
    scalars: String,
}

impl Record {
    fn collect(&mut self, key: &str, value: &Value) {
        let is_rank = matches!(key, "rank" | "RANK" | "global_rank" | "process_rank" | "mpirank" | "process_index");
        match value {
            Value::String(text) if is_rank => self.source.rank = self.source.rank.or(text.parse().ok()),
            Value::Number(rank) if is_rank => {
                let rank = rank.as_u64().and_then(|rank| rank.try_into().ok());
                self.source.rank = self.source.rank.or(rank);
            }
            Value::String(text) => {
                if matches!(key, "pod" | "pod_name" | "host" | "hostname" | "worker" | "container_id") {
                    self.source.label.get_or_insert_with(|| text.clone());
                } else if key == "reason" {
                    self.lines.push(format!("{key}: {text}"));
                } else {
                    self.lines.extend(text.lines().map(str::to_owned));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(key, item)),
            Value::Object(pairs) => pairs.iter().for_each(|(key, value)| self.collect(key, value)),
            Value::Null => {}
            scalar => self.scalars.extend(["\"", key, "\": ", &scalar.to_string(), ", "]),
        }
    }
}

/// Undoes the backslash escapes of quotes, line breaks and backslashes.
fn unescape(text: &str) -> String {
    let mut parts = text.split(r"\\").map(|part| part.replace(r"\n", "\n").replace("\\\"", "\"").replace(r"\'", "'"));
    parts.join(r"\")
}

/// Splits off labels, times and log levels: the source of the line, and the rest.
pub(super) fn split_source(text: &str) -> (LineSource, &str) {
    let mut source = LineSource::default();
    let mut rest = text;
    loop {
        // Blanks after the last prefix are the indentation of the text.
        let trimmed = rest.trim_start();
        let Some((prefix, behind)) = parse_prefix(trimmed, trimmed.len() == text.len()) else {
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
    parse_anywhere(text).or_else(|| if at_line_start { parse_at_line_start(text) } else { parse_later(text) })
}

/// The first word and the text behind it, and the same of the second word.
fn first_words(text: &str) -> Option<[&str; 4]> {
    let (first, behind) = text.split_once(char::is_whitespace)?;
    let next = behind.trim_start();
    let (second, behind_second) = next.split_once(char::is_whitespace).unwrap_or((next, ""));
    Some([first, behind, second, behind_second])
}

/// Times, levels and ranks, which are prefixes anywhere in a line.
fn parse_anywhere(text: &str) -> Option<(Prefix<'_>, &str)> {
    let [word, behind, second, behind_second] = first_words(text)?;
    let is_quoted = word.bytes().all(|byte| byte == b'>');
    if is_quoted || is_time(word) || is_level(word) || matches!(word, "-" | "|" | "│" | "stderr" | "stdout") {
        return Some((Prefix::Ignored, behind));
    }
    if let Some(rank) = word.strip_prefix("rank=").and_then(|rank| rank.parse().ok()) {
        return Some((Prefix::Rank(rank), behind));
    }
    let rank = second.trim_end_matches([':', '|', ',']).parse().ok();
    rank.filter(|_| word.eq_ignore_ascii_case("rank")).map(|rank| (Prefix::Rank(rank), behind_second))
}

/// Prefixes that follow another: the `F` (full line) of a container's log, `E1127 10:00:00.1 123 file.cc:12] `, and
/// `host python[123]: `.
fn parse_later(text: &str) -> Option<(Prefix<'_>, &str)> {
    let [word, behind, second, behind_second] = first_words(text)?;
    let is_thread = is_number(word) && second.ends_with(']') && second.contains(':');
    let is_process = second.ends_with("]:") && second.contains('[');
    match word {
        "F" | "P" => Some((Prefix::Ignored, behind)),
        _ if is_thread => Some((Prefix::Label(word), behind_second)),
        _ if is_process => Some((label_before(text, behind_second), behind_second)),
        _ => None,
    }
}

/// Hosts, pods and ranks, and the times that begin with a month or a level.
fn parse_at_line_start(text: &str) -> Option<(Prefix<'_>, &str)> {
    let [word, behind, second, behind_second] = first_words(text)?;
    if let Some(behind) = behind.trim_start().strip_prefix("| ").filter(|_| is_host(word)) {
        return Some((Prefix::Label(word), behind));
    }
    // `Nov 27 10:00:00` of syslog, and `E1127 10:00:00` of glog.
    if word.len() == 3 && is_number(second) && behind_second.trim_start().get(2..3) == Some(":") {
        return Some((Prefix::Ignored, behind_second));
    }
    if word.len() == 5 && word.starts_with(['I', 'W', 'E', 'F']) && is_number(&word[1..]) && is_time(second) {
        return Some((Prefix::Ignored, behind));
    }
    // A pod and its container: `trainer-0 pytorch `.
    let is_pod = word.contains('-') && is_host(word) && !word.ends_with(':');
    if is_pod && word.rsplit('-').next().is_some_and(|part| part.contains(|c: char| c.is_ascii_digit())) {
        let is_name = second.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        // `server-1 exited with code 137` is what Docker itself says.
        if is_name && !matches!(second, "" | "exited") {
            return Some((label_before(text, behind_second), behind_second));
        }
        return Some((Prefix::Label(word), behind));
    }
    let label = word.strip_suffix(':')?;
    if let Some(rank) = label.parse().ok().or_else(|| parse_rank(label)) {
        return Some((Prefix::Rank(rank), behind));
    }
    (is_host(label) && !label.ends_with("Error")).then_some((Prefix::Label(label), behind))
}

/// The text before `behind` as a label.
fn label_before<'a>(text: &'a str, behind: &str) -> Prefix<'a> {
    Prefix::Label(text[..text.len() - behind.len()].trim_end_matches([' ', ':', '|']))
}

/// True if `word` may be the name of a host, a pod or a container: it has a digit.
fn is_host(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit())
        && word.contains(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// The number behind the name of a rank: `rank3`, `Rank 3`, `local_rank: 3`, `mpirank:3`.
fn parse_rank(text: &str) -> Option<u32> {
    let lower = text.trim_start().to_ascii_lowercase();
    let behind_rank = lower.split_once("rank").map(|(_, number)| number);
    let names = ["default", "trainer", "worker"].iter().filter_map(|name| lower.strip_prefix(name));
    let mut numbers = behind_rank.into_iter().chain(names);
    numbers.find_map(|number| leading_number(number.trim_start_matches([' ', ':', '=', '-'])))
}

/// `[rank3]:`, `[default3]:`, `[1,3]<stderr>:`, `[2026-11-21 10:00:00,123]`, `[ERROR]`, `[launch.py:318:f]`,
/// `[W1121 10:00:00 file.cpp:12]`, `[pod/trainer-0/pytorch]`.
fn parse_bracketed<'a>(inside: &'a str, behind: &'a str) -> Option<(Prefix<'a>, &'a str)> {
    let unlabelled = behind.strip_prefix(':').unwrap_or(behind);
    // The stream of mpirun.
    let stream = behind.split_once(">:").filter(|_| behind.starts_with("<std"));
    let (_, unlabelled) = stream.unwrap_or(("", unlabelled));
    let rank = parse_rank(inside).filter(|_| !inside.contains(".py:"));
    let number = inside.rsplit(',').next().and_then(|number| number.trim().parse().ok());
    if let Some(rank) = rank.or(number.filter(|_| stream.is_some() || behind.starts_with(':'))) {
        return Some((Prefix::Rank(rank), unlabelled));
    }
    let mut words = inside.split_whitespace();
    // SGLang: `[2025-03-29 18:18:34 TP0]` has the rank of tensor parallelism.
    if words.next().is_some_and(is_time)
        && let Some(rank) = words.find_map(|word| word.strip_prefix("TP")?.parse().ok())
    {
        return Some((Prefix::Rank(rank), unlabelled));
    }
    let mut words = inside.split_whitespace();
    if words.any(|word| is_time(word) || is_level(word)) || inside.contains(".py:") || stream.is_some() {
        return Some((Prefix::Ignored, unlabelled));
    }
    inside.split('/').any(is_host).then_some((Prefix::Label(inside), unlabelled))
}

/// The assignments of environment variables in `text`, as a shell, Python, YAML or Docker has them: `NAME=value`, and
/// the options in the value. Prose that advises one ("try setting NAME=value") is not an assignment.
pub(super) fn assignments(text: &str) -> Vec<String> {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || "\"'[]();`".contains(c)).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| words.get(at));
        let is_prose = before.is_some_and(|before| {
            let is_command = matches!(*before, "export" | "env" | "setx") || *before == "set" && at == 1;
            !is_command && before.chars().all(|c| c.is_ascii_alphabetic())
        });
        let (name, value) = word.split_once(['=', ':']).unwrap_or((word, ""));
        let is_name = name.len() > 3 && name.chars().all(|c| c.is_ascii_uppercase() || matches!(c, '_' | '0'..='9'));
        if is_prose || !is_name {
            continue;
        }
        let next = words.iter().skip(at + 1).find(|word| !matches!(**word, "=" | ":"));
        let value = if value.is_empty() { next.copied().unwrap_or_default() } else { value };
        found.push(format!("{name}={value}"));
        found.extend(value.split(',').map(str::to_owned));
    }
    found
}

/// True if the logger's level in front of `text`, or an exception's class, shows an error.
pub(super) fn is_error(text: &str) -> bool {
    text.split_whitespace().take(8).any(|word| is_error_word(word) || word.split(['=', '[', ':']).any(is_error_word))
}

fn is_error_word(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphabetic());
    matches!(word, "ERROR" | "CRITICAL" | "FATAL" | "E" | "F") || word.ends_with("Error") || word.ends_with("Exception")
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
    ["TRACE", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"].contains(&word)
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
        for (line, rank, body) in [
            ("[rank3]: RuntimeError: x", 3, "RuntimeError: x"),
            ("[rank3]:   File \"a.py\"", 3, "  File \"a.py\""),
            ("[default12]:x y", 12, "x y"),
            ("3: x y", 3, "x y"),
            ("[1,5]<stderr>:x y", 5, "x y"),
            ("rank7: x y", 7, "x y"),
            ("[2026-11-21 10:00:00,123] [ERROR] [launch.py:3:main] [Rank 2] x y", 2, "x y"),
            ("[2025-03-29 18:18:34 DP0 TP2] x y", 2, "x y"),
            ("[1,mpirank:3,algo-1]<stderr>:x y", 3, "x y"),
            ("Rank 3: x y", 3, "x y"),
            ("rank=3 x y", 3, "x y"),
        ] {
            assert_eq!(parts(line), (Some(rank), None, body.to_owned()));
        }
        assert_eq!(parts("node-1: [rank0]: x"), (Some(0), Some("node-1".into()), "x".into()));
        for (line, label, body) in [
            ("(EngineCore pid=3) ERROR 10-25 13:08:43 [core.py:708]   File", "EngineCore pid=3", "  File"),
            ("(Worker pid=12, ip=10.0.0.1) x y", "Worker pid=12, ip=10.0.0.1", "x y"),
            ("[pod/trainer-0/pytorch] x y", "pod/trainer-0/pytorch", "x y"),
            ("trainer-1 pytorch x: y", "trainer-1 pytorch", "x: y"),
            ("trainer-7d9f x: y", "trainer-7d9f", "x: y"),
            ("worker_1  | x y", "worker_1", "x y"),
            ("Nov 27 10:00:00 gpu1 python[12]: x y", "gpu1 python[12]", "x y"),
            ("E1127 10:00:00.123456 4711 train.cc:12] x y", "4711", "x y"),
        ] {
            assert_eq!(parts(line), (None, Some(label.to_owned()), body.to_owned()));
        }
        for (line, body) in [
            ("> x y", "x y"),
            ("    a-1 | b", "   a-1 | b"),
            ("2026-11-27T10:00:00.1Z stderr F x y", "x y"),
            ("2026-11-21T10:00:00.5Z ERROR x y", "x y"),
            ("torch.OutOfMemoryError: x", "torch.OutOfMemoryError: x"),
            ("  File \"a.py\", line 1, in f", " File \"a.py\", line 1, in f"),
            ("", ""),
        ] {
            assert_eq!(parts(line), (None, None, body.to_owned()));
        }
    }

    #[test]
    fn settings_are_distinguished_from_advice() {
        let option = "expandable_segments:True".to_owned();
        for yes in [
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "$ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64 python x.py",
            "os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\"",
            "  PYTORCH_ALLOC_CONF: 'expandable_segments:True'",
            "docker run -e PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True x",
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ] {
            assert!(assignments(yes).contains(&option), "{yes}");
        }
        for no in [
            "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation",
            "Please set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ] {
            assert!(!assignments(no).contains(&option), "{no}");
        }
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(plain_text(b"\x1b[31;1mred\x1b[0m \xff"), "red \u{fffd}");
        assert_eq!(plain_text(b"\x1b"), "");
    }

    #[test]
    fn lines_in_records_are_extracted() {
        let (source, lines) = embedded_lines(r#"{"level": "error", "msg": "a\nb", "rank": 3, "x": false}"#).unwrap();
        assert_eq!(lines, ["error", "a", "b", "\"x\": false, "]);
        assert_eq!(source.rank, Some(3));
        let (_, lines) = embedded_lines(r#"E Traceback:\n  File \"a.py\", line 1\nX: b"#).unwrap();
        assert_eq!(lines, ["E Traceback:", "  File \"a.py\", line 1", "X: b"]);
        let (_, lines) = embedded_lines(r#"E Traceback:\n  File \"C:\\new\\a.py\", line 1, in f\nX: b"#).unwrap();
        assert_eq!(lines, ["E Traceback:", r#"  File "C:\new\a.py", line 1, in f"#, "X: b"]);
        let (_, lines) =
            embedded_lines(r"x would exceed allowed memory. (out of memory)\nRequested : 2.00 GiB").unwrap();
        assert_eq!(lines.last().unwrap(), "Requested : 2.00 GiB");
        assert_eq!(embedded_lines(r"C:\new\file"), None);
        assert_eq!(embedded_lines("{'a': 1}"), None);
    }
}
