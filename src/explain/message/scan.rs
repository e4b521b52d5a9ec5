//! A log read from its beginning to its end, a line at a time.

use std::io::{self, BufRead, Read as _};

use super::filter::Filter;
use super::line::{self, LineSource};
use super::log::{Gathered, Log, Message, Saying};
use super::marks::{self, LineMark};
use super::statistics::{self, Statistics};
use super::traceback::{self, TracebackFrame};
use super::wording::{self, Wording};
use crate::base::intern::SeededMap;

/// Longer lines are read in pieces of this size.
const LONGEST_LINE: u64 = 1 << 20;
/// Frames of a traceback that are kept.
const MOST_FRAMES: usize = 200;
/// Sources with something begun that are kept in mind.
const MOST_SOURCES: usize = 1024;
/// Lines that a message may be wrapped over.
const MOST_WRAPPED: usize = 12;
/// Bytes of a message's text that are kept.
const MOST_TEXT: usize = 2000;

/// Reads a whole log.
///
/// # Errors
/// Those of `input`.
pub fn read(mut input: impl BufRead) -> io::Result<Log> {
    let mut scanner = Scanner::default();
    let mut raw = Vec::new();
    loop {
        raw.clear();
        if input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut raw)? == 0 {
            break;
        }
        scanner.gathered.log.lines += u64::from(scanner.at_line_start);
        scanner.at_line_start = raw.ends_with(b"\n");
        let line = raw.strip_suffix(b"\n").unwrap_or(&raw);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Progress bars return to the start of their line.
        for piece in line.split(|byte| *byte == b'\r') {
            scanner.piece(piece);
        }
    }
    Ok(scanner.finished())
}

/// What a source has begun to write.
#[derive(Debug, Default)]
struct Open {
    /// Outermost first, as printed.
    frames: Vec<TracebackFrame>,
    message: Option<Begun>,
    table: Option<Statistics>,
    stats: Option<Statistics>,
    /// How far the last frame is indented, while its code may follow.
    frame_indentation: Option<usize>,
}

impl Open {
    /// Whether `body` is code below a frame; the first line of it is kept.
    fn code(&mut self, body: &str) -> bool {
        let Some(indentation) = self.frame_indentation else { return false };
        if traceback::indentation(body) <= indentation || body.trim().is_empty() {
            self.frame_indentation = None;
            return false;
        }
        if let Some(frame) = self.frames.last_mut().filter(|frame| frame.code.is_none()) {
            frame.code = traceback::code(body);
        }
        true
    }

    /// Whether the next line matters whatever it is.
    fn is_waiting(&self) -> bool {
        self.message.is_some() || self.table.is_some() || self.frame_indentation.is_some()
    }
}

/// A message of PyTorch's allocator that may go on in the next line.
#[derive(Debug)]
struct Begun {
    line: u64,
    before: String,
    pieces: Vec<String>,
    /// A blank line stood after the last piece.
    has_gap: bool,
    frames: Vec<TracebackFrame>,
}

struct Scanner {
    gathered: Gathered,
    open: SeededMap<LineSource, Open>,
    /// Sources whose next line matters whatever it is.
    waiting: usize,
    at_line_start: bool,
    filter: Filter,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            gathered: Gathered::default(),
            open: SeededMap::default(),
            waiting: 0,
            at_line_start: true,
            filter: Filter::new(),
        }
    }
}

impl Scanner {
    fn piece(&mut self, raw: &[u8]) {
        if self.waiting == 0 && !self.filter.passes(raw) {
            return;
        }
        let text = line::plain_text(raw);
        match line::unfolded(&text) {
            None => self.line(&text, true),
            Some(lines) => {
                for line in &lines {
                    self.line(line, false);
                }
                let mut open = std::mem::take(self.open_of(&LineSource::default()));
                self.stats(&mut open, &text, &LineSource::default());
                self.open.insert(LineSource::default(), open);
            }
        }
    }

    fn open_of(&mut self, source: &LineSource) -> &mut Open {
        if self.open.len() >= MOST_SOURCES && !self.open.contains_key(source) {
            self.close_all();
        }
        self.open.entry(source.clone()).or_default()
    }

    fn line(&mut self, text: &str, has_stats: bool) {
        let (source, body) = line::source_and_body(text);
        let number = self.gathered.log.lines;
        let mut open = std::mem::take(self.open_of(&source));
        self.waiting -= usize::from(open.is_waiting());
        let is_code = open.code(body);
        let mark = if is_code { None } else { marks::find(body) };
        if let Some(mut begun) = open.message.take() {
            let is_blank = body.trim().is_empty();
            let is_over = begun.has_gap && !is_blank && !goes_on(body);
            if mark.is_some() || is_over || ends(body) || begun.pieces.len() >= MOST_WRAPPED {
                self.close(&source, begun);
            } else if is_blank {
                begun.has_gap = true;
                open.message = Some(begun);
            } else {
                begun.pieces.push(body.trim().trim_matches('│').trim().to_owned());
                if body.contains("alloc-conf)") || body.contains("environment-variables)") {
                    self.close(&source, begun);
                } else {
                    open.message = Some(begun);
                }
            }
        }
        if let Some(mut table) = open.table.take() {
            if statistics::table_row(&mut table, text) {
                open.table = Some(table);
            } else {
                self.gathered.keep(Some(table));
            }
        }
        if let Some(table) = statistics::table_begins(text, number, &source) {
            self.gathered.keep(open.table.replace(table));
        } else if has_stats {
            self.stats(&mut open, body, &source);
        }
        if traceback::begins(body) {
            open.frames.clear();
        } else if let Some(frame) = traceback::frame(body).filter(|_| !is_code) {
            open.frame_indentation =
                body.trim_start().starts_with("File \"").then(|| traceback::indentation(body));
            if open.frames.len() < MOST_FRAMES {
                open.frames.push(frame);
            }
        } else if let Some((line, code)) = traceback::pointed_line(body)
            && let Some(frame) = open.frames.last_mut()
            && (frame.line == 0 || frame.line == line)
        {
            frame.line = line;
            frame.code = traceback::code(code);
        }
        if let Some((mark, at)) = mark {
            self.marked(&source, &mut open, mark, body.split_at_checked(at).unwrap_or(("", body)));
        }
        self.waiting += usize::from(open.is_waiting());
        self.open.insert(source, open);
    }

    fn stats(&mut self, open: &mut Open, text: &str, source: &LineSource) {
        let mut done = Vec::new();
        statistics::stats(&mut open.stats, &mut done, text, (self.gathered.log.lines, source));
        self.gathered.keep(done);
    }

    fn marked(
        &mut self,
        source: &LineSource,
        open: &mut Open,
        mark: LineMark,
        parts: (&str, &str),
    ) {
        let (before, text) = parts;
        let line = self.gathered.log.lines;
        match mark {
            LineMark::Mapping => {
                if let Some(found) = marks::mapping(text, line) {
                    self.gathered.warn(found);
                }
            }
            LineMark::Allocation => {
                let begun = Begun {
                    line,
                    before: before.to_owned(),
                    pieces: vec![text.trim_end().to_owned()],
                    has_gap: false,
                    frames: innermost_first(std::mem::take(&mut open.frames)),
                };
                if wording::is_whole(text) {
                    self.close(source, begun);
                } else {
                    open.message = Some(begun);
                }
            }
            LineMark::Elsewhere(whose) if !whose.goes_on_from.is_empty() => {
                self.gathered.tell_whose(whose, source, line, text.trim());
            }
            LineMark::Elsewhere(whose) => {
                let text = shortened(text.trim());
                let frames = innermost_first(std::mem::take(&mut open.frames));
                self.gathered.add(
                    format!("{} {}", whose.name, text.trim_end_matches(['\'', '"', ')'])),
                    Message {
                        line,
                        times: 1,
                        source: source.clone(),
                        frames,
                        text,
                        saying: Saying::Elsewhere(whose),
                    },
                );
            }
        }
    }

    /// Reads a message whose pieces are all there: of the ways to join them, the one that says most. Lines
    /// are wrapped at blanks by people and loggers, anywhere by terminals.
    fn close(&mut self, source: &LineSource, begun: Begun) {
        let Begun { line, before, pieces, frames, .. } = begun;
        let Some(first) = pieces.first().cloned() else { return };
        let mut best = (wording::allocation(&before, &first), first);
        if pieces.len() > 1 {
            for joined in [pieces.join(" "), pieces.concat()] {
                let read = wording::allocation(&before, &joined);
                if read.printed().len() > best.0.printed().len() {
                    best = (read, joined);
                }
            }
        }
        let (allocation, text) = best;
        let has_numbers = allocation.wording != Wording::Bare || allocation.requested.is_some();
        if !has_numbers && !marks::raised(&before) {
            return; // somebody's remark
        }
        let numbers = allocation.printed().join(" ");
        let key = format!("{:?} {:?} {numbers}", allocation.backend, allocation.device);
        let saying = Saying::Allocation(Box::new(allocation));
        let text = shortened(&text);
        self.gathered
            .add(key, Message { line, times: 1, source: source.clone(), frames, text, saying });
    }

    fn close_all(&mut self) {
        self.waiting = 0;
        let mut open: Vec<(LineSource, Open)> = self.open.drain().collect();
        open.sort_by(|a, b| a.0.cmp(&b.0));
        for (source, open) in open {
            if let Some(begun) = open.message {
                self.close(&source, begun);
            }
            self.gathered.keep(open.table.into_iter().chain(open.stats));
        }
    }

    fn finished(mut self) -> Log {
        self.close_all();
        self.gathered.finished()
    }
}

/// Whether `body` is the next part of a message after a blank line, which people put there.
fn goes_on(body: &str) -> bool {
    ["Tried to allocate", "GPU ", "Process ", "Including ", "Of the allocated", "with ", "and "]
        .iter()
        .any(|start| body.trim_start().starts_with(start))
}

/// Whether a message that began before cannot go on in `body`.
fn ends(body: &str) -> bool {
    let body = body.trim();
    traceback::begins(body)
        || traceback::frame(body).is_some()
        || [
            "frame #",
            "Exception raised",
            "The above exc",
            "During handling",
            "srun:",
            "====",
            "----",
        ]
        .iter()
        .any(|start| body.starts_with(start))
}

fn innermost_first(mut frames: Vec<TracebackFrame>) -> Vec<TracebackFrame> {
    frames.reverse();
    frames
}

fn shortened(text: &str) -> String {
    let end = (0..=MOST_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::message::Allocation;

    const WHOLE: &str = "CUDA out of memory. Tried to allocate 96.00 MiB. GPU 1 has a total capacity of 480.00 MiB of which 80.00 MiB is free. Of the allocated memory 200.00 MiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.";

    fn log(text: &str) -> Log {
        read(text.as_bytes()).unwrap()
    }

    fn only(text: &str) -> (Message, Allocation) {
        let log = log(text);
        let [message] = &log.messages[..] else { panic!("{text}: {:?}", log.messages) };
        let Saying::Allocation(allocation) = &message.saying else { panic!("{message:?}") };
        (message.clone(), allocation.as_ref().clone())
    }

    #[test]
    fn a_message_wrapped_over_lines_is_one() {
        let (_, whole) = only(WHOLE);
        let soft = WHOLE.replace(". ", ".\n  ").replace(", and", ",\nand");
        assert_eq!(
            only(&format!("Exception: capture failed: {soft}\n\nafter 1.00 GiB is free")).1,
            whole
        );
        let (mut hard, mut column) = (String::new(), 0);
        for c in WHOLE.chars() {
            hard.push(c);
            column += 1;
            if column % 40 == 0 {
                hard.push('\n');
            }
        }
        assert_eq!(only(&hard).1, whole, "{hard}");
        let interleaved: String = soft
            .lines()
            .flat_map(|line| [format!("[rank1]: {line}\n"), "[rank0]: 9.00 GiB is free\n".into()])
            .collect();
        let (message, found) = only(&interleaved);
        assert_eq!((found, message.source.rank), (whole, Some(1)));
    }

    #[test]
    fn a_remark_is_no_message() {
        assert!(log("hint: CUDA out of memory.\nloss: 1.0\n").messages.is_empty());
        assert_eq!(only("RuntimeError: CUDA out of memory.\n").1.wording, Wording::Bare);
    }

    #[test]
    fn the_same_message_is_counted_once() {
        let found = log(&format!(
            "{WHOLE}\nx\nRuntimeError: {WHOLE}\n[rank2]: {WHOLE}\n[rank3]: {WHOLE}\n"
        ));
        let ranks: Vec<_> =
            found.messages.iter().map(|m| (m.source.rank, m.times, m.line)).collect();
        assert_eq!(ranks, [(Some(2), 3, 1), (Some(3), 1, 5)]);
        assert_eq!((found.message_count, found.lines), (4, 5));
    }

    #[test]
    fn the_traceback_belongs_to_its_source() {
        let text = format!(
            "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a.py\", line 3, in f\n\
             [rank1]:   File \"b.py\", line 4, in g\n[rank0]:   File \"c.py\", line 5, in h\n[rank0]: {WHOLE}"
        );
        let (message, _) = only(&text);
        let frames: Vec<_> = message.frames.iter().map(|f| (f.file.as_str(), f.line)).collect();
        assert_eq!(frames, [("c.py", 5), ("a.py", 3)]);
    }

    #[test]
    fn records_of_loggers_are_read_with_their_tracebacks() {
        let text = serde_json::json!({
            "time": "2026-11-21", "message": format!("Traceback (most recent call last):\n  File \"a.py\", line 3, in f\ntorch.OutOfMemoryError: {WHOLE}"),
        });
        let (message, found) = only(&text.to_string());
        assert_eq!((message.frames.len(), found.device), (1, Some(1)));
        let docker = "{\"log\":\"torch.OutOfMemoryError: ".to_owned()
            + WHOLE
            + "\\n\",\"stream\":\"stderr\"}";
        assert_eq!(only(&docker).1.device, Some(1));
    }

    #[test]
    fn progress_bars_and_line_ends_of_other_systems_hide_nothing() {
        let found = log(&format!("10%|##\r20%|####\r{WHOLE}\r\nTraceback\r\n"));
        assert_eq!((found.messages.len(), found.lines), (1, 2));
    }

    #[test]
    fn long_lines_are_read_in_pieces_and_counted_once() {
        let long = "x".repeat(3 << 20);
        let found = log(&format!("{long}\n{WHOLE}"));
        assert_eq!((found.lines, found.messages.first().map(|m| m.line)), (2, Some(2)));
    }
}
