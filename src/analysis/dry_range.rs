//! Alternative results of a dry run: under other placements by the driver, and with cuDNN's workspaces.
//!
//! The program runs once; its calls are replayed on a simulated device for each alternative. Among equal free blocks
//! PyTorch takes the one at the lowest address, so placement changes reserved bytes, but never the requests.

use rayon::prelude::*;
use serde::Serialize;

use crate::allocator::device::{Placement, SimulatedDevice};
use crate::base::units::{counted, size};
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
    pub reserved_bytes: ByteRange,
    /// The same with cuDNN's workspaces; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_workspaces: Option<WorkspacesReport>,
}

/// A range of byte counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ByteRange {
    /// Minimum in bytes.
    #[serde(rename = "least")]
    pub minimum: u64,
    /// Maximum in bytes.
    #[serde(rename = "most")]
    pub maximum: u64,
}

/// Results with cuDNN's workspaces, whose sizes are estimated from the tensors and cuDNN's documented algorithms.
#[derive(Debug, Clone, Serialize)]
pub struct WorkspacesReport {
    /// Number of workspaces.
    pub calls: u64,
    /// Size of the largest workspace in bytes.
    pub largest_bytes: u64,
    /// Peak of allocated bytes.
    pub allocated_bytes: u64,
    /// Range of the peak of reserved bytes over all placements.
    pub reserved_bytes: ByteRange,
    /// Number of placements in which one of the program's requests fails.
    pub failing_placements: u64,
}

/// Simulates the alternatives for `device`; `None` without a trace, or if the model does not reproduce it.
pub(super) fn range(device: DeviceStudy<'_, '_>, dry_run: &DryRun) -> Option<RangeReport> {
    let inferred = device.inferred();
    let is_recorded = inferred.verification.recorded > 0;
    if !is_recorded || !inferred.verification.is_exact() {
        return None;
    }
    let mut hypothesis = inferred.hypothesis.clone();
    hypothesis.capacity = Some(dry_run.total_bytes.saturating_sub(dry_run.context_bytes));
    let program = device.program();
    let outcomes = PlacementOutcomes::simulate(program, &hypothesis);
    let workspaces = || dry_run.workspaces.iter().filter(|workspace| workspace.device == device.id());
    let with_workspaces = workspaces().map(|workspace| workspace.bytes).max().map(|largest| {
        let program = program.with_workspaces(&dry_run.workspaces);
        let with = PlacementOutcomes::simulate(&program, &hypothesis);
        WorkspacesReport {
            calls: workspaces().count() as u64,
            largest_bytes: largest,
            allocated_bytes: with.allocated,
            reserved_bytes: with.reserved,
            failing_placements: with.failing,
        }
    });
    Some(RangeReport {
        device: device.id(),
        placements: PLACEMENTS.len() as u64,
        failing_placements: outcomes.failing,
        reserved_bytes: outcomes.reserved,
        with_workspaces,
    })
}

/// The results over all placements.
struct PlacementOutcomes {
    allocated: u64,
    reserved: ByteRange,
    failing: u64,
}

impl PlacementOutcomes {
    fn simulate(program: &Program<'_>, hypothesis: &Hypothesis) -> Self {
        let capacity = hypothesis.capacity.unwrap_or_default();
        let simulated = PLACEMENTS.par_iter().map(|placement| {
            let device = SimulatedDevice::new(program.device.id(), capacity).with_placement(*placement);
            let done = simulate_on(program, hypothesis, device, |_, _| true, None);
            let statistics = done.allocator.statistics();
            let allocated = statistics.allocated_bytes.all.peak;
            (allocated, statistics.reserved_bytes.all.peak, !done.ooms.is_empty())
        });
        let simulated: Vec<(u64, u64, bool)> = simulated.collect();
        let reserved = || simulated.iter().map(|(_, reserved, _)| *reserved);
        Self {
            allocated: simulated.iter().map(|(allocated, ..)| *allocated).max().unwrap_or(0),
            reserved: ByteRange { minimum: reserved().min().unwrap_or(0), maximum: reserved().max().unwrap_or(0) },
            failing: simulated.iter().filter(|(.., fails)| *fails).count() as u64,
        }
    }
}

impl ByteRange {
    fn describe(self) -> String {
        if self.minimum == self.maximum {
            return size(self.maximum);
        }
        format!("between {} and {}", size(self.minimum), size(self.maximum))
    }
}

/// Describes that requests fail in `failing` of `placements`.
fn describe_failing(failing: u64, placements: u64) -> String {
    match failing {
        0 => "every request succeeds".to_owned(),
        _ if failing == placements => "a request fails".to_owned(),
        _ => format!("a request fails in {failing} of {placements} placements"),
    }
}

impl RangeReport {
    /// Whether every request succeeds under all placements, with and without cuDNN's workspaces.
    pub fn fits(&self) -> bool {
        self.failing_placements == 0 && self.with_workspaces.as_ref().is_none_or(|with| with.failing_placements == 0)
    }

    /// Describes the effect of placement; `None` if there is none.
    pub(super) fn describe_placements(&self) -> Option<String> {
        let reserved = self.reserved_bytes;
        (self.failing_placements > 0 || reserved.minimum < reserved.maximum).then(|| {
            format!(
                "the allocator picks among equal blocks by address, and a GPU assigns other addresses: over {} \
                 placements of memory device {} peaks at {} reserved, and {}",
                self.placements,
                self.device,
                reserved.describe(),
                describe_failing(self.failing_placements, self.placements)
            )
        })
    }

    /// Describes the effect of cuDNN's workspaces; `None` if there are none.
    pub(super) fn describe_workspaces(&self) -> Option<String> {
        let with = self.with_workspaces.as_ref()?;
        Some(format!(
            "with {} of the sizes that tensors and documented algorithms suggest (the largest {}) device {} peaks at \
             {} allocated, {} reserved, and {}",
            counted(with.calls, "workspace"),
            size(with.largest_bytes),
            self.device,
            size(with.allocated_bytes),
            with.reserved_bytes.describe(),
            describe_failing(with.failing_placements, self.placements)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, RangeReport};
    use crate::base::units::MIB;

    #[test]
    fn placements_are_described_if_they_make_a_difference() {
        let bytes = |min, max| ByteRange { minimum: min * MIB, maximum: max * MIB };
        let range = |failing_placements, reserved_bytes| RangeReport {
            device: 0,
            placements: 6,
            failing_placements,
            reserved_bytes,
            with_workspaces: None,
        };
        assert_eq!(range(0, bytes(100, 100)).describe_placements(), None);
        let text = range(0, bytes(100, 120)).describe_placements().unwrap();
        assert!(text.contains("between 100 MiB and 120 MiB reserved, and every request"), "{text}");
        let text = range(2, bytes(100, 100)).describe_placements().unwrap();
        assert!(text.contains("a request fails in 2 of 6 placements"), "{text}");
        assert!(!range(2, bytes(100, 100)).fits());
    }
}
