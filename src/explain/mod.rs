//! What messages about memory mean: `oomscope/explain/1`.
//!
//! The same ladder as for a snapshot decides ([`crate::verdict`]), as far as the numbers that were printed can;
//! where the answer depends on what was not printed, or on how a number was rounded, it says so.

mod advice;
mod alike;
mod backends;
mod conclusion;
mod elsewhere;
mod figures;
mod reckoning;
mod recording;
mod statistics;
mod verdict;

pub use figures::PrintedFigure;
pub use recording::Recording;
pub use statistics::StatisticsReport;

use serde::Serialize;

use self::reckoning::Reckoning;
use crate::frames::{FrameReport, lines_of};
use crate::message::{Log, Message, Saying};
use crate::units::{plain, plain_name};
use crate::verdict::{About, Cause, Certainty, Verdict};

/// The JSON of `oomscope explain`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainReport {
    /// `oomscope/explain/1`
    pub schema: &'static str,
    /// As given; `-` for standard input.
    pub path: String,
    /// Lines of the log.
    pub lines: u64,
    /// All messages found, repeats counted.
    pub message_count: u64,
    /// The different ones, in the order of the log; the first 1000 where there are more.
    pub failures: Vec<Failure>,
    /// All statistics found.
    pub statistics_count: u64,
    /// Statistics found, in the order of the log; the last 1000 where there are more.
    pub statistics: Vec<StatisticsReport>,
    /// Warnings of expandable segments that a mapping was refused, one entry a device.
    pub refused_mappings: Vec<RefusedMapping>,
    /// How to record a snapshot at the failure; absent where the messages are not CUDA's or HIP's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recording>,
}

/// One message and what it means. What the message does not say is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// The line of the log with the first of them, from 1.
    pub line: u64,
    /// How often it stands in the log.
    pub times: u64,
    /// The rank that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Another label of who wrote it: a worker, a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The line of the log with a message of another rank that is like this one: the same request, at the same line of
    /// code, with the same verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<u64>,
    /// Whose request failed: `allocator` (PyTorch's, of device memory), or what the table in
    /// [`crate::systems`] says.
    pub kind: &'static str,
    /// The system that printed it, where that is not PyTorch's allocator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<&'static str>,
    /// What happened, of such a system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'static str>,
    /// `CUDA`, `HIP`, `XPU`, `MPS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The device's index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// The PyTorch releases that print such a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_version: Option<String>,
    /// The message on one line.
    pub message: String,
    /// In the words of `analyze`: `memory-limit`, `private-pool`, `fragmentation`, `non-pytorch`, `capacity`,
    /// `unknown`.
    pub verdict: Verdict,
    /// One or two sentences with the numbers.
    pub verdict_reason: String,
    /// How sure the verdict is.
    pub confidence: Certainty,
    /// Whether the rounding of the printed numbers could change the verdict.
    pub within_rounding: bool,
    /// What would make it certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<String>,
    /// Whether a setting of PyTorch's allocator can make room: false when everything free, on the device and
    /// in the cache, is less than the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings_can_help: Option<bool>,
    /// What to do, most useful first.
    pub advice: Vec<String>,
    /// Where memory was that could have served the request, largest first.
    pub causes: Vec<Cause>,
    /// The numbers and their meanings, in reading order.
    pub figures: Vec<PrintedFigure>,
    /// What was asked of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    /// The device's memory: what `--capacity` takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Free on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_free_bytes: Option<u64>,
    /// Held by the allocator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
    /// Held by the program; without what private pools have free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// Of the device, in use outside the allocator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside_bytes: Option<u64>,
    /// What the device lacked for the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall_bytes: Option<u64>,
    /// The innermost frame in the traceback before the message that is not PyTorch's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub culprit: Option<FrameReport>,
    /// What the traceback prints of that line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub culprit_code: Option<String>,
    /// The innermost frame of the user's own code outside of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_from: Option<FrameReport>,
    /// What the traceback prints of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_from_code: Option<String>,
    /// That traceback, innermost first.
    pub frames: Vec<FrameReport>,
}

/// How often memory for an expandable segment was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedMapping {
    /// The line of the log with the first one, from 1.
    pub line: u64,
    /// The device's index.
    pub device: u64,
    /// How often.
    pub times: u64,
    /// Free on the device the last time.
    pub device_free_bytes: u64,
    /// The device's memory.
    pub capacity_bytes: u64,
}

/// Says what `log`, read from `path`, means; `None` when nothing about memory stands in it.
pub fn explain(log: &Log, path: &str) -> Option<ExplainReport> {
    let is_empty = log.messages.is_empty() && log.statistics.is_empty() && log.mappings.is_empty();
    if is_empty {
        return None;
    }
    let has_expandable =
        |device: Option<u64>| log.mappings.iter().any(|m| Some(m.device) == device);
    let refused = |m: &crate::message::Mapping| RefusedMapping {
        line: m.line,
        device: m.device,
        times: m.times,
        device_free_bytes: m.free_bytes,
        capacity_bytes: m.capacity_bytes,
    };
    Some(ExplainReport {
        schema: "oomscope/explain/1",
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
    })
}

fn failure(message: &Message, has_expandable: &dyn Fn(Option<u64>) -> bool) -> Failure {
    let frames: Vec<FrameReport> = message
        .frames
        .iter()
        .map(|f| FrameReport { file: plain_name(&f.file), line: f.line, name: plain_name(&f.name) })
        .collect();
    let (culprit, called_from) = lines_of(&frames);
    let code_of = |line: Option<&FrameReport>| {
        let at = frames.iter().position(|frame| Some(frame) == line)?;
        message.frames.get(at)?.code.as_deref().map(plain)
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
    let system = match &message.saying {
        Saying::Allocation(_) => None,
        Saying::Elsewhere(system) => Some(*system),
    };
    let bytes = |of: fn(&Reckoning) -> Option<About>| {
        reckoning.as_ref().and_then(of).map(|about| about.bytes)
    };
    let named = |name: &str| figures.iter().find(|f| f.name == name).map(|f| f.bytes);
    Failure {
        line: message.line,
        times: message.times,
        rank: message.source.rank,
        same_as: None,
        source: message.source.label.as_deref().map(plain),
        system: system.map(|system| system.name),
        title: system.map(|system| system.title),
        kind: system.map_or("allocator", |system| system.kind),
        backend: reckoning.as_ref().map(|r| plain(&r.said.backend)),
        device: reckoning.as_ref().and_then(|r| r.said.device),
        torch_version: reckoning
            .as_ref()
            .and_then(|r| r.said.releases)
            .map(|releases| releases.to_string()),
        message: plain(&message.text),
        verdict: conclusion.verdict,
        verdict_reason: conclusion.reason,
        confidence: if conclusion.is_certain { Certainty::Certain } else { Certainty::Possible },
        within_rounding: conclusion.within_rounding,
        settled_by: conclusion.settled_by,
        settings_can_help: conclusion.settings_can_help,
        advice: conclusion.advice,
        causes: conclusion.causes,
        requested_bytes: bytes(|r| r.request).or_else(|| named("requested")),
        capacity_bytes: bytes(|r| r.capacity),
        device_free_bytes: bytes(|r| r.free),
        reserved_bytes: bytes(|r| r.reserved),
        allocated_bytes: bytes(|r| r.tensors),
        outside_bytes: bytes(|r| r.outside),
        shortfall_bytes: bytes(|r| Some(r.request?.minus(r.free?))),
        figures,
        culprit_code: code_of(culprit.as_ref()),
        culprit,
        called_from_code: code_of(called_from.as_ref()),
        called_from,
        frames,
    }
}
