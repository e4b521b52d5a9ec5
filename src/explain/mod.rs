//! What messages about memory mean: `oomscope/explain/1`.
//!
//! The same ladder as for a snapshot decides ([`crate::allocator::verdict`]), as far as the numbers that were printed can;
//! where the answer depends on what was not printed, or on how a number was rounded, it says so.

mod advice;
mod alike;
mod answer;
mod backends;
mod conclusion;
mod elsewhere;
mod figures;
pub mod message;
mod reckoning;
mod recording;
mod statistics;
mod summary;
pub mod systems;
mod verdict;

pub use answer::{ExplainReport, Failure, RefusedMapping};
pub use figures::PrintedFigure;
pub use recording::Recording;
pub use statistics::StatisticsReport;

use self::reckoning::Reckoning;
use crate::allocator::verdict::{ApproxBytes, Certainty};
use crate::base::summary::Summary;
use crate::base::units::{escape_name, escape_text};
use crate::explain::message::{Log, Message, Saying};
use crate::stacks::frames::{FrameReport, code_and_caller};

/// Says what `log`, read from `path`, means; `None` when nothing about memory stands in it.
pub fn explain(log: &Log, path: &str) -> Option<ExplainReport> {
    let is_empty = log.messages.is_empty() && log.statistics.is_empty() && log.mappings.is_empty();
    if is_empty {
        return None;
    }
    let has_expandable =
        |device: Option<u64>| log.mappings.iter().any(|m| Some(m.device) == device);
    let refused = |m: &crate::explain::message::Mapping| RefusedMapping {
        line: m.line,
        device: m.device,
        times: m.times,
        device_free_bytes: m.free_bytes,
        capacity_bytes: m.capacity_bytes,
    };
    let report = ExplainReport {
        schema: "oomscope/explain/1",
        summary: Summary::default(),
        path: path.to_owned(),
        lines: log.lines,
        message_count: log.message_count,
        failures: alike::put_together(
            log.messages.iter().map(|message| failure(message, &has_expandable)).collect(),
        ),
        statistics_count: log.statistics_count,
        statistics: log.statistics.iter().map(statistics::report).collect(),
        refused_mappings: log.mappings.iter().map(refused).collect(),
        recording: recording::recording(log),
    };
    Some(ExplainReport { summary: summary::of(&report), ..report })
}

fn failure(message: &Message, has_expandable: &dyn Fn(Option<u64>) -> bool) -> Failure {
    let frames: Vec<FrameReport> = message
        .frames
        .iter()
        .map(|f| FrameReport {
            file: escape_name(&f.file),
            line: f.line,
            name: escape_name(&f.name),
        })
        .collect();
    let (culprit, called_from) = code_and_caller(&frames);
    let code_of = |line: Option<&FrameReport>| {
        let at = frames.iter().position(|frame| Some(frame) == line)?;
        message.frames.get(at)?.code.as_deref().map(escape_text)
    };
    let (reckoning, conclusion, figures) = match &message.saying {
        Saying::Allocation(allocation) => {
            let mut allocation = allocation.as_ref().clone();
            if has_expandable(allocation.device) {
                allocation.expandable = Some(true);
            }
            let reckoning = Reckoning::of(allocation, &message.text);
            let (conclusion, figures) =
                (verdict::conclude(&reckoning), figures::figures(&reckoning));
            (Some(reckoning), conclusion, figures)
        }
        Saying::Elsewhere(whose) => {
            (None, elsewhere::conclude(whose), elsewhere::figures(whose, &message.text))
        }
    };
    let first = conclusion.advice.first().map_or("", String::as_str);
    let copy = reckoning.as_ref().and_then(|r| advice::to_copy(r, conclusion.verdict, first));
    let copy = copy.or_else(|| culprit.as_ref().map(FrameReport::file_line));
    let system = match &message.saying {
        Saying::Allocation(_) => None,
        Saying::Elsewhere(system) => Some(*system),
    };
    let bytes = |of: fn(&Reckoning) -> Option<ApproxBytes>| {
        reckoning.as_ref().and_then(of).map(|about| about.bytes)
    };
    let named = |name: &str| figures.iter().find(|f| f.name == name).map(|f| f.bytes);
    Failure {
        line: message.line,
        times: message.times,
        rank: message.source.rank,
        same_as: None,
        source: message.source.label.as_deref().map(escape_text),
        system: system.map(|system| system.name),
        title: system.map(|system| system.title),
        kind: system.map_or("allocator", |system| system.kind),
        backend: reckoning.as_ref().map(|r| escape_text(&r.said.backend)),
        device: reckoning.as_ref().and_then(|r| r.said.device),
        torch_version: reckoning
            .as_ref()
            .and_then(|r| r.said.releases)
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
        requested_bytes: bytes(|r| r.request).or_else(|| named("requested")),
        capacity_bytes: bytes(|r| r.capacity),
        device_free_bytes: bytes(|r| r.free),
        reserved_bytes: bytes(|r| r.reserved),
        allocated_bytes: bytes(|r| r.tensors),
        outside_bytes: bytes(|r| r.outside),
        shortfall_bytes: bytes(|r| Some(r.request?.saturating_sub(r.free?))),
        figures,
        culprit_code: code_of(culprit.as_ref()),
        culprit,
        called_from_code: code_of(called_from.as_ref()),
        called_from,
        frames,
    }
}
