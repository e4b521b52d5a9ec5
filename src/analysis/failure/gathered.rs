//! Failed requests of a trace: gathered as a replay passes them, then reported.

use super::failed::Failed;
use super::oom::{Found, OomReport};
use super::remedies::remedies;
use crate::base::units::counted;
use crate::base::warning::{Code, Warnings};
use crate::replay::literal::{ReplayStep, Tracking};
use crate::snapshot::Action;
use crate::study::DeviceStudy;
use crate::study::attribution::MemoryBreakdown;

/// Failed requests described, the last ones: a program that retries for ever fails a million times.
const MAX_OOMS: usize = 1000;
/// Failures at the end of a trace for which every block is looked at.
const DESCRIBED_OOMS: usize = 16;

/// The failed requests of `device`, oldest first: the last ones, the very last with remedies. What is not
/// said of them goes to `warnings`.
pub fn failures(device: DeviceStudy<'_, '_>, warnings: &mut Warnings) -> Vec<OomReport> {
    let mut failures = Failures::of(device);
    device.replay(Tracking::Totals, |step| failures.see(step));
    failures.reports(None, false, warnings)
}

/// Gathers them.
pub(crate) struct Failures<'s, 'a> {
    device: DeviceStudy<'s, 'a>,
    /// How many are still to come.
    left: usize,
    /// The last of them, oldest first.
    failed: Vec<Failed>,
}

impl<'s, 'a> Failures<'s, 'a> {
    /// Of the part of the trace that is looked at.
    pub(crate) fn of(device: DeviceStudy<'s, 'a>) -> Self {
        Self { device, left: device.failed_requests().count(), failed: Vec::new() }
    }

    /// A moment of the replay.
    #[inline]
    pub(crate) fn see(&mut self, step: &ReplayStep<'_>) {
        let Some((index, entry)) = step.entry else {
            *self = Self::of(self.device);
            return;
        };
        if entry.action == Action::Oom && self.device.window().contains(&index) {
            debug_assert!(self.left > 0, "a replay passes every entry once, from its start");
            self.left = self.left.saturating_sub(1);
            if self.left < MAX_OOMS {
                let is_late = self.left < DESCRIBED_OOMS;
                self.failed.push(Failed::recorded(self.device, step, (index, entry), is_late));
            }
        }
    }

    /// The reports, oldest first; that of the last failure says where the memory was `held`; some line `grows`
    /// with every step, or none. What is not said of them, and why no remedy is claimed, goes to `warnings`.
    pub(crate) fn reports(
        self,
        mut held: Option<MemoryBreakdown>,
        grows: bool,
        warnings: &mut Warnings,
    ) -> Vec<OomReport> {
        let Self { device, failed, .. } = self;
        let earlier = failed.len().saturating_sub(DESCRIBED_OOMS);
        let ends_trace = !failed.is_empty() && device.ends_with_failure();
        let goes_on = if ends_trace { device.continuation() } else { None };
        let tried = remedies(device, &failed[earlier..], goes_on.as_ref());
        let is_reproduced = tried.is_ok();
        let tried = tried.unwrap_or_else(|parted| {
            let (id, entry, why) = (device.id(), parted.entry_index, parted.describe());
            warnings.add(
                Code::ModelParted,
                format!(
                    "device {id}: the model diverges from the recording at entry {entry}, so no \
                     remedies are reported and verdicts are less certain: {why}"
                ),
            );
            Vec::new()
        });
        let mut tried = tried.into_iter();
        let last = failed.len().saturating_sub(1);
        let report = |(index, failed): (usize, Failed)| {
            let tried = if index < earlier { None } else { tried.next() };
            let is_last = index == last;
            let found = Found {
                tried: tried.unwrap_or_default(),
                ends_trace: is_last && ends_trace,
                goes_on: goes_on.as_ref().filter(|_| is_last),
                held: held.take_if(|_| is_last),
                is_reproduced,
                grows,
            };
            OomReport::of(device, failed, found)
        };
        let ooms: Vec<OomReport> = failed.into_iter().enumerate().map(report).collect();
        warn_of_failures(device, &ooms, warnings);
        ooms
    }
}

/// Adds to `warnings` what is not said of the failed requests of `device`, described in `ooms`.
fn warn_of_failures(device: DeviceStudy<'_, '_>, ooms: &[OomReport], warnings: &mut Warnings) {
    let (memory, oom_count) = (device.memory(), device.failed_requests().count() as u64);
    let device = device.id();
    if ooms.iter().any(|oom| oom.pool_id.is_none() && oom.kept_back_bytes.is_none())
        && memory.pools.iter().any(|pool| pool.pool_id != [0, 0])
    {
        warnings.add(
            Code::FailedPoolNotRecorded,
            format!(
                "device {device}: this release does not record the pool of a failed request. The \
                 default pool is assumed, although there are private pools (CUDA graphs, MemPool); \
                 no remedy is reported for a request on one of their streams"
            ),
        );
    }
    if oom_count > MAX_OOMS as u64 {
        warnings.add(
            Code::ManyOoms,
            format!(
                "device {device} has {}: the last {MAX_OOMS} are described",
                counted(oom_count, "failed request")
            ),
        );
    }
}
