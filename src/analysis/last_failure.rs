//! The last failed request of a device: the evidence about it, its conclusion, and what to do.

use super::advice::{Advice, Evidence, advise, explaining_growth};
use super::cures::{Cure, CureHolder, find_cures_by_stacks};
use super::device::DeviceReport;
use super::in_parts::{call_in_parts, large_value_of};
use super::local_tensors::LocalTensors;
use super::running_calls::RunningCalls;
use super::statements::{exception_keeper, kept_by_statements};
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::OomReport;
use crate::study::DeviceStudy;
use crate::study::attribution::Leaks;
use crate::whatif::program::{CureReplay, ProgramRow, find_best_changes, replay_without_group};
use crate::whatif::{TriedOn, TriedRow, sort_tried};

/// While a snapshot is taken, memory changes by at most one part in this number.
const MAX_CHANGED_PARTS: u64 = 20;

/// Adds what follows from the evidence about the last failed request of `device` to its report.
pub(super) fn explain_last_failure(report: &mut DeviceReport, device: DeviceStudy<'_, '_>) {
    let Some((oom, failed)) = report.ooms.last().zip(device.failed_requests().next_back()) else { return };
    let (leaks, kept_by) = (&report.leaks, report.kept_by.as_ref());
    let allocated_bytes = report.memory.allocated_bytes;
    let running = RunningCalls::new(device, failed);
    let by_text = if kept_by.is_none() { kept_by_statements(oom, leaks, &running) } else { None };
    // Other threads go on while a snapshot is taken.
    let is_at_failure = allocated_bytes.abs_diff(oom.allocated_bytes) <= allocated_bytes / MAX_CHANGED_PARTS;
    let local_tensors = LocalTensors::at_failure(device, oom.requested_bytes);
    let (in_parts, parts_replayed) = call_in_parts(oom, &running).unzip();
    let large_value = large_value_of(oom, &running, local_tensors.as_ref());
    // Where names show no cure, the program needs the memory.
    let by_calls = if kept_by.is_none() { cure_by_calls(device, oom) } else { None };
    let (by_calls, calls_replayed) = by_calls.unzip();
    let by_calls = by_calls.map(|cure| with_exception_keeper(device, cure));
    let best_changes = if needs_program_change(oom) { find_best_changes(device) } else { None };
    let replayed = [calls_replayed.flatten(), parts_replayed.flatten()].into_iter().flatten();
    let changes: Vec<ProgramRow> = replayed.chain(best_changes.unwrap_or_default()).collect();
    let training_tensors = device.text().training_tensors();
    let evidence = Evidence {
        kept: kept_by.filter(|_| is_at_failure).or(by_text.as_ref()),
        by_calls: by_calls.as_ref(),
        in_parts: in_parts.as_ref(),
        large_value: large_value.as_ref(),
        completed_steps: report.steps.completed,
        leaks,
        changes: &changes,
        is_capacity_known: device.capacity().is_some(),
        training_tensors: training_tensors.as_ref(),
        has_grad: device.text().has_grad(&running.lines),
    };
    let (advice, tried_on) = (advise(oom, evidence), TriedOn::from_device(device));
    report.conclusion = Some(conclude(oom, &advice, leaks));
    report.tried = tried(tried_on, oom, &changes);
    report.local_tensors = local_tensors;
    report.advice = vec![advice];
    report.tried_on = Some(tried_on);
    report.changes = changes;
}

impl DeviceReport {
    /// The report on failed request `index` of `ooms`, as if it were the last. The snapshot shows variables, and the
    /// attribution the holders, of the last failure only: the advice on an earlier one does without.
    #[must_use]
    pub fn at_failure(&self, index: usize) -> Self {
        let mut report = self.clone();
        let later = self.ooms.len().saturating_sub(index + 1);
        if later == 0 {
            return report;
        }
        report.ooms.truncate(index + 1);
        (report.later_failures, report.kept_by, report.local_tensors) = (later as u64, None, None);
        report.changes.clear();
        let Some((oom, on)) = report.ooms.last().zip(self.tried_on) else { return report };
        let evidence = Evidence {
            kept: None,
            by_calls: None,
            in_parts: None,
            large_value: None,
            completed_steps: self.steps.completed,
            leaks: &self.leaks,
            changes: &[],
            is_capacity_known: self.capacity_bytes.is_some(),
            training_tensors: None,
            has_grad: true,
        };
        let advice = advise(oom, evidence);
        report.conclusion = Some(conclude(oom, &advice, &self.leaks));
        report.advice = vec![advice];
        report.tried = tried(on, oom, &[]);
        report
    }
}

/// If `cure` is about the memory of a failed call, adds the variable that keeps its exception.
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
        let row = match replay_without_group(device, group) {
            CureReplay::NotTried => return Some((cure, None)),
            CureReplay::Served(row) => Some(*row),
            CureReplay::NotServed => None,
        };
        let fails_again = row.as_ref().is_none_or(|row| row.then.fails_again());
        if fails_again && group.growth.is_some() {
            growing = growing.or(Some((cure, None)));
        } else if let Some(row) = row {
            let replayed = Some((Cure { then: Some(row.then.clone()), ..cure }, Some(row)));
            if !fails_again {
                return replayed;
            }
            serving = serving.or(replayed);
        }
    }
    growing.or(serving)
}

/// The one-word reason for `oom`, the last failure of a device. It agrees with `advice`, the first recommendation: free
/// bytes alone may blame a layout that no setting mends.
fn conclude(oom: &OomReport, advice: &Advice, leaks: &Leaks) -> Verdict {
    if explaining_growth(oom, leaks).is_some() {
        return Verdict::Growth;
    }
    let is_served = oom.remedies.iter().any(|remedy| remedy.avoids_oom);
    let is_apart = matches!(oom.verdict, Verdict::Fragmentation | Verdict::OtherStream);
    match advice {
        Advice::Cure(cure) if cure.is_growth() => Verdict::Growth,
        Advice::Cure(_) => Verdict::Capacity,
        Advice::Shapes(..) if is_apart => Verdict::Capacity,
        Advice::NothingHelps(..) | Advice::Guess(..) | Advice::LimitInput(_) if is_apart && !is_served => {
            Verdict::Capacity
        }
        Advice::GoOn(_) if oom.verdict == Verdict::Capacity => Verdict::Fragmentation,
        _ => oom.verdict,
    }
}

/// The replays for `oom`, the last failed request.
fn tried(on: TriedOn, oom: &OomReport, changes: &[ProgramRow]) -> Vec<TriedRow> {
    let settings = oom.remedies.iter().map(|remedy| {
        let outcome = (&remedy.then, remedy.peak_of_trace_bytes);
        on.settings(remedy.settings_change(), outcome, None)
    });
    sort_tried(settings.chain(changes.iter().map(|row| on.change(row, true))).collect())
}

/// Whether only a change to the program helps: it holds too much, or no replayed setting serves `oom`.
fn needs_program_change(oom: &OomReport) -> bool {
    match oom.verdict {
        Verdict::Capacity => true,
        Verdict::Fragmentation => !oom.remedies.is_empty() && !oom.remedies.iter().any(|remedy| remedy.then.goes_on()),
        _ => false,
    }
}
