//! Why this rank: the rank to look at first, compared with the median of its peers.
//!
//! In: a row and a report of each device of a job. Out: [`RankDifference`], the cause with the strongest evidence: memory of
//! other processes on its GPU, growth that only it has, weights or optimizer state of another size, the first request of
//! the step that is larger than that of its peers, or else the line with most memory that they lack.

use serde::Serialize;

use super::device::DeviceReport;
use super::rank_row::{EQUAL_RATIO, RankRow, median};
use crate::base::units::ratio;
use crate::base::warning::words;
use crate::stacks::frames::CodeLocation;
use crate::study::attribution::{Category, Leaks};

/// A larger share of the rank's memory is a cause.
const MIN_SHARE: f64 = 0.05;
/// A request, or the state, of at least this multiple of the peers' is larger.
const MIN_LARGER: f64 = 1.1;

words! {
    /// How a rank differs from its peers
    pub enum DifferenceKind {
        /// Several ranks of a host use one GPU as their own
        SharedGpu = "shared-gpu",
        /// Other ranks hold memory on the GPU of this one
        ForeignMemory = "foreign-memory",
        /// Only this rank grows from step to step
        Growth = "growth",
        /// It has more parameters
        Parameters = "parameters",
        /// It has more optimizer state, and as many parameters
        OptimizerState = "optimizer-state",
        /// Its input is larger
        Input = "input",
        /// A request inside its forward pass is larger, although its input is not
        Routed = "routed",
        /// In this step it runs a line before the forward pass that no other rank runs, such as an evaluation
        Alone = "alone",
        /// It holds memory at a line where its peers hold less, or none
        Line = "line",
    }
}

/// How a rank, or several that are equal, differ from the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankDifference {
    /// The cause.
    pub kind: DifferenceKind,
    /// Indexes of the rows of these ranks, the one to look at first in front.
    pub rows: Vec<usize>,
    /// Number of peers.
    pub peers: u64,
    /// The line that shows it; absent if it is about no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<CodeLocation>,
    /// The use of most memory of the line; absent if it is not known, and for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Bytes of the rank: of the request, the state or the line; of memory of others, their sum.
    pub bytes: u64,
    /// The median of the same among its peers; 0 if most have none.
    pub peers_bytes: u64,
    /// Indexes of the rows of other ranks that hold memory on its GPU; empty for other kinds.
    pub foreign: Vec<usize>,
}

/// One device of a job.
pub(super) struct Peer<'r> {
    pub(super) row: &'r RankRow,
    pub(super) device: &'r DeviceReport,
}

impl Peer<'_> {
    fn allocated(&self) -> u64 {
        self.device.held().map_or(self.row.peak_allocated_bytes, |held| held.allocated_bytes)
    }

    /// The peak, or the larger sum of allocated memory and the failed request.
    fn demand(&self) -> u64 {
        let failed = self.device.ooms.last().map_or(0, |oom| oom.allocated_bytes.saturating_add(oom.requested_bytes));
        failed.max(self.row.peak_allocated_bytes)
    }

    /// Whether an optimizer has made its state before that moment.
    fn has_state(&self) -> bool {
        self.device.held().and_then(|held| held.step).is_some_and(|step| step > 0)
    }
}

/// How the ranks of the first of `groups`, which have equal rows, differ from the others. `devices` has the worst first.
pub(super) fn find_difference(
    devices: &[Peer<'_>],
    groups: &[Vec<usize>],
    outlier: Option<usize>,
) -> Option<RankDifference> {
    foreign_memory(devices).or_else(|| uneven_state(devices)).or_else(|| {
        let first =
            Some(0).filter(|index| devices.get(*index).is_some_and(|peer| peer.row.has_failed())).or(outlier)?;
        let rows = groups.iter().find(|group| group.contains(&first))?;
        // A rank that failed as well does not show what it would have held.
        let peers = (0..devices.len()).filter(|index| {
            !rows.contains(index)
                && devices[*index].row.is_own_device
                && (outlier == Some(first) || devices[*index].row.has_failed() != devices[first].row.has_failed())
        });
        let peers: Vec<&Peer<'_>> = peers.map(|index| &devices[index]).collect();
        let subject = &devices[first];
        let found = growth(subject, &peers)
            .or_else(|| larger_request(subject, &peers))
            .or_else(|| larger_line(subject, &peers))
            .filter(|_| !peers.is_empty())?;
        let rows = std::iter::once(first).chain(rows.iter().copied().filter(|row| *row != first)).collect();
        Some(RankDifference { rows, peers: peers.len() as u64, ..found })
    })
}

fn difference(kind: DifferenceKind, location: Option<CodeLocation>, [bytes, peers_bytes]: [u64; 2]) -> RankDifference {
    let (rows, foreign) = (Vec::new(), Vec::new());
    RankDifference { kind, rows, peers: 0, location, category: None, bytes, peers_bytes, foreign }
}

/// Ranks that hold memory on the GPU of another rank, or all on the same.
fn foreign_memory(devices: &[Peer<'_>]) -> Option<RankDifference> {
    devices.iter().enumerate().filter(|(_, peer)| peer.row.is_own_device).find_map(|(first, owner)| {
        let gpu = owner.row.gpu()?;
        let others = (0..devices.len()).filter(|index| devices[*index].row.rank != owner.row.rank);
        let on_gpu: Vec<usize> = others.filter(|index| devices[*index].row.gpu() == Some(gpu)).collect();
        let sharing: Vec<usize> = on_gpu.iter().copied().filter(|index| devices[*index].row.is_own_device).collect();
        let (kind, foreign) = if sharing.is_empty() {
            (DifferenceKind::ForeignMemory, on_gpu)
        } else {
            (DifferenceKind::SharedGpu, sharing)
        };
        let bytes =
            foreign.iter().fold(0, |sum: u64, index| sum.saturating_add(devices[*index].row.peak_reserved_bytes));
        let is_cause = !foreign.is_empty() && ratio(bytes, owner.row.peak_reserved_bytes) >= MIN_SHARE;
        let lines =
            foreign.iter().filter_map(|index| devices[*index].device.held()).flat_map(|held| &held.compared_lines);
        let location = lines.filter(|line| line.location.frame.is_some()).max_by_key(|line| line.bytes);
        let found = difference(kind, location.map(|line| line.location.clone()), [bytes, 0]);
        is_cause.then(|| RankDifference { rows: vec![first], peers: foreign.len() as u64, foreign, ..found })
    })
}

/// Parameters or optimizer state of different sizes: stages of a pipeline, or uneven shards.
fn uneven_state(devices: &[Peer<'_>]) -> Option<RankDifference> {
    let state = excess(devices, Category::OptimizerState, DifferenceKind::OptimizerState)?;
    excess(devices, Category::Parameters, DifferenceKind::Parameters).or(Some(state))
}

/// The devices that hold most of `category`, compared with those that hold notably less.
fn excess(devices: &[Peer<'_>], category: Category, kind: DifferenceKind) -> Option<RankDifference> {
    let comparable = devices.iter().enumerate().filter(|(_, peer)| peer.row.is_own_device && peer.has_state());
    let held = comparable.map(|(index, peer)| (index, peer.device.category_bytes(category)));
    let held: Vec<(usize, u64)> = held.collect();
    let (most, bytes) = held.iter().copied().max_by_key(|(index, bytes)| (*bytes, !index))?;
    let (peers, equal): (Vec<_>, Vec<_>) =
        held.into_iter().partition(|(_, other)| ratio(bytes, (*other).max(1)) >= MIN_LARGER);
    let usual = median(peers.iter().map(|(_, bytes)| *bytes));
    let is_cause = !peers.is_empty() && ratio(bytes - usual, devices[most].allocated()) >= 2.0 * MIN_SHARE;
    let rows: Vec<usize> = equal.into_iter().map(|(index, _)| index).collect();
    // Where ranks failed, the first of them is the one to look at.
    let is_wanted = rows.contains(&0) || !devices.iter().any(|peer| peer.row.has_failed());
    let found = difference(kind, None, [bytes, usual]);
    (is_cause && is_wanted).then_some(RankDifference { rows, peers: peers.len() as u64, ..found })
}

/// Growth of one rank alone.
fn growth(subject: &Peer<'_>, peers: &[&Peer<'_>]) -> Option<RankDifference> {
    let Leaks { suspects, bytes_per_step, .. } = &subject.device.leaks;
    let suspect = suspects.first()?;
    let usual = median(peers.iter().map(|peer| peer.device.leaks.bytes_per_step));
    let explains = match subject.device.ooms.last() {
        Some(oom) => subject.device.explaining_growth(oom).is_some(),
        None => subject.device.is_growth_notable(),
    };
    let is_cause = explains && ratio(*bytes_per_step, usual.max(1)) >= 2.0;
    is_cause.then(|| difference(DifferenceKind::Growth, Some(suspect.location.clone()), [*bytes_per_step, usual]))
}

/// The first request of the step that is larger than those of the peers at the same line in the same step.
fn larger_request(subject: &Peer<'_>, peers: &[&Peer<'_>]) -> Option<RankDifference> {
    let requests = &subject.device.step_requests;
    // Data comes before the first module runs; then only what modules request depends on it.
    let first_module = requests.lines.iter().position(|line| line.in_module).unwrap_or(requests.lines.len());
    let parameters = subject.device.category_bytes(Category::Parameters);
    let usual_parameters = median(peers.iter().map(|peer| peer.device.category_bytes(Category::Parameters)));
    // Other stages of a pipeline have other modules.
    let has_same_modules = ratio(parameters.abs_diff(usual_parameters), usual_parameters.max(1)) <= EQUAL_RATIO;
    let mut compared = requests.lines.iter().enumerate().filter(|(index, line)| {
        let runs_in_step = if line.in_module { has_same_modules } else { *index < first_module };
        runs_in_step && !is_constructor(&line.location)
    });
    compared.find_map(|(_, line)| {
        let sizes = peers.iter().filter_map(|peer| {
            let same = peer.device.step_requests.lines.iter().find(|other| other.location == line.location);
            same.and_then(|other| other.bytes_in(requests.step))
        });
        let sizes: Vec<u64> = sizes.collect();
        let (bytes, usual) = (line.bytes_in(requests.step)?, median(sizes.iter().copied()));
        if sizes.is_empty() && !line.in_module && !line.is_usual(requests) {
            return Some(difference(DifferenceKind::Alone, Some(line.location.clone()), [bytes, 0]));
        }
        let is_larger = sizes.len() * 2 >= peers.len() && usual > 0 && ratio(bytes, usual) >= MIN_LARGER;
        let kind = if line.in_module { DifferenceKind::Routed } else { DifferenceKind::Input };
        is_larger.then(|| difference(kind, Some(line.location.clone()), [bytes, usual]))
    })
}

fn is_constructor(location: &CodeLocation) -> bool {
    location.frame.as_ref().is_some_and(|frame| frame.name == "__init__")
}

/// The line that holds most beyond what the peers hold there.
fn larger_line(subject: &Peer<'_>, peers: &[&Peer<'_>]) -> Option<RankDifference> {
    let rows = subject.device.held()?.compared_lines.iter().filter(|row| row.location.frame.is_some());
    let compared = rows.map(|row| {
        let usual = median(peers.iter().map(|peer| bytes_at(peer, &row.location)));
        (row, bytes_at(subject, &row.location), usual)
    });
    // The first row of a line has most.
    let larger = compared.filter(|(_, bytes, usual)| bytes > usual).rev();
    let (row, bytes, usual) = larger.max_by_key(|(_, bytes, usual)| bytes - usual)?;
    let peak = median(peers.iter().map(|peer| peer.row.peak_allocated_bytes));
    let is_cause =
        ratio(bytes - usual, subject.allocated()) >= MIN_SHARE && ratio(subject.demand(), peak.max(1)) >= MIN_LARGER;
    let found = difference(DifferenceKind::Line, Some(row.location.clone()), [bytes, usual]);
    is_cause.then_some(RankDifference { category: row.category, ..found })
}

fn bytes_at(peer: &Peer<'_>, location: &CodeLocation) -> u64 {
    let rows = peer.device.held().into_iter().flat_map(|held| &held.compared_lines);
    rows.filter(|row| row.location == *location).fold(0, |sum: u64, row| sum.saturating_add(row.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::step_requests::LineRequests;
    use crate::analysis::step_requests::StepRequests;
    use crate::stacks::phases::Phase;
    use crate::study::attribution::{ByCategory, Confidence, LeakSuspect, Leaks, MemoryBreakdown};
    use crate::study::memory::{BlockSum, Share, TopRows};

    fn peers<'r>(rows: &'r [RankRow], devices: &'r [DeviceReport]) -> Vec<Peer<'r>> {
        rows.iter().zip(devices).map(|(row, device)| Peer { row, device }).collect()
    }

    #[test]
    fn memory_on_the_gpu_of_another_rank_is_a_cause_from_a_twentieth_on() {
        let devices = vec![DeviceReport::default(); 3];
        for (foreign_bytes, is_own_device, expected) in [
            (5, false, Some((DifferenceKind::ForeignMemory, vec![0], vec![2], 5))),
            (4, false, None),
            (90, true, Some((DifferenceKind::SharedGpu, vec![0], vec![2], 90))),
        ] {
            let foreign = RankRow { host_device: Some(0), is_own_device, ..RankRow::of_rank(1) };
            let rows = [(RankRow::of_rank(0), 100), (RankRow::of_rank(1), 90), (foreign, foreign_bytes)];
            let rows = rows.map(|(row, bytes)| RankRow { peak_reserved_bytes: bytes, ..row });
            let found = foreign_memory(&peers(&rows, &devices));
            assert_eq!(found.map(|found| (found.kind, found.rows, found.foreign, found.bytes)), expected);
        }
    }

    /// Memory of which a step holds `state` bytes.
    fn holding(step: u32, allocated_bytes: u64, state: u64) -> DeviceReport {
        let share = Share { bytes: state, blocks: 1, share_ratio: 0.0 };
        let state = ByCategory {
            category: Category::OptimizerState,
            share,
            confidence: Confidence::High,
            high_bytes: 0,
            known_bytes: 0,
            medium_bytes: 0,
        };
        let held = MemoryBreakdown {
            event: None,
            phase: Phase::Forward,
            step: Some(step),
            allocated_bytes,
            blocks: 1,
            by_category: vec![state],
            by_engine: Vec::new(),
            pools_for: Vec::new(),
            by_rule: Vec::new(),
            by_phase: Vec::new(),
            by_line: TopRows { rows: Vec::new(), rest: BlockSum::default() },
            by_variable: Vec::new(),
            compared_lines: Vec::new(),
            by_stack: TopRows { rows: Vec::new(), rest: BlockSum::default() },
            unused_graphs: None,
            kept_groups: Vec::new(),
        };
        DeviceReport { at_peak: Some(held), ..DeviceReport::default() }
    }

    #[test]
    fn a_rank_with_a_tenth_more_state_differs_from_those_that_have_state() {
        let rows: Vec<RankRow> = (0..4).map(RankRow::of_rank).collect();
        for (allocated, state, last_step, expected, why) in [
            (200, 220, 0, Some((vec![0], 2, [220, 200])), "a tenth more"),
            (200, 220, 1, Some((vec![0], 3, [220, 200])), "it has lost its state"),
            (201, 220, 0, None, "no tenth of the memory"),
            (100, 219, 0, None, "no tenth more"),
        ] {
            let usual = holding(1, 200, 200);
            let devices = [holding(1, allocated, state), usual.clone(), usual, holding(last_step, 100, 0)];
            let found = uneven_state(&peers(&rows, &devices));
            assert!(found.as_ref().is_none_or(|found| found.kind == DifferenceKind::OptimizerState), "{why}");
            let found = found.map(|found| (found.rows, found.peers, [found.bytes, found.peers_bytes]));
            assert_eq!(found, expected, "{why}");
        }
    }

    #[test]
    fn the_first_failure_is_the_one_to_look_at() {
        for (first_failed, expected) in [(2, Some(vec![1])), (1, None), (0, None)] {
            let rows =
                [0, 1].map(|rank| RankRow { oom_count: u64::from(rank >= first_failed), ..RankRow::of_rank(rank) });
            let found = uneven_state(&peers(&rows, &[holding(1, 200, 200), holding(1, 200, 220)]));
            assert_eq!(found.map(|found| found.rows), expected, "{first_failed}");
        }
    }

    #[test]
    fn a_request_is_compared_with_those_of_the_same_line() {
        let rows = [0, 1, 2].map(RankRow::of_rank);
        for (bytes, in_module, steps, others, expected) in [
            (220, false, 1, Some(200), Some((DifferenceKind::Input, [220, 200]))),
            (219, false, 1, Some(200), None),
            (220, true, 1, Some(200), Some((DifferenceKind::Routed, [220, 200]))),
            (220, false, 3, None, Some((DifferenceKind::Alone, [220, 0]))),
            // Half of the steps run it.
            (220, false, 2, None, None),
            (220, true, 3, None, None),
        ] {
            let devices = [Some(bytes), others, others].map(|bytes| requesting(bytes, in_module, steps));
            let peers = peers(&rows, &devices);
            let found = larger_request(&peers[0], &[&peers[1], &peers[2]]);
            assert_eq!(found.map(|found| (found.kind, [found.bytes, found.peers_bytes])), expected, "{bytes} {steps}");
        }
    }

    /// A line that requests `bytes`, if any does.
    fn requesting(bytes: Option<u64>, in_module: bool, steps: usize) -> DeviceReport {
        let lines = bytes.into_iter().map(|bytes| LineRequests {
            location: CodeLocation::default(),
            in_module,
            bytes: [(0, bytes)].into(),
        });
        let step_requests = StepRequests { step: 0, steps, lines: lines.collect() };
        DeviceReport { step_requests, ..DeviceReport::default() }
    }

    /// A device of 1000 bytes on which a line that holds `bytes` grows by `bytes_per_step`.
    fn growing_device(bytes_per_step: u64, bytes: u64) -> DeviceReport {
        let suspect = LeakSuspect {
            location: CodeLocation::default(),
            operation: None,
            since_step: 0,
            steps: 9,
            every_steps: 1,
            bytes_per_step,
            blocks_per_step: 1.0,
            bytes,
            blocks: 9,
        };
        let leaks = Leaks { bytes_per_step, suspects: vec![suspect], ..Leaks::default() };
        let mut device = DeviceReport { leaks, ..DeviceReport::default() };
        device.peak.allocated_bytes = 1000;
        device
    }

    #[test]
    fn notable_growth_at_twice_the_rate_of_the_peers_is_a_cause() {
        let rows = [0, 1, 2].map(RankRow::of_rank);
        for (rate, bytes, usual, expected) in [
            (20, 1000, 10, Some([20, 10])),
            (19, 1000, 10, None), // not twice as fast
            (20, 0, 10, None),    // it holds little
            (2, 1000, 0, Some([2, 0])),
            (1, 1000, 0, None),
        ] {
            let devices = [(rate, bytes), (usual, 0), (usual, 0)].map(|(rate, bytes)| growing_device(rate, bytes));
            let peers = peers(&rows, &devices);
            let found = growth(&peers[0], &[&peers[1], &peers[2]]).map(|found| [found.bytes, found.peers_bytes]);
            assert_eq!(found, expected, "{rate} {bytes} {usual}");
        }
    }
}
