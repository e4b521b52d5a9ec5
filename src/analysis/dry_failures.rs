//! The failed requests of a dry run, and how the program went on after them.

use std::collections::BTreeSet;

use super::dry_verdict::{FailedRequest, ProcessFacts, Retry};
use super::running_calls::live_blocks;

use crate::replay::literal::Tracking;
use crate::snapshot::{Action, Device, DryRun, ReadValue};
use crate::stacks::frames::LineId;
use crate::study::{DeviceStudy, Study};

/// The facts about failed requests on devices with `usable_bytes`.
pub(super) fn failures(study: &Study<'_>, dry_run: &DryRun, usable_bytes: u64) -> ProcessFacts<'static> {
    let devices: Vec<DeviceFailures> = study.devices().map(DeviceFailures::from_trace).collect();
    let count: usize = devices.iter().map(|device| device.count).sum();
    // The recorder counts also those after the program switched the history off.
    let is_complete = count as u64 >= dry_run.failure_count;
    let has_recovered = is_complete && devices.iter().all(|device| device.are_served_later);
    let traced = study.devices().zip(&devices).filter_map(|(device, failures)| Some((device, failures.last?))).last();
    let minimum_bytes = traced.map_or(0, |(device, entry)| minimum_bytes(device.device(), entry, dry_run));
    let traced = traced.map(|(device, entry)| {
        let (stack, bytes) = (device.device().stack(entry), device.device().entry(entry).size);
        (stack, bytes, has_recovered.then(|| retry(device, entry)))
    });
    let recorded = dry_run.failures.last();
    let failed =
        traced.or(recorded.map(|failure| (failure.stack, failure.bytes, None))).map(|(stack, bytes, retry)| {
            // The trace has no stack for a backward pass; the recorder has that of the thread that waits for it.
            let location = stack.map(|stack| study.stacks().location_of(stack));
            let location = location.filter(|location| location.frame.is_some());
            let location = location.or_else(|| Some(study.stacks().location_of(recorded?.stack?)));
            FailedRequest { location: location.unwrap_or_default(), bytes, retry }
        });
    ProcessFacts { failed, has_recovered, fails_at_least: minimum_bytes > usable_bytes, ..ProcessFacts::default() }
}

/// A lower bound of the memory that the failed request needs: without blocks after the first result of assumed maximum
/// size, which may depend on it, and 0 for the request itself if it may, too.
fn minimum_bytes(device: Device<'_>, failed_entry: usize, dry_run: &DryRun) -> u64 {
    let at_most = dry_run.reads.iter().filter(|read| read.value == ReadValue::Maximum);
    let first_us = at_most.map(|read| read.first_us).min().unwrap_or(u64::MAX);
    let live = live_blocks(device, 0..failed_entry, |request| request.time_us < first_us);
    let failed = device.entry(failed_entry);
    live.into_iter().sum::<u64>().saturating_add(if failed.time_us < first_us { failed.size } else { 0 })
}

/// The failed requests of a device.
struct DeviceFailures {
    count: usize,
    /// Entry of the last.
    last: Option<usize>,
    /// Each line with a failure was served after its last one.
    are_served_later: bool,
}

impl DeviceFailures {
    fn from_trace(study: DeviceStudy<'_, '_>) -> Self {
        let (device, stacks) = (study.device(), study.stacks());
        let failed: Vec<usize> = device.failed_requests().collect();
        let first = failed.first().copied().unwrap_or(device.len());
        let mut unserved: BTreeSet<Option<LineId>> = BTreeSet::new();
        for entry in first..device.len() {
            let line = device.stack(entry).map(|stack| stacks.line_id(stack));
            match device.action(entry) {
                Some(Action::Oom) => _ = unserved.insert(line),
                Some(Action::Alloc) => _ = unserved.remove(&line),
                _ => {}
            }
        }
        Self { count: failed.len(), last: failed.last().copied(), are_served_later: unserved.is_empty() }
    }
}

/// The program after the failure at `failed_entry`, which is the last on `device`.
fn retry(device: DeviceStudy<'_, '_>, failed_entry: usize) -> Retry {
    let (mut allocated, mut reserved) = (0, 0);
    let mut is_after = false;
    device.replay(Tracking::Totals, |step| {
        is_after |= step.at.is_some_and(|(entry, _)| entry > failed_entry);
        if is_after {
            let totals = step.tiling.totals();
            (allocated, reserved) = (totals.allocated.max(allocated), totals.reserved.max(reserved));
        }
    });
    Retry { allocated_bytes: allocated, reserved_bytes: reserved }
}
