//! The meaning of out-of-memory messages in a log, without a snapshot.
//!
//! A parsed log goes in ([`message`]); the report of `oomscope explain` comes out. The verdict comes from the same
//! ladder as for a snapshot ([`crate::allocator::verdict`]), applied to printed, rounded numbers; the report says where
//! the verdict depends on rounding or on numbers that the message lacks. This room does not know snapshots or output
//! formats.

mod answer;
mod conclusion;
pub mod message;
mod numbers;
mod standard_advice;
#[doc(hidden)]
pub mod table;

pub use answer::{ExplainReport, ExplainedFailure, PrintedFigure};
pub use standard_advice::{Snippet, StandardAdvice};

use self::conclusion::Conclusion;
use self::numbers::MessageNumbers;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::base::units::{escape_name, escape_text};
use crate::base::warning::RECORD_COMMAND;
use crate::explain::message::{FailedAllocation, Log, MAPPING_REFUSED, Message, NO_EXPANDABLE, Wording};
use crate::explain::table::PrintedNumbers;
use crate::stacks::frames::{FrameReport, code_and_caller};

/// Explains `log`, read from `path`; `None` if it holds nothing about memory.
pub fn explain(log: &Log, path: &str) -> Option<ExplainReport> {
    (!log.messages.is_empty()).then(|| ExplainReport {
        path: path.to_owned(),
        lines: log.lines,
        message_count: log.message_count,
        failures: answer::link_same_failures(
            log.messages.iter().map(|message| explain_message(message, log)).collect(),
        ),
        next_command: is_recordable(log)
            .then(|| log.place.and_then(|place| place.dry_run.as_deref()).unwrap_or(RECORD_COMMAND)),
    })
}

/// Whether `oomscope run` records the job whose log this is: its device, and PyTorch 2.1 or later.
fn is_recordable(log: &Log) -> bool {
    let mut allocations = log.messages.iter().filter_map(|message| message.allocation.as_ref());
    let is_new = allocations.clone().any(|found| !matches!(found.wording, Wording::Cached | Wording::Reserved))
        || allocations.next().is_none();
    is_new && log.messages.iter().any(is_recordable_failure)
}

fn is_recordable_failure(message: &Message) -> bool {
    message.allocation.as_ref().map_or(message.form.is_recordable, |allocation| {
        matches!(allocation.backend.as_str(), "CUDA" | "HIP") && allocation.wording != Wording::Async
    })
}

/// Advice for a request that was refused while enough was free: an error before line `line` may be the cause.
fn earlier_error(log: &Log, line: u64) -> Option<String> {
    let (at, error) = log.other_error.filter(|(at, _)| *at < line)?;
    Some(format!("Look at line {at} first: {}.", error.why.first()?))
}

/// Whether the log shows that expandable segments are on, or that this platform has none.
fn has_expandable_segments(allocation: &FailedAllocation, log: &Log) -> Option<bool> {
    let is_set = log.settings.contains("expandable_segments:True") || log.settings.contains(MAPPING_REFUSED);
    let is_refused = log.settings.contains(NO_EXPANDABLE);
    allocation.expandable.or(if is_refused { Some(false) } else { is_set.then_some(true) })
}

/// True if the log already sets what `advice` advises.
fn is_already_set(advice: &str, log: &Log) -> bool {
    let words = advice.split(|c: char| c.is_whitespace() || "(),;".contains(c));
    words.map(|word| word.trim_end_matches(['.', ':'])).any(|word| word.contains('=') && log.settings.contains(word))
}

/// The part of an answer that depends on the system that printed the message.
struct Reading {
    /// Only for PyTorch's allocator.
    numbers: Option<MessageNumbers>,
    conclusion: Conclusion,
    figures: Vec<PrintedFigure>,
    copy: Option<String>,
}

impl Reading {
    /// Reads a message of PyTorch's allocator; `place` is the advice for the code that made the request.
    fn of_allocation(message: &Message, allocation: &FailedAllocation, log: &Log, place: Option<String>) -> Self {
        let expandable = has_expandable_segments(allocation, log);
        let numbers =
            MessageNumbers::from_allocation(FailedAllocation { expandable, ..allocation.clone() }, &message.text);
        let mut conclusion = conclusion::conclude(&numbers);
        let first = match conclusion.verdict {
            Verdict::Capacity | Verdict::Unknown if !numbers.is_wrong_size() => place,
            Verdict::MemoryLimit if numbers.allowed.is_none() => earlier_error(log, message.line),
            _ => None,
        };
        conclusion.advice.splice(0..0, first.map(|advice| numbers.vendor.translate(advice)));
        let (figures, copy) = (answer::allocator_figures(&numbers, message.form), conclusion.snippet(&numbers));
        Self { numbers: Some(numbers), conclusion, figures, copy }
    }

    /// Reads a message of another system.
    fn of_form(message: &Message, place: Option<String>) -> Self {
        let form = message.form;
        let found = PrintedNumbers::find(form, &format!("{} {}", message.text, message.context));
        let mut conclusion = Conclusion::from_form(form, &found);
        let is_in_place = matches!(form.kind.as_str(), "cuda-runtime" | "hip-runtime" | "nccl" | "framework");
        conclusion.advice.splice(0..0, place.filter(|_| is_in_place));
        let copy = found.fill_first(&form.copy);
        Self { numbers: None, conclusion, figures: answer::form_figures(form, found.amounts), copy }
    }
}

fn explain_message(message: &Message, log: &Log) -> ExplainedFailure {
    let frames: Vec<FrameReport> =
        message.frames.iter().map(|f| FrameReport::new(escape_name(&f.file), f.line, escape_name(&f.name))).collect();
    let (culprit, called_from) = code_and_caller(&frames);
    let [culprit_code, called_from_code] = [&culprit, &called_from].map(|line| {
        let at = frames.iter().position(|frame| Some(frame) == line.as_ref())?;
        message.frames.get(at)?.code.as_deref().map(escape_text)
    });
    let form = message.form;
    let place = table::find_place(&frames, log.place).map(|place| place.advice.clone());
    let Reading { numbers, mut conclusion, figures, copy } = match &message.allocation {
        Some(allocation) => Reading::of_allocation(message, allocation, log, place),
        None => Reading::of_form(message, place),
    };
    conclusion.advice.retain(|advice| !is_already_set(advice, log));
    let numbers = numbers.as_ref();
    let system = Some(form).filter(|form| !form.is_allocator());
    let amounts = numbers.map(|n| [n.request, n.capacity, n.free, n.reserved, n.tensors, n.outside]);
    let [requested_bytes, capacity_bytes, device_free_bytes, reserved_bytes, allocated_bytes, outside_bytes] =
        amounts.unwrap_or_default().map(|amount| amount.map(|amount| amount.bytes));
    let shortfall_bytes = requested_bytes.zip(device_free_bytes).map(|(request, free)| request.saturating_sub(free));
    ExplainedFailure {
        file: message.file.clone(),
        line: message.line,
        times: message.times,
        rank: message.source.rank,
        same_as: None,
        same_file: None,
        source: message.source.label.as_deref().map(escape_text),
        system: system.map(|system| system.name.as_str()),
        title: system.map(|system| system.title.as_str()),
        kind: form.kind.as_str(),
        backend: numbers.map(|numbers| escape_text(&numbers.printed.backend)),
        device: numbers.and_then(|numbers| numbers.printed.device),
        torch_version: numbers.and_then(|numbers| numbers.printed.releases).map(|releases| releases.to_string()),
        message: escape_text(&message.text),
        verdict: conclusion.verdict,
        verdict_reason: conclusion.reason,
        confidence: if conclusion.is_certain { Certainty::Certain } else { Certainty::Possible },
        within_rounding: conclusion.within_rounding,
        settled_by: conclusion.settled_by,
        settings_can_help: conclusion.settings_can_help,
        advice: conclusion.advice,
        copy: copy.or_else(|| culprit.as_ref().map(FrameReport::file_line)),
        requested_bytes: requested_bytes.or_else(|| figures.iter().find(|f| f.name == "requested").map(|f| f.bytes)),
        capacity_bytes,
        device_free_bytes,
        reserved_bytes,
        allocated_bytes,
        exceeds_device: numbers.is_some_and(MessageNumbers::exceeds_device),
        outside_bytes,
        shortfall_bytes,
        figures,
        culprit_code,
        culprit,
        called_from_code,
        called_from,
        frames,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_the_log_is_found_in_advice() {
        let log = Log { settings: ["A_B=c:1".to_owned()].into_iter().collect(), ..Log::default() };
        for (advice, is_set) in [
            ("Set A_B=c:1.", true),
            ("Set others (A_B=c:1), or none", true),
            ("Set C=2;A_B=c:1: then", true),
            ("Set A_B=c:2", false),
            ("Set A_B", false),
        ] {
            assert_eq!(is_already_set(advice, &log), is_set, "{advice}");
        }
    }
}
