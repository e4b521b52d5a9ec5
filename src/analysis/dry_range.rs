//! What else a dry run could come to: with other addresses from the driver, and with workspaces of cuDNN.
//!
//! Both are replays of the recorded calls on a simulated device; the program runs once. A driver's choice of addresses
//! decides which of two equal free blocks PyTorch takes, so it changes what is reserved, never what is asked for.

use rayon::prelude::*;
use serde::Serialize;

use crate::allocator::device::{Placement, SimulatedDevice};
use crate::base::units::{counted, size};
use crate::replay::model::{Hypothesis, simulate_on};
use crate::replay::ops::Program;
use crate::snapshot::DryRun;
use crate::study::DeviceStudy;

/// Ways in which a driver could place memory; the stub does it the first way.
const PLACEMENTS: [Placement; 6] = [
    Placement::Lowest,
    Placement::Highest,
    Placement::Scattered(1),
    Placement::Scattered(2),
    Placement::Scattered(3),
    Placement::Scattered(4),
];

/// What one device could come to.
#[derive(Debug, Clone, Serialize)]
pub struct RangeReport {
    /// Device number.
    pub device: u64,
    /// Ways of placing memory that were tried.
    pub placements: u64,
    /// In how many of them a request fails.
    pub failing_placements: u64,
    /// The most that is reserved, over them.
    pub reserved_bytes: Span,
    /// The same with workspaces of cuDNN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_workspaces: Option<WorkspacesReport>,
}

/// From the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// With workspaces as large as its tensors and the documented algorithms of cuDNN suggest.
#[derive(Debug, Clone, Serialize)]
pub struct WorkspacesReport {
    /// How many there are.
    pub calls: u64,
    /// The largest of them.
    pub largest_bytes: u64,
    /// Peak of allocated memory.
    pub allocated_bytes: u64,
    /// Peak of reserved memory.
    pub reserved_bytes: Span,
    /// In how many placements a request of the program fails.
    pub failing_placements: u64,
}

/// What `device` could come to; `None` where nothing was recorded, or the model does not reproduce it.
pub(super) fn range(device: DeviceStudy<'_, '_>, told: &DryRun) -> Option<RangeReport> {
    let inferred = device.inferred();
    let is_recorded = inferred.verification.recorded > 0;
    if !is_recorded || !inferred.verification.is_exact() {
        return None;
    }
    let mut hypothesis = inferred.hypothesis.clone();
    hypothesis.capacity = Some(told.total_bytes.saturating_sub(told.context_bytes));
    let program = device.program();
    let tried = Tried::of(program, &hypothesis);
    let own = || told.workspaces.iter().filter(|workspace| workspace.device == device.id());
    let with_workspaces = own().map(|workspace| workspace.bytes).max().map(|largest| {
        let with = Tried::of(&program.with_workspaces(&told.workspaces), &hypothesis);
        WorkspacesReport {
            calls: own().count() as u64,
            largest_bytes: largest,
            allocated_bytes: with.allocated,
            reserved_bytes: with.reserved,
            failing_placements: with.failing,
        }
    });
    Some(RangeReport {
        device: device.id(),
        placements: PLACEMENTS.len() as u64,
        failing_placements: tried.failing,
        reserved_bytes: tried.reserved,
        with_workspaces,
    })
}

/// What came of all placements.
struct Tried {
    allocated: u64,
    reserved: Span,
    failing: u64,
}

impl Tried {
    fn of(program: &Program<'_>, hypothesis: &Hypothesis) -> Self {
        let capacity = hypothesis.capacity.unwrap_or_default();
        let simulated = PLACEMENTS.par_iter().map(|placement| {
            let device =
                SimulatedDevice::new(program.device.id(), capacity).with_placement(*placement);
            let done = simulate_on(program, hypothesis, device, |_, _| true, None);
            let statistics = done.allocator.statistics();
            let allocated = statistics.allocated_bytes.all.peak;
            (allocated, statistics.reserved_bytes.all.peak, !done.ooms.is_empty())
        });
        let simulated: Vec<(u64, u64, bool)> = simulated.collect();
        let reserved = || simulated.iter().map(|(_, reserved, _)| *reserved);
        Self {
            allocated: simulated.iter().map(|(allocated, ..)| *allocated).max().unwrap_or(0),
            reserved: Span {
                least: reserved().min().unwrap_or(0),
                most: reserved().max().unwrap_or(0),
            },
            failing: simulated.iter().filter(|(.., fails)| *fails).count() as u64,
        }
    }
}

impl Span {
    fn told(self) -> String {
        if self.least == self.most {
            return size(self.most);
        }
        format!("between {} and {}", size(self.least), size(self.most))
    }
}

/// What fails, of `tried` placements.
fn failing(fails: u64, tried: u64) -> String {
    match fails {
        0 => "every request is served".to_owned(),
        _ if fails == tried => "a request fails".to_owned(),
        _ => format!("a request fails in {fails} of {tried} placements"),
    }
}

impl RangeReport {
    /// Whether all is served, wherever memory lies and whatever cuDNN takes within its rule.
    pub fn fits(&self) -> bool {
        self.failing_placements == 0
            && self.with_workspaces.as_ref().is_none_or(|with| with.failing_placements == 0)
    }

    /// What the driver's addresses make of it, where they make a difference.
    pub(super) fn of_placements(&self) -> Option<String> {
        (self.failing_placements > 0 || self.reserved_bytes.least < self.reserved_bytes.most).then(|| {
            format!(
                "equal choices go by addresses, which a GPU lends in another order: over {} placements of memory device {} \
                 peaks {} reserved, and {}",
                self.placements,
                self.device,
                self.reserved_bytes.told(),
                failing(self.failing_placements, self.placements)
            )
        })
    }

    /// What workspaces of cuDNN make of it.
    pub(super) fn of_workspaces(&self) -> Option<String> {
        let with = self.with_workspaces.as_ref()?;
        Some(format!(
            "with {} as large as its tensors and documented algorithms suggest (the largest {}) device {} peaks at {} allocated, {} \
             reserved, and {}",
            counted(with.calls, "workspace"),
            size(with.largest_bytes),
            self.device,
            size(with.allocated_bytes),
            with.reserved_bytes.told(),
            failing(with.failing_placements, self.placements)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{RangeReport, Span};
    use crate::base::units::MIB;

    #[test]
    fn placements_are_told_where_they_make_a_difference() {
        let span = |least, most| Span { least: least * MIB, most: most * MIB };
        let range = |failing_placements, reserved_bytes| RangeReport {
            device: 0,
            placements: 6,
            failing_placements,
            reserved_bytes,
            with_workspaces: None,
        };
        assert_eq!(range(0, span(100, 100)).of_placements(), None);
        let told = range(0, span(100, 120)).of_placements().unwrap();
        assert!(told.contains("between 100 MiB and 120 MiB reserved, and every request"), "{told}");
        let told = range(2, span(100, 100)).of_placements().unwrap();
        assert!(told.contains("a request fails in 2 of 6 placements"), "{told}");
        assert!(!range(2, span(100, 100)).fits());
    }
}
