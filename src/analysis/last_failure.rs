//! The last failed request of a device: the evidence about it, its conclusion, and what to do.

use super::advice::{Advice, Evidence, advise};
use super::conclusion::conclude;
use super::cures::{Cure, CureHolder, find_cures_by_stacks};
use super::in_parts::{call_in_parts, large_value_of};
use super::local_tensors::LocalTensors;
use super::running_calls::RunningCalls;
use super::statements::{exception_keeper, kept_by_statements};
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{OomReport, Remedy};
use crate::study::DeviceStudy;
use crate::study::attribution::Leaks;
use crate::study::variables::KeptReport;
use crate::whatif::program::{CureReplay, ProgramRow, find_best_changes, replay_without_group};
use crate::whatif::{TriedOn, TriedRow, sort_tried};

/// While a snapshot is taken, memory changes by at most one part in this number.
const MAX_CHANGED_PARTS: u64 = 20;

/// The memory of a device, as far as it is evidence about its last failure.
#[derive(Clone, Copy)]
pub(super) struct KnownMemory<'a> {
    pub(super) leaks: &'a Leaks,
    /// The variables that the recorder named at the snapshot.
    pub(super) kept_by: Option<&'a KeptReport>,
    /// Allocated bytes at the snapshot.
    pub(super) allocated_bytes: u64,
    /// Number of complete steps.
    pub(super) completed_steps: u64,
}

/// The last failed request of a device, with what follows from the evidence.
pub(super) struct LastFailure {
    pub(super) local_tensors: Option<LocalTensors>,
    pub(super) advice: Advice,
    pub(super) conclusion: Verdict,
    /// The changes to the program that serve it in a replay, the best first.
    pub(super) changes: Vec<ProgramRow>,
    pub(super) tried_on: TriedOn,
    pub(super) tried: Vec<TriedRow>,
}

impl LastFailure {
    /// The last of `ooms`, the failed requests of `device`.
    pub(super) fn find(device: DeviceStudy<'_, '_>, ooms: &[OomReport], memory: KnownMemory<'_>) -> Option<Self> {
        let (oom, failed) = ooms.last().zip(device.failed_requests().next_back())?;
        let KnownMemory { leaks, kept_by, allocated_bytes, completed_steps } = memory;
        let running = RunningCalls::new(device, failed, device.text());
        let by_text = || kept_by_statements(device, oom, leaks, &running);
        let by_text = if kept_by.is_none() { by_text() } else { None };
        // Other threads go on while a snapshot is taken.
        let is_at_failure = allocated_bytes.abs_diff(oom.allocated_bytes) <= allocated_bytes / MAX_CHANGED_PARTS;
        let local_tensors = LocalTensors::at_failure(device, oom.requested_bytes);
        let (in_parts, parts_replayed) = call_in_parts(device, oom, &running).unzip();
        let large_value = large_value_of(device, oom, &running, local_tensors.as_ref());
        // Where names show no cure, the program needs the memory.
        let by_calls = if kept_by.is_none() { cure_by_calls(device, oom) } else { None };
        let (by_calls, calls_replayed) = by_calls.unzip();
        let by_calls = by_calls.map(|cure| with_exception_keeper(device, cure));
        let best_changes = if needs_program_change(oom) { find_best_changes(device) } else { None };
        let replayed = [calls_replayed.flatten(), parts_replayed.flatten()].into_iter().flatten();
        let changes: Vec<ProgramRow> = replayed.chain(best_changes.unwrap_or_default()).collect();
        let evidence = Evidence {
            kept: kept_by.filter(|_| is_at_failure).or(by_text.as_ref()),
            by_calls: by_calls.as_ref(),
            in_parts: in_parts.as_ref(),
            large_value: large_value.as_ref(),
            completed_steps,
            leaks,
            changes: &changes,
            is_capacity_known: device.capacity().is_some(),
            has_grad: device.text().has_grad(&running.lines),
        };
        let advice = advise(oom, evidence);
        let tried_on = TriedOn::from_device(device);
        Some(Self {
            local_tensors,
            conclusion: conclude(oom, &advice, leaks),
            advice,
            tried_on,
            tried: tried(tried_on, oom, &changes),
            changes,
        })
    }
}

/// For what the call of a failed request left, the variable that keeps its exception.
fn with_exception_keeper(device: DeviceStudy<'_, '_>, cure: Cure) -> Cure {
    match &cure.holder {
        CureHolder::Calls(group) if group.of_failed_call => {
            let keeper = exception_keeper(device, group);
            cure.of_exception(keeper)
        }
        _ => cure,
    }
}

/// The change that stacks show for the last failed request of `device`, and its replay: the first after which the program
/// does not fail again, else the first for memory that grows by every measure, else the first that serves the request.
fn cure_by_calls(device: DeviceStudy<'_, '_>, oom: &OomReport) -> Option<(Cure, Option<ProgramRow>)> {
    let (mut growing, mut serving) = (None, None);
    for (cure, group) in find_cures_by_stacks(oom) {
        let grows = group.growth.is_some();
        match replay_without_group(device, group) {
            CureReplay::NotTried => return Some((cure, None)),
            CureReplay::Served(row) => {
                let fails_later = row.then.fails_again();
                let cure = Cure { then: Some(row.then.clone()), ..cure };
                if !fails_later {
                    return Some((cure, Some(*row)));
                }
                if grows {
                    growing = growing.or(Some((Cure { then: None, ..cure }, None)));
                } else {
                    serving = serving.or(Some((cure, Some(*row))));
                }
            }
            CureReplay::NotServed if grows => growing = growing.or(Some((cure, None))),
            CureReplay::NotServed => {}
        }
    }
    growing.or(serving)
}

/// The replays for `oom`, the last failed request.
pub(super) fn tried(on: TriedOn, oom: &OomReport, changes: &[ProgramRow]) -> Vec<TriedRow> {
    let settings = oom.remedies.iter().map(|remedy| {
        let outcome = (&remedy.then, remedy.peak_of_trace_bytes);
        on.settings(remedy.settings_change(), outcome, None)
    });
    let changes = changes.iter().map(|row| on.change(row, true));
    sort_tried(settings.chain(changes).collect())
}

/// Whether only a change to the program helps: it holds too much, or no replayed setting serves `oom`.
fn needs_program_change(oom: &OomReport) -> bool {
    let lasts = |remedy: &Remedy| remedy.then.goes_on();
    match oom.verdict {
        Verdict::Capacity => true,
        Verdict::Fragmentation => !oom.remedies.is_empty() && !oom.remedies.iter().any(lasts),
        _ => false,
    }
}
