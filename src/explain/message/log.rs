//! Collects the messages of a log: counts repeats, and limits how many are kept.

use itertools::Itertools as _;

use super::allocation::FailedAllocation;
use super::line::LineSource;
use super::traceback::TracebackFrame;
use crate::base::intern::{SeededMap, SeededSet};
use crate::explain::table::{Form, Place, Role};

/// Further distinct messages are only counted.
const MAX_MESSAGES: usize = 1000;
/// A program reports one event in several wordings within this many lines.
const MAX_WORDING_GAP: u64 = 12;

/// Everything that a log holds about memory.
#[derive(Debug, Default)]
pub struct Log {
    /// Number of lines.
    pub lines: u64,
    /// The distinct messages, in the order of their first occurrence.
    pub messages: Vec<Message>,
    /// Number of all messages, including repeats and those that were not kept.
    pub message_count: u64,
    /// The first place of the table that a line names; among those, the first of the table.
    pub place: Option<&'static Place>,
    /// The first error of a GPU that is not about memory: its line, from 1, and what it is.
    pub other_error: Option<(u64, &'static Form)>,
    /// The first line with words about a lack of memory that no other row of the table has: its line, from 1, and text.
    pub unknown: Option<(u64, String)>,
    /// Assignments of the environment that the log shows, such as `NCCL_DEBUG=INFO`.
    pub settings: SeededSet<String>,
}

/// An out-of-memory message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Line of the log with the first occurrence, from 1.
    pub line: u64,
    /// Number of occurrences: logs repeat a message when it is logged and raised, and in chains of exceptions.
    pub times: u64,
    /// The log of a job that has the message, if the job has several.
    pub file: Option<String>,
    /// The rank or process that the log names for this line.
    pub source: LineSource,
    /// The traceback before the message, innermost frame first.
    pub frames: Vec<TracebackFrame>,
    /// The message on one line.
    pub text: String,
    /// Other lines of the log about this system, with further numbers.
    pub context: String,
    /// The row of the table for this message.
    pub form: &'static Form,
    /// The parsed message, if it is of PyTorch's allocator of device memory.
    pub allocation: Option<Box<FailedAllocation>>,
}

#[derive(Debug, Default)]
pub(super) struct LogBuilder {
    pub(super) log: Log,
    /// Indexes of messages, by their numbers.
    known: SeededMap<String, Vec<usize>>,
    /// The last line of each form that only has numbers.
    context: Vec<(&'static Form, String)>,
}

impl LogBuilder {
    /// Adds a message, or counts a repeat. Messages with the same key are repeats if their source is the same or
    /// unknown.
    pub(super) fn add(&mut self, key: String, message: Message) {
        self.log.message_count += 1;
        let messages = &mut self.log.messages;
        let unknown = LineSource::default();
        let same = self.known.get(&key).into_iter().flatten().find(|index| {
            [&message.source, &unknown].contains(&&messages[**index].source) || message.source == unknown
        });
        if let Some(index) = same {
            let known = &mut messages[*index];
            known.times += 1;
            if known.frames.is_empty() {
                known.frames = message.frames;
            }
            if known.source == unknown {
                known.source = message.source;
            }
            return;
        }
        if messages.len() < MAX_MESSAGES {
            self.known.entry(key).or_default().push(messages.len());
            messages.push(message);
        }
    }

    /// Appends `text` to the last message that it continues, which turns out to be one of `form`: the message of the
    /// line before, or an earlier one of the same system. Returns false if there is none.
    pub(super) fn continue_message(&mut self, form: &'static Form, source: &LineSource, line: u64, text: &str) -> bool {
        let started = self.log.messages.iter_mut().rev().find(|message| {
            let is_near = message.line + 1 == line || message.form.name == form.name;
            is_near && message.source == *source && message.text.contains(&form.continues)
        });
        let Some(started) = started else { return false }; // no message to continue
        started.text = format!("{} {text}", started.text);
        started.form = form;
        true
    }

    /// Appends `text` to the last message if that reports the same event in another wording of `form`, some lines above.
    pub(super) fn join_wording(&mut self, form: &'static Form, source: &LineSource, line: u64, text: &str) -> bool {
        let Some(last) = self.log.messages.last_mut() else { return false }; // the first message
        let is_same = std::ptr::eq(last.form, form) && last.source == *source && line - last.line < MAX_WORDING_GAP;
        let is_other_wording = form.wording(text) != form.wording(&last.text);
        if is_same && is_other_wording {
            last.text = format!("{} {text}", last.text);
        }
        is_same && is_other_wording
    }

    /// Keeps the last line of each wording of `form`.
    pub(super) fn add_context(&mut self, form: &'static Form, text: String) {
        self.context.retain(|(known, last)| !std::ptr::eq(*known, form) || form.wording(last) != form.wording(&text));
        self.context.push((form, text));
    }

    /// Appends `text` to the message that starts in line `first`, unless that was counted as a repeat.
    pub(super) fn append_line(&mut self, source: &LineSource, first: u64, text: &str) {
        let mut latest = self.log.messages.iter_mut().rev().take_while(|message| message.line >= first);
        if let Some(started) = latest.find(|message| message.line == first && message.source == *source) {
            started.text = format!("{} {text}", started.text);
        }
    }

    /// Removes the notes of each system that has a message, and all but the first of other systems. Their numbers, and
    /// those of lines that are no messages, go to the messages of their systems.
    fn merge_notes(messages: &mut Vec<Message>, mut context: Vec<(&'static Form, String)>) {
        messages.retain(|message| {
            let is_needless = message.form.needs.is_empty() || message.text.contains(&message.form.needs);
            is_needless || message.form.role == Role::Unknown
        });
        let is_explained =
            messages.iter().any(|message| message.form.role == Role::Message && message.form.kind == "host");
        messages.retain(|message| !is_explained || message.form.role != Role::Echo);
        let mut seen: SeededSet<&str> = SeededSet::default();
        seen.extend(
            messages.iter().filter(|message| !message.form.is_note()).map(|message| message.form.name.as_str()),
        );
        messages.retain(|message| {
            let is_kept = !message.form.is_note() || seen.insert(&message.form.name);
            if !is_kept {
                context.push((message.form, message.text.clone()));
            }
            is_kept
        });
        let is_known = messages.iter().any(|message| message.form.role != Role::Unknown);
        messages.retain(|message| !is_known || message.form.role != Role::Unknown);
        for message in messages {
            let lines = context.iter().filter(|(form, _)| form.name == message.form.name);
            message.context = lines.map(|(_, text)| text).join(" ");
        }
    }

    /// Sorts everything by line.
    pub(super) fn finish(self) -> Log {
        let mut log = self.log;
        log.messages.sort_by_key(|message| message.line);
        Self::merge_notes(&mut log.messages, self.context);
        log
    }
}

impl Log {
    /// Adds the log `other` of the same job, from the file `name`.
    pub fn add_file(&mut self, name: &str, rank: Option<u32>, other: Self) {
        let messages = other.messages.into_iter().map(|mut message| {
            message.source.rank = message.source.rank.or(rank);
            Message { file: Some(name.to_owned()), ..message }
        });
        self.messages.extend(messages.take(MAX_MESSAGES.saturating_sub(self.messages.len())));
        self.lines += other.lines;
        self.message_count += other.message_count;
        self.place = self.place.or(other.place);
        self.other_error = self.other_error.or(other.other_error);
        self.unknown = self.unknown.take().or(other.unknown);
        self.settings.extend(other.settings);
    }
}
