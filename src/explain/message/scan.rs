//! Reads a log line by line and assembles messages and tracebacks per source.

use std::io::{self, BufRead, Read as _};

use itertools::Itertools as _;

use super::allocation::{self, PartialMessage, Wording, ends_message, is_continuation, join_pieces};
use super::line::{self, LineSource};
use super::log::{Log, LogBuilder, Message};
use super::start;
use super::start::INDEX;
use super::traceback::{self, TracebackFrame};
use crate::base::intern::SeededMap;
use crate::explain::table::{Form, PLACES, Role};

/// Longer lines are read in pieces of this many bytes.
const MAX_LINE: u64 = 1 << 20;
/// Further frames of a traceback are ignored.
const MAX_FRAMES: usize = 200;
/// Beyond this number of sources with unfinished state, all are finished.
const MAX_SOURCES: usize = 1024;
/// A message has at most this many lines.
const MAX_WRAPPED_LINES: usize = 12;
/// Further settings of the environment are ignored.
const MAX_SETTINGS: usize = 1000;
/// PyTorch's warning where the setting has no effect, for example under Windows.
pub(crate) const NO_EXPANDABLE: &str = "expandable_segments not supported on this platform";
/// PyTorch's warning where the device refuses memory for an expandable segment, before it tries again.
pub(crate) const MAPPING_REFUSED: &str = "expandable_segments: memory mapping failed with OOM";
/// Longer texts of messages are truncated to this many bytes.
const MAX_TEXT: usize = 2000;

/// Reads a log to its end.
///
/// # Errors
/// Returns the errors of `input`.
pub fn read(mut input: impl BufRead) -> io::Result<Log> {
    let mut scanner = Scanner::default();
    let mut raw = Vec::new();
    loop {
        raw.clear();
        if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut raw)? == 0 {
            break;
        }
        scanner.builder.log.lines += u64::from(!scanner.is_in_line);
        scanner.is_in_line = !raw.ends_with(b"\n");
        let line = raw.strip_suffix(b"\n").unwrap_or(&raw);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Progress bars return to the start of their line.
        for piece in line.split(|byte| *byte == b'\r') {
            scanner.add_piece(piece);
        }
    }
    Ok(scanner.finish())
}

/// The unfinished output of one source.
#[derive(Debug, Default)]
struct SourceState {
    /// Outermost first, as printed.
    frames: Vec<TracebackFrame>,
    message: Option<PartialMessage>,
    /// Indentation of the last frame, while its source line may follow.
    frame_indentation: Option<usize>,
    /// The line of a message of another system, and how many more lines belong to it.
    message_below: Option<(u64, u64)>,
}

impl SourceState {
    /// Returns true if `body` is source code below a frame, and keeps its first line.
    fn take_code(&mut self, body: &str) -> bool {
        let Some(indentation) = self.frame_indentation else { return false }; // no frame above
        if traceback::indentation(body) <= indentation || body.trim().is_empty() {
            self.frame_indentation = None;
            return false;
        }
        if let Some(frame) = self.frames.last_mut().filter(|frame| frame.code.is_none()) {
            frame.code = traceback::parse_code(body);
        }
        true
    }

    /// True if this line may belong to the message above.
    fn is_in_message(&self) -> bool {
        self.message.is_some() || self.message_below.is_some()
    }

    /// True if the next line must be read even if the filter would skip it.
    fn is_waiting(&self) -> bool {
        self.is_in_message() || self.frame_indentation.is_some()
    }
}

#[derive(Default)]
struct Scanner {
    builder: LogBuilder,
    sources: SeededMap<LineSource, SourceState>,
    /// Number of sources for which [`SourceState::is_waiting`].
    waiting: usize,
    /// The source of the line before, if its message may go on.
    unfinished: Option<LineSource>,
    /// The last piece was the start of a line that goes on.
    is_in_line: bool,
}

impl Scanner {
    fn add_piece(&mut self, raw: &[u8]) {
        if self.waiting == 0 && !INDEX.is_match(raw) {
            return;
        }
        let text = line::plain_text(raw);
        match line::embedded_lines(&text) {
            None => self.add_line(&text, &LineSource::default()),
            Some((source, lines)) => {
                for line in &lines {
                    self.add_line(line, &source);
                }
            }
        }
    }

    fn state_of(&mut self, source: &LineSource) -> &mut SourceState {
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(source) {
            self.finish_all();
        }
        self.sources.entry(source.clone()).or_default()
    }

    /// Adds a line, of `record` if that names its process.
    fn add_line(&mut self, text: &str, record: &LineSource) {
        let (source, body) = line::split_source(text);
        let source =
            LineSource { rank: source.rank.or(record.rank), label: source.label.or_else(|| record.label.clone()) };
        let source = self.source_of_wrapped(source, body);
        self.note_place(text);
        self.note_settings(text);
        let mut state = std::mem::take(self.state_of(&source));
        self.waiting -= usize::from(state.is_waiting());
        let is_code = state.take_code(body);
        let start = if is_code { None } else { start::find_start(body) };
        // Words without a form do not end a message.
        let is_start = start.is_some_and(|(form, _)| form.role != Role::Unknown);
        if let Some(mut partial) = state.message.take() {
            let is_blank = body.trim().is_empty();
            let is_ended = partial.has_gap && !is_blank && !is_continuation(body);
            if is_start || is_ended || ends_message(body) || partial.pieces.len() >= MAX_WRAPPED_LINES {
                self.finish_message(&source, partial);
            } else if is_blank {
                partial.has_gap = true;
                state.message = Some(partial);
            } else {
                partial.pieces.push(body.trim().trim_matches('│').trim().to_owned());
                if body.contains("alloc-conf)") || body.contains("environment-variables)") {
                    self.finish_message(&source, partial);
                } else {
                    state.message = Some(partial);
                }
            }
        }
        let start = start.filter(|_| is_start || !state.is_in_message());
        if let Some((first, left)) = state.message_below.take()
            && !is_start
            && !ends_message(body)
        {
            self.builder.append_line(&source, first, &truncate(body.trim()));
            state.message_below = (left > 1).then_some((first, left.saturating_sub(1)));
        }
        if traceback::is_start(body) {
            state.frames.clear();
        } else if let Some(frame) = traceback::parse_frame(body).filter(|_| !is_code) {
            state.frame_indentation = body.trim_start().starts_with("File \"").then(|| traceback::indentation(body));
            if state.frames.len() < MAX_FRAMES {
                state.frames.push(frame);
            }
        } else if let Some((line, code)) = traceback::parse_pointed_line(body)
            && let Some(frame) = state.frames.last_mut()
            && (frame.line == 0 || frame.line == line)
        {
            frame.line = line;
            frame.code = traceback::parse_code(code);
        }
        if let Some((form, at)) = start {
            let (before, message) = body.split_at_checked(at).unwrap_or(("", body));
            self.start_message(&source, &mut state, form, (before, message, text));
        }
        self.waiting += usize::from(state.is_waiting());
        self.unfinished = state.is_in_message().then(|| source.clone());
        self.sources.insert(source, state);
    }

    /// A terminal that wraps a long line repeats no label: such a line is of the unfinished message before it.
    fn source_of_wrapped(&mut self, source: LineSource, body: &str) -> LineSource {
        let Some(before) = self.unfinished.take() else { return source }; // no message to continue
        let is_labelled = source != LineSource::default();
        let is_start = start::find_start(body).is_some_and(|(form, _)| form.role != Role::Unknown);
        if is_labelled || ends_message(body) || is_start { source } else { before }
    }

    fn note_place(&mut self, text: &str) {
        let known = self.builder.log.place;
        let mut new = PLACES.iter().take_while(|place| known.is_none_or(|known| !std::ptr::eq(known, *place)));
        let found = new.find(|place| place.words.iter().any(|word| text.contains(word)));
        self.builder.log.place = found.or(known);
    }

    fn note_settings(&mut self, text: &str) {
        let settings = &mut self.builder.log.settings;
        if settings.len() < MAX_SETTINGS {
            settings.extend(line::assignments(text));
            let warnings = [NO_EXPANDABLE, MAPPING_REFUSED].into_iter().filter(|warning| text.contains(warning));
            settings.extend(warnings.map(str::to_owned));
        }
    }

    /// Starts a message: the text before it on its line, its text, and the whole line.
    fn start_message(
        &mut self,
        source: &LineSource,
        state: &mut SourceState,
        form: &'static Form,
        (before, text, line_text): (&str, &str, &str),
    ) {
        let line = self.builder.log.lines;
        if form.is_allocator() {
            let partial = PartialMessage {
                line,
                before: before.to_owned(),
                pieces: vec![text.trim_end().to_owned()],
                has_gap: false,
                frames: state.frames.drain(..).rev().collect(),
            };
            if allocation::is_complete(text) {
                self.finish_message(source, partial);
            } else {
                state.message = Some(partial);
            }
            return;
        }
        let text = text.trim();
        match form.role {
            Role::Context => return self.builder.add_context(form, truncate(text)),
            Role::OtherFailure => {
                self.builder.log.other_error.get_or_insert((line, form));
                return;
            }
            Role::Unknown => {
                self.builder.log.unknown.get_or_insert_with(|| (line, truncate(line_text.trim())));
                if !line::is_error(line_text) {
                    return;
                }
            }
            Role::Message | Role::Note | Role::Echo => {}
        }
        if !form.continues.is_empty()
            && (self.builder.continue_message(form, source, line, text) || form.role != Role::Note)
        {
            return; // without the line that it continues, only a note says that memory ran out
        }
        let text = truncate(text);
        if self.builder.join_wording(form, source, line, &text) {
            return;
        }
        let frames: Vec<TracebackFrame> = state.frames.drain(..).rev().collect();
        let form = start::choose_by_frame(form, &text, frames.first());
        state.message_below = (form.below > 0).then_some((line, form.below));
        // A note is repeated with other numbers: an allocator tries smaller and smaller sizes.
        let wording = form.wording(&text).filter(|_| form.is_note());
        let key = wording.map_or_else(|| text.trim_end_matches(['\'', '"', ')']), |wording| &wording.0);
        self.builder.add(format!("{} {key}", form.name), message(form, line, source, frames, text));
    }

    /// Parses a complete message.
    fn finish_message(&mut self, source: &LineSource, partial: PartialMessage) {
        let PartialMessage { line, before, pieces, frames, .. } = partial;
        let (allocation, text) = join_pieces(&before, &pieces);
        let has_numbers = allocation.wording != Wording::Bare || allocation.figure("requested").is_some();
        if !has_numbers && !start::is_exception(&before) {
            return; // a remark about messages, not a message
        }
        let numbers = allocation.printed_numbers().join(" ");
        let key = format!("{:?} {:?} {numbers}", allocation.backend, allocation.device);
        let found = message(allocation.wording.form(), line, source, frames, truncate(&text));
        self.builder.add(key, Message { allocation: Some(Box::new(allocation)), ..found });
    }

    fn finish_all(&mut self) {
        self.waiting = 0;
        for (source, state) in self.sources.drain().sorted_by(|a, b| a.0.cmp(&b.0)) {
            if let Some(partial) = state.message {
                self.finish_message(&source, partial);
            }
        }
    }

    fn finish(mut self) -> Log {
        self.finish_all();
        self.builder.finish()
    }
}

fn message(form: &'static Form, line: u64, source: &LineSource, frames: Vec<TracebackFrame>, text: String) -> Message {
    Message {
        line,
        times: 1,
        file: None,
        source: source.clone(),
        frames,
        text,
        context: String::new(),
        form,
        allocation: None,
    }
}

fn truncate(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::message::FailedAllocation;

    const WHOLE: &str = "CUDA out of memory. Tried to allocate 96.00 MiB. GPU 1 has a total capacity of 480.00 MiB of which 80.00 MiB is free. Of the allocated memory 200.00 MiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.";

    fn log(text: &str) -> Log {
        read(text.as_bytes()).unwrap()
    }

    fn only(text: &str) -> (Message, FailedAllocation) {
        let log = log(text);
        let [message] = &log.messages[..] else { panic!("{text}: {:?}", log.messages) };
        let Some(allocation) = &message.allocation else { panic!("{message:?}") };
        (message.clone(), *allocation.clone())
    }

    #[test]
    fn messages_of_as_many_sources_as_are_kept_may_interleave() {
        let (first, rest) = WHOLE.split_once(". GPU").unwrap();
        let parts = [format!("{first}."), format!("  GPU{rest}")];
        let lines = parts.iter().flat_map(|part| (0..MAX_SOURCES).map(move |rank| format!("[rank{rank}]: {part}\n")));
        let log = log(&lines.collect::<String>());
        let expected = only(WHOLE).1;
        assert_eq!(log.message_count, MAX_SOURCES as u64);
        assert!(log.messages.iter().all(|message| message.allocation.as_deref() == Some(&expected)));
    }

    #[test]
    fn a_message_wrapped_over_lines_is_one() {
        let (_, expected) = only(WHOLE);
        let soft = WHOLE.replace(". ", ".\n  ").replace(", and", ",\nand");
        assert_eq!(only(&format!("Exception: capture failed: {soft}\n\nafter 1.00 GiB is free")).1, expected);
        let (mut hard, mut column) = (String::new(), 0);
        for c in WHOLE.chars() {
            hard.push(c);
            column += 1;
            if column % 40 == 0 {
                hard.push('\n');
            }
        }
        assert_eq!(only(&hard).1, expected, "{hard}");
        let interleaved: String = soft
            .lines()
            .flat_map(|line| [format!("[rank1]: {line}\n"), "[rank0]: 9.00 GiB is free\n".into()])
            .collect();
        let (message, found) = only(&interleaved);
        assert_eq!((found, message.source.rank), (expected, Some(1)));
    }

    #[test]
    fn a_terminal_that_wraps_repeats_no_label() {
        let (_, expected) = only(WHOLE);
        let (first, rest) = WHOLE.split_at(50);
        let (message, found) = only(&format!("(EngineCore pid=7) ERROR E: {first}\n{rest}\n9.00 GiB is free\n"));
        assert_eq!((found, message.source.label.as_deref()), (expected.clone(), Some("EngineCore pid=7")));
        let other = format!("[rank1]: {first}\nTraceback (most recent call last):\n[rank0]: {WHOLE}\n");
        assert_eq!(log(&other).messages.len(), 2);
    }

    #[test]
    fn engines_and_other_errors_are_noted() {
        let found = log("vllm serve x\n\nCUDA error: an illegal memory access was encountered\nShardCannotStart\n");
        assert!(found.place.unwrap().advice.contains("--gpu-memory-utilization"));
        assert_eq!(found.other_error.map(|(line, _)| line), Some(3));
        let better = log("ShardCannotStart\nx\nvllm serve x\ntext_generation_router\n");
        assert_eq!(better.place.map(|place| place.words[0].as_str()), Some("vllm serve "), "the first of the table");
        // Each line has a name with its value, and a value.
        let settings = (0..MAX_SETTINGS).map(|n| format!("CONF=expandable_segments:{n}"));
        let settings = settings.collect::<Vec<_>>().join("\n");
        assert_eq!(log(&settings).settings.len(), MAX_SETTINGS);
        assert_eq!(log(&format!("E: {WHOLE}\nRuntimeError: CUDA error: out of memory")).other_error, None);
    }

    #[test]
    fn text_about_messages_is_not_a_message() {
        assert!(log("hint: CUDA out of memory.\nloss: 1.0\n").messages.is_empty());
        assert_eq!(only("RuntimeError: CUDA out of memory.\n").1.wording, Wording::Bare);
    }

    #[test]
    fn repeats_of_a_message_are_counted() {
        let found = log(&format!("{WHOLE}\nx\nRuntimeError: {WHOLE}\n[rank2]: {WHOLE}\n[rank3]: {WHOLE}\n"));
        let ranks: Vec<_> = found.messages.iter().map(|m| (m.source.rank, m.times, m.line)).collect();
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
        let docker = "{\"log\":\"torch.OutOfMemoryError: ".to_owned() + WHOLE + "\\n\",\"stream\":\"stderr\"}";
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
