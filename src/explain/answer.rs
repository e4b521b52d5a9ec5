//! The answer: what stands in its JSON.

use serde::Serialize;

use super::figures::PrintedFigure;
use super::recording::Recording;
use super::statistics::StatisticsReport;
use crate::allocator::verdict::{Cause, Certainty, Verdict};
use crate::base::summary::Summary;
use crate::stacks::frames::FrameReport;

/// The JSON of `oomscope explain`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainReport {
    /// `oomscope/explain/1`
    pub schema: &'static str,
    /// What it comes to.
    pub summary: Summary,
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
    /// [`crate::explain::systems`] says.
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
    /// What to copy for the first of it: a setting, a command, or the line of code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
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

impl Failure {
    /// What failed, on `devices` where they are known.
    pub fn what(&self, devices: Option<&str>) -> String {
        if let Some(title) = self.title {
            return title.to_owned();
        }
        let backend = self.backend.as_deref().filter(|backend| *backend != "CUDA");
        match (devices, backend) {
            (Some(devices), backend) => {
                let backend = backend.map(|name| format!("{name} ")).unwrap_or_default();
                let noun = if devices.contains(['-', ',']) { "devices" } else { "device" };
                format!("Out of memory on {backend}{noun} {devices}")
            }
            (None, Some(backend)) => format!("Out of memory on a device of {backend}"),
            (None, None) => "Out of memory".to_owned(),
        }
    }
}
