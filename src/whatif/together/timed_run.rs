//! One replay of all processes on one device, by their clocks.

use serde::Serialize;

use crate::replay::model::{Hypothesis, SharedProcess, simulate_shared};
use crate::stacks::frames::CodeLocation;
use crate::study::DeviceStudy;

/// The processes as timed in the recordings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimedRun {
    /// The most bytes that all of them reserve at once, up to the failure if there is one.
    pub peak_bytes: u64,
    /// Reserved bytes of each process at that moment, in the order of `processes`.
    pub peak_by_process: Vec<u64>,
    /// The first request that fails; null if all are served.
    pub failed: Option<TimedFailure>,
}

/// The first request that fails.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimedFailure {
    /// Index of its process in `processes`.
    pub process: usize,
    /// Entry index of the request in that recording.
    pub event: usize,
    /// Requested bytes, rounded by the allocator; 0 if the memory from before the recordings alone exceeds the device.
    pub requested_bytes: u64,
    /// Reserved bytes of each process then, in the order of `processes`.
    pub reserved_by_process: Vec<u64>,
    /// The source line that makes the request.
    #[serde(flatten)]
    pub location: CodeLocation,
}

impl TimedRun {
    /// Replays `devices` on a GPU of which they have `capacity` bytes together. `hypotheses` have its total memory.
    pub(super) fn new(devices: &[DeviceStudy<'_, '_>], hypotheses: &[Hypothesis], capacity: u64) -> Self {
        let processes = devices.iter().zip(hypotheses);
        let processes: Vec<SharedProcess<'_>> =
            processes.map(|(device, hypothesis)| SharedProcess { program: device.program(), hypothesis }).collect();
        let run = simulate_shared(&processes, capacity);
        let failed = run.failed.map(|(moment, requested_bytes)| {
            let device = devices[moment.process];
            let stack = device.device().entry(moment.entry_index).extended_stack;
            TimedFailure {
                process: moment.process,
                event: moment.entry_index,
                requested_bytes,
                reserved_by_process: moment.reserved_bytes,
                location: device.stacks().code_location(device.stacks().line_id(stack)),
            }
        });
        Self { peak_bytes: run.peak.total_bytes(), peak_by_process: run.peak.reserved_bytes, failed }
    }
}
