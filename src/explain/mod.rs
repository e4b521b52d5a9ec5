//! The meaning of out-of-memory messages in a log, without a snapshot.
//!
//! A parsed log goes in ([`message`]); the report of `oomscope explain` comes out. The verdict comes from the same
//! ladder as for a snapshot ([`crate::allocator::verdict`]), applied to printed, rounded numbers; the report says where
//! the verdict depends on rounding or on numbers that the message lacks. This room does not know snapshots or output
//! formats.

mod advice;
mod answer;
mod backends;
mod conclusion;
mod engine;
mod figures;
pub mod message;
mod numbers;
mod other_system;
mod same_failures;
mod standard_advice;
mod statistics;
#[doc(hidden)]
pub mod systems;
mod template;
mod verdict;

pub use answer::{ExplainReport, ExplainedFailure, RefusedMapping};
pub use figures::PrintedFigure;
pub use standard_advice::{Snippet, StandardAdvice};
pub use statistics::StatisticsReport;

use self::numbers::MessageNumbers;
use crate::allocator::verdict::{ApproxBytes, Certainty, Verdict};
use crate::base::units::{escape_name, escape_text};
use crate::base::warning::RECORD_COMMAND;
use crate::explain::message::{Log, Mapping, Message, MessageKind, Wording};
use crate::stacks::frames::{FrameReport, code_and_caller};

/// Explains `log`, read from `path`; `None` if it holds nothing about memory.
pub fn explain(log: &Log, path: &str) -> Option<ExplainReport> {
    let is_empty = log.messages.is_empty() && log.statistics.is_empty() && log.mappings.is_empty();
    if is_empty {
        return None;
    }
    let has_expandable = |device: Option<u64>| log.mappings.iter().any(|mapping| Some(mapping.device) == device);
    let refused = |mapping: &Mapping| RefusedMapping {
        line: mapping.line,
        device: mapping.device,
        times: mapping.times,
        device_free_bytes: mapping.free_bytes,
        capacity_bytes: mapping.capacity_bytes,
    };
    Some(ExplainReport {
        path: path.to_owned(),
        lines: log.lines,
        message_count: log.message_count,
        failures: same_failures::link_same_failures(
            log.messages.iter().map(|message| explain_message(message, log, &has_expandable)).collect(),
        ),
        statistics_count: log.statistics_count,
        statistics: log.statistics.iter().map(statistics::evaluate).collect(),
        refused_mappings: log.mappings.iter().map(refused).collect(),
        next_command: is_recordable(log)
            .then(|| log.engine.and_then(|(engine, _)| engine.dry_run).unwrap_or(RECORD_COMMAND)),
    })
}

/// Whether `oomscope run` records the job whose log this is: its device, and PyTorch 2.1 or later.
fn is_recordable(log: &Log) -> bool {
    let is_old = |wording: Wording| matches!(wording, Wording::Cached | Wording::Reserved);
    let is_recorded = |message: &Message| match &message.kind {
        MessageKind::Allocation(allocation) => {
            matches!(allocation.backend.as_str(), "CUDA" | "HIP") && allocation.wording != Wording::Async
        }
        MessageKind::OtherSystem(system) => system.is_recordable,
    };
    let mut wordings = log.messages.iter().filter_map(|message| match &message.kind {
        MessageKind::Allocation(allocation) => Some(allocation.wording),
        MessageKind::OtherSystem(_) => None,
    });
    let is_new = wordings.clone().any(|wording| !is_old(wording)) || wordings.next().is_none();
    is_new && (log.messages.is_empty() || log.messages.iter().any(is_recorded))
}

/// Advice for a request that was refused while enough was free: an error before line `line` may be the cause.
fn earlier_error(log: &Log, line: u64) -> Option<String> {
    let (at, error) = log.other_error.filter(|(at, _)| *at < line)?;
    Some(format!("Look at line {at} first: {error}."))
}

fn explain_message(message: &Message, log: &Log, has_expandable: &dyn Fn(Option<u64>) -> bool) -> ExplainedFailure {
    let frames: Vec<FrameReport> = message
        .frames
        .iter()
        .map(|f| FrameReport { file: escape_name(&f.file), line: f.line, name: escape_name(&f.name) })
        .collect();
    let (culprit, called_from) = code_and_caller(&frames);
    let source_line = |line: Option<&FrameReport>| {
        let at = frames.iter().position(|frame| Some(frame) == line)?;
        message.frames.get(at)?.code.as_deref().map(escape_text)
    };
    let (numbers, conclusion, figures) = match &message.kind {
        MessageKind::Allocation(allocation) => {
            let mut allocation = allocation.as_ref().clone();
            if has_expandable(allocation.device) {
                allocation.expandable = Some(true);
            }
            let numbers = MessageNumbers::from_allocation(allocation, &message.text);
            let (mut conclusion, figures) = (verdict::conclude(&numbers), figures::figures(&numbers));
            let first = match conclusion.verdict {
                Verdict::Capacity | Verdict::Unknown if !numbers.is_wrong_size() => {
                    engine::advice(&frames, log.engine).map(str::to_owned)
                }
                Verdict::MemoryLimit if numbers.allowed.is_none() => earlier_error(log, message.line),
                _ => None,
            };
            conclusion.advice.splice(0..0, first);
            (Some(numbers), conclusion, figures)
        }
        MessageKind::OtherSystem(system) => {
            let mut conclusion = other_system::conclude(system, &message.text);
            if matches!(system.kind.as_str(), "cuda-runtime" | "hip-runtime" | "nccl" | "framework") {
                conclusion.advice.splice(0..0, engine::advice(&frames, log.engine).map(str::to_owned));
            }
            (None, conclusion, other_system::figures(system, &message.text))
        }
    };
    let first = conclusion.advice.first().map_or("", String::as_str);
    let copy = match &message.kind {
        MessageKind::Allocation(_) => {
            numbers.as_ref().and_then(|numbers| advice::snippet(numbers, conclusion.verdict, first))
        }
        MessageKind::OtherSystem(system) => other_system::snippet(system, &message.text),
    };
    let copy = copy.or_else(|| culprit.as_ref().map(FrameReport::file_line));
    let system = match &message.kind {
        MessageKind::Allocation(_) => None,
        MessageKind::OtherSystem(system) => Some(*system),
    };
    let bytes =
        |amount: fn(&MessageNumbers) -> Option<ApproxBytes>| numbers.as_ref().and_then(amount).map(|about| about.bytes);
    let named = |name: &str| figures.iter().find(|f| f.name == name).map(|f| f.bytes);
    ExplainedFailure {
        line: message.line,
        times: message.times,
        rank: message.source.rank,
        same_as: None,
        source: message.source.label.as_deref().map(escape_text),
        system: system.map(|system| system.name.as_str()),
        title: system.map(|system| system.title.as_str()),
        kind: system.map_or("allocator", |system| system.kind.as_str()),
        backend: numbers.as_ref().map(|numbers| escape_text(&numbers.printed.backend)),
        device: numbers.as_ref().and_then(|numbers| numbers.printed.device),
        torch_version: numbers
            .as_ref()
            .and_then(|numbers| numbers.printed.releases)
            .map(|releases| releases.to_string()),
        message: escape_text(&message.text),
        verdict: conclusion.verdict,
        verdict_reason: conclusion.reason,
        confidence: if conclusion.is_certain { Certainty::Certain } else { Certainty::Possible },
        within_rounding: conclusion.within_rounding,
        settled_by: conclusion.settled_by,
        settings_can_help: conclusion.settings_can_help,
        advice: conclusion.advice,
        copy,
        causes: conclusion.causes,
        requested_bytes: bytes(|numbers| numbers.request).or_else(|| named("requested")),
        capacity_bytes: bytes(|numbers| numbers.capacity),
        device_free_bytes: bytes(|numbers| numbers.free),
        reserved_bytes: bytes(|numbers| numbers.reserved),
        allocated_bytes: bytes(|numbers| numbers.tensors),
        exceeds_device: numbers.as_ref().is_some_and(MessageNumbers::exceeds_device),
        outside_bytes: bytes(|numbers| numbers.outside),
        shortfall_bytes: bytes(|numbers| Some(numbers.request?.saturating_sub(numbers.free?))),
        figures,
        culprit_code: source_line(culprit.as_ref()),
        culprit,
        called_from_code: source_line(called_from.as_ref()),
        called_from,
        frames,
    }
}
