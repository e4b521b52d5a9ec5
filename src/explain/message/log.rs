//! Collects the messages and statistics of a log: counts repeats, and limits how many are kept.

use super::line::LineSource;
use super::start::Mapping;
use super::statistics::Statistics;
use super::traceback::TracebackFrame;
use super::wording::FailedAllocation;
use crate::base::intern::{SeededMap, SeededSet};
use crate::explain::systems::{Engine, KnownMessage};

/// Further distinct messages are only counted.
const MAX_MESSAGES: usize = 1000;
/// Only the last ones are kept; earlier ones are only counted. (Up to twice as many are kept before they are removed.)
const MAX_STATISTICS: usize = 1000;
/// Refused mappings of further devices are ignored.
const MAX_DEVICES: usize = 64;

/// Everything that a log holds about memory.
#[derive(Debug, Default)]
pub struct Log {
    /// Number of lines.
    pub lines: u64,
    /// The distinct messages, in the order of their first occurrence.
    pub messages: Vec<Message>,
    /// Number of all messages, including repeats and those that were not kept.
    pub message_count: u64,
    /// The last statistics, in the order of the log.
    pub statistics: Vec<Statistics>,
    /// Number of all statistics.
    pub statistics_count: u64,
    /// Refused mappings, one entry per device.
    pub mappings: Vec<Mapping>,
    /// The first engine that a line names, and whether a line says that its weights were not loaded.
    pub engine: Option<(&'static Engine, bool)>,
    /// The first error of a GPU that is not about memory: its line, from 1, and what it is.
    pub other_error: Option<(u64, &'static str)>,
}

/// An out-of-memory message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Line of the log with the first occurrence, from 1.
    pub line: u64,
    /// Number of occurrences: logs repeat a message when it is logged and raised, and in chains of exceptions.
    pub times: u64,
    /// The rank or process that the log names for this line.
    pub source: LineSource,
    /// The traceback before the message, innermost frame first.
    pub frames: Vec<TracebackFrame>,
    /// The message on one line.
    pub text: String,
    /// The parsed message.
    pub kind: MessageKind,
}

/// The system that failed, with the figures of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKind {
    /// A message of PyTorch's allocator of device memory.
    Allocation(Box<FailedAllocation>),
    /// A message of another system.
    OtherSystem(&'static KnownMessage),
}

#[derive(Debug, Default)]
pub(super) struct LogBuilder {
    pub(super) log: Log,
    /// Indexes of messages, by their numbers.
    known: SeededMap<String, Vec<usize>>,
}

impl LogBuilder {
    /// Adds a message, or counts a repeat. Messages with the same key are repeats if their source is the same or
    /// unknown.
    pub(super) fn add(&mut self, key: String, message: Message) {
        self.log.message_count += 1;
        let messages = &mut self.log.messages;
        let same = self.known.get(&key).and_then(|indices| {
            indices.iter().copied().find(|index| {
                messages.get(*index).is_some_and(|known| {
                    known.source == message.source
                        || known.source == LineSource::default()
                        || message.source == LineSource::default()
                })
            })
        });
        if let Some(known) = same.and_then(|index| messages.get_mut(index)) {
            known.times += 1;
            if known.frames.is_empty() {
                known.frames = message.frames;
            }
            if known.source == LineSource::default() {
                known.source = message.source;
            }
            return;
        }
        if messages.len() < MAX_MESSAGES {
            self.known.entry(key).or_default().push(messages.len());
            messages.push(message);
        }
    }

    /// Appends `text` to the message of the line before `line`, which turns out to be one of `system`.
    pub(super) fn continue_message(
        &mut self,
        system: &'static KnownMessage,
        source: &LineSource,
        line: u64,
        text: &str,
    ) {
        let started = self.log.messages.iter_mut().next_back().filter(|message| {
            message.line + 1 == line && message.source == *source && message.text.contains(&system.continues)
        });
        if let Some(started) = started {
            started.text = format!("{} {text}", started.text);
            started.kind = MessageKind::OtherSystem(system);
        }
    }

    /// Appends `text` to the message that starts in line `first`, unless that was counted as a repeat.
    pub(super) fn append_line(&mut self, source: &LineSource, first: u64, text: &str) {
        let mut latest = self.log.messages.iter_mut().rev().take_while(|message| message.line >= first);
        if let Some(started) = latest.find(|message| message.line == first && message.source == *source) {
            started.text = format!("{} {text}", started.text);
        }
    }

    /// Removes the side notes of each system that has a message, and all but the first of other systems.
    fn remove_side_notes(messages: &mut Vec<Message>) {
        let mut seen: SeededSet<&str> = SeededSet::default();
        let system_of = |message: &Message| match &message.kind {
            MessageKind::OtherSystem(system) => Some(*system),
            MessageKind::Allocation(_) => None,
        };
        let with_message = messages.iter().filter_map(system_of).filter(|system| !system.is_side_note);
        seen.extend(with_message.map(|system| system.name.as_str()));
        messages.retain(|message| {
            system_of(message).is_none_or(|system| !system.is_side_note || seen.insert(&system.name))
        });
    }

    /// Adds the complete ones of `finished`.
    pub(super) fn add_statistics(&mut self, finished: impl IntoIterator<Item = Statistics>) {
        let kept = &mut self.log.statistics;
        for statistics in finished.into_iter().filter(Statistics::is_complete) {
            kept.push(statistics);
            self.log.statistics_count += 1;
        }
        if kept.len() >= 2 * MAX_STATISTICS {
            kept.drain(..kept.len() - MAX_STATISTICS);
        }
    }

    pub(super) fn add_mapping(&mut self, found: Mapping) {
        let known = &mut self.log.mappings;
        if let Some(known) = known.iter_mut().find(|m| m.device == found.device) {
            *known = Mapping { times: known.times + 1, line: known.line, ..found };
        } else if known.len() < MAX_DEVICES {
            known.push(found);
        }
    }

    /// Sorts everything by line.
    pub(super) fn finish(self) -> Log {
        let mut log = self.log;
        log.messages.sort_by_key(|message| message.line);
        Self::remove_side_notes(&mut log.messages);
        log.statistics.sort_by_key(|statistics| statistics.line);
        let too_many = log.statistics.len().saturating_sub(MAX_STATISTICS);
        log.statistics.drain(..too_many);
        log.mappings.sort_by_key(|mapping| mapping.device);
        log
    }
}
