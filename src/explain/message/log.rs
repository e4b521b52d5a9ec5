//! What was found in a log, gathered: equal messages counted, too many of anything let go.

use super::line::LineSource;
use super::marks::Mapping;
use super::statistics::Statistics;
use super::traceback::TracebackFrame;
use super::wording::Allocation;
use crate::base::intern::{SeededMap, SeededSet};
use crate::explain::systems::System;

/// Different messages that are kept; more are counted.
const MOST_MESSAGES: usize = 1000;
/// Statistics that are kept, the last ones; more are counted. (Twice as many before they are cut.)
const MOST_STATISTICS: usize = 1000;
/// Devices whose refused mappings are counted.
const MOST_DEVICES: usize = 64;

/// What a log holds about memory.
#[derive(Debug, Default)]
pub struct Log {
    /// Lines of the log.
    pub lines: u64,
    /// The different messages, in the order in which they first stand in the log.
    pub messages: Vec<Message>,
    /// All messages: repeats, and those of which there were too many to keep.
    pub message_count: u64,
    /// Statistics, in the order of the log; the last ones where there are too many to keep.
    pub statistics: Vec<Statistics>,
    /// All statistics.
    pub statistics_count: u64,
    /// Refused mappings, one entry a device.
    pub mappings: Vec<Mapping>,
}

/// A message that memory ran out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The line of the log with the first of them, from 1.
    pub line: u64,
    /// How often it stands in the log: logged and raised, in each part of a chain of exceptions.
    pub times: u64,
    /// Who wrote it.
    pub source: LineSource,
    /// The traceback before it, innermost first.
    pub frames: Vec<TracebackFrame>,
    /// The message on one line.
    pub text: String,
    /// What it says.
    pub saying: Saying,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Saying {
    /// PyTorch's allocator could not serve a request.
    Allocation(Box<Allocation>),
    /// Another system had no memory.
    Elsewhere(&'static System),
}

/// A log in the making.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) log: Log,
    /// The messages with the same numbers.
    known: SeededMap<String, Vec<usize>>,
}

impl Gathered {
    /// Adds a message, or counts it with an equal one: of the same source, or of none that is known.
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
        if messages.len() < MOST_MESSAGES {
            self.known.entry(key).or_default().push(messages.len());
            messages.push(message);
        }
    }

    /// The message in the line before `line` goes on in `text`, which tells that it is one of `whose`.
    pub(super) fn tell_whose(
        &mut self,
        whose: &'static System,
        source: &LineSource,
        line: u64,
        text: &str,
    ) {
        let begun = self.log.messages.iter_mut().next_back().filter(|message| {
            message.line + 1 == line
                && message.source == *source
                && message.text.contains(whose.goes_on_from)
        });
        if let Some(begun) = begun {
            begun.text = format!("{} {text}", begun.text);
            begun.saying = Saying::Elsewhere(whose);
        }
    }

    /// Of each system, signs are left out beside a message, and beside the first of them.
    fn leave_out_signs(messages: &mut Vec<Message>) {
        let mut told: SeededSet<&str> = SeededSet::default();
        let of = |message: &Message| match &message.saying {
            Saying::Elsewhere(whose) => Some(*whose),
            Saying::Allocation(_) => None,
        };
        told.extend(
            messages.iter().filter_map(of).filter(|whose| !whose.is_sign).map(|whose| whose.name),
        );
        messages.retain(|message| {
            of(message).is_none_or(|whose| !whose.is_sign || told.insert(whose.name))
        });
    }

    /// Keeps those of `ended` that are whole, and of too many the last.
    pub(super) fn keep(&mut self, ended: impl IntoIterator<Item = Statistics>) {
        let kept = &mut self.log.statistics;
        for statistics in ended.into_iter().filter(Statistics::is_whole) {
            kept.push(statistics);
            self.log.statistics_count += 1;
        }
        if kept.len() >= 2 * MOST_STATISTICS {
            kept.drain(..kept.len() - MOST_STATISTICS);
        }
    }

    /// Counts a refused mapping.
    pub(super) fn warn(&mut self, found: Mapping) {
        let known = &mut self.log.mappings;
        if let Some(known) = known.iter_mut().find(|m| m.device == found.device) {
            *known = Mapping { times: known.times + 1, line: known.line, ..found };
        } else if known.len() < MOST_DEVICES {
            known.push(found);
        }
    }

    /// The log, in its own order.
    pub(super) fn finished(self) -> Log {
        let mut log = self.log;
        log.messages.sort_by_key(|message| message.line);
        Self::leave_out_signs(&mut log.messages);
        log.statistics.sort_by_key(|statistics| statistics.line);
        let too_many = log.statistics.len().saturating_sub(MOST_STATISTICS);
        log.statistics.drain(..too_many);
        log.mappings.sort_by_key(|mapping| mapping.device);
        log
    }
}
