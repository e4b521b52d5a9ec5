//! Alternative results of a dry run: under other placements by the driver, and with the workspaces of libraries.
//!
//! The program runs once; its calls are replayed on a simulated device for each alternative. Among equal free blocks
//! PyTorch takes the one at the lowest address, so placement changes reserved bytes, but never the requests.

use std::ops::RangeInclusive;

use rayon::prelude::*;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::allocator::RunFigures;
use crate::allocator::device::{Placement, SimulatedDevice};
use crate::replay::model::{Hypothesis, simulate_on};
use crate::replay::ops::Program;
use crate::snapshot::DryRun;
use crate::study::DeviceStudy;

/// Placements to simulate. The stub uses the first.
const PLACEMENTS: [Placement; 6] = [
    Placement::Lowest,
    Placement::Highest,
    Placement::Scattered(1),
    Placement::Scattered(2),
    Placement::Scattered(3),
    Placement::Scattered(4),
];

/// The range of possible results for one device.
#[derive(Debug, Clone, Serialize)]
pub struct RangeReport {
    /// Device number.
    pub device: u64,
    /// Number of simulated placements.
    pub placements: u64,
    /// Number of placements in which a request fails.
    pub failing_placements: u64,
    /// Range of the peak of reserved bytes over all placements.
    #[serde(serialize_with = "serialize_range")]
    pub reserved_bytes: RangeInclusive<u64>,
    /// The same with the workspaces of closed libraries (cuDNN, cuSOLVER, cuFFT, cuSPARSE); absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_workspaces: Option<WorkspacesReport>,
}

fn serialize_range<S: Serializer>(range: &RangeInclusive<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    json!({ "least": range.start(), "most": range.end() }).serialize(serializer)
}

/// Results with the workspaces of libraries, whose sizes are estimated from the calls and documented algorithms.
#[derive(Debug, Clone, Serialize)]
pub struct WorkspacesReport {
    /// Number of workspaces.
    pub calls: u64,
    /// Size of the largest workspace in bytes.
    pub largest_bytes: u64,
    /// Peak of allocated bytes.
    pub allocated_bytes: u64,
    /// Range of the peak of reserved bytes over all placements.
    #[serde(serialize_with = "serialize_range")]
    pub reserved_bytes: RangeInclusive<u64>,
    /// Number of placements in which one of the program's requests fails.
    pub failing_placements: u64,
}

/// Simulates the alternatives for `device`; `None` without a trace, or if the model does not reproduce it.
pub(super) fn range(device: DeviceStudy<'_, '_>, dry_run: &DryRun) -> Option<RangeReport> {
    let inferred = device.inferred();
    if inferred.verification.recorded == 0 || !inferred.verification.is_exact() {
        return None;
    }
    let mut hypothesis = inferred.hypothesis.clone();
    let outside = dry_run.context_bytes.saturating_add(dry_run.nccl_bytes());
    hypothesis.capacity = Some(dry_run.total_bytes.saturating_sub(outside));
    let program = device.program();
    let (_, reserved_bytes, failing_placements) = simulate(program, &hypothesis);
    let workspaces = dry_run.workspaces.iter().filter(|workspace| workspace.device == device.id());
    let with_workspaces = workspaces.clone().map(|workspace| workspace.bytes).max().map(|largest_bytes| {
        let program = program.with_workspaces(&dry_run.workspaces);
        let (allocated_bytes, reserved_bytes, failing_placements) = simulate(&program, &hypothesis);
        let calls = workspaces.clone().count() as u64;
        WorkspacesReport { calls, largest_bytes, allocated_bytes, reserved_bytes, failing_placements }
    });
    let placements = PLACEMENTS.len() as u64;
    Some(RangeReport { device: device.id(), placements, failing_placements, reserved_bytes, with_workspaces })
}

/// The most allocated bytes, the range of the peaks of reserved bytes, and the number of placements in which a request
/// fails.
fn simulate(program: &Program<'_>, hypothesis: &Hypothesis) -> (u64, RangeInclusive<u64>, u64) {
    let capacity = hypothesis.capacity.unwrap_or_default();
    let simulated = PLACEMENTS.par_iter().map(|placement| {
        let device = SimulatedDevice::new(program.device.id(), capacity).with_placement(*placement);
        let done = simulate_on(program, hypothesis, device, |_, _| true, None);
        (done.figures(), !done.ooms.is_empty())
    });
    let simulated: Vec<(RunFigures, bool)> = simulated.collect();
    let reserved = simulated.iter().map(|(figures, _)| figures.peak_reserved_bytes);
    let range = reserved.clone().min().unwrap_or(0)..=reserved.max().unwrap_or(0);
    let allocated = simulated.iter().map(|(figures, _)| figures.peak_allocated_bytes).max().unwrap_or(0);
    (allocated, range, simulated.iter().filter(|(_, fails)| *fails).count() as u64)
}

impl RangeReport {
    /// Whether every request succeeds under all placements, with and without the workspaces of libraries.
    pub fn fits(&self) -> bool {
        self.failing_placements == 0 && self.with_workspaces.as_ref().is_none_or(|with| with.failing_placements == 0)
    }

    /// Whether the placement of memory changes the result.
    pub(crate) fn is_affected_by_placement(&self) -> bool {
        self.failing_placements > 0 || self.reserved_bytes.start() < self.reserved_bytes.end()
    }
}
