//! Collects the failed requests of a trace during a replay, then reports them.

use super::failed::FailureFacts;
use super::oom::{FailureContext, OomReport};
use super::remedies::remedies;
use crate::base::units::counted;
use crate::base::warning::{Code, Warnings};
use crate::replay::literal::{ReplayStep, Tracking};
use crate::snapshot::Action;
use crate::study::DeviceStudy;
use crate::study::attribution::MemoryBreakdown;
use crate::whatif::forecast::{Forecast, ForecastLength};

/// Number of failures at the end of a trace for which every block is examined.
const DESCRIBED_OOMS: usize = 16;

/// Reports the last failed requests of `device`, oldest first, the very last with remedies. Warns about those that are
/// left out.
pub fn failures(device: DeviceStudy<'_, '_>, warnings: &mut Warnings) -> Vec<OomReport> {
    let mut failures = FailureCollector::new(device);
    device.replay(Tracking::Totals, |step| failures.observe(step));
    failures.reports(None, false, warnings)
}

/// Collects failed requests.
pub(crate) struct FailureCollector<'s, 'a> {
    device: DeviceStudy<'s, 'a>,
    /// Number of failed requests that are still to come.
    remaining: usize,
    /// The last failed requests so far, oldest first.
    failed: Vec<FailureFacts>,
}

impl<'s, 'a> FailureCollector<'s, 'a> {
    /// A collector for the window of `device`.
    pub(crate) fn new(device: DeviceStudy<'s, 'a>) -> Self {
        Self { device, remaining: device.failed_requests().count(), failed: Vec::new() }
    }

    /// Call for each step of the replay. A replay may start over.
    #[inline]
    pub(crate) fn observe(&mut self, step: &ReplayStep<'_>) {
        if step.at.is_none_or(|(_, action)| action == Action::Oom) {
            self.observe_failure(step);
        }
    }

    fn observe_failure(&mut self, step: &ReplayStep<'_>) {
        let Some((index, _)) = step.at else {
            *self = Self::new(self.device);
            return;
        };
        if self.device.window().contains(&index) {
            debug_assert!(self.remaining > 0, "a replay passes every entry once, from its start");
            self.remaining = self.remaining.saturating_sub(1);
            // A program that retries forever fails a million times.
            if self.remaining < self.device.stacks().max_failures {
                let is_late = self.remaining < DESCRIBED_OOMS;
                let mut request = self.device.device().entry(index);
                request.pool = request.pool.or(step.failure_pool);
                self.failed.push(FailureFacts::recorded(self.device, step, (index, request), is_late));
            }
        }
    }

    /// Reports the failures, oldest first. `held` attributes the memory at the last failure; `grows` if a line grows
    /// with every step. Warns about failures that are left out, and if no remedies can be reported.
    pub(crate) fn reports(
        self,
        mut held: Option<MemoryBreakdown>,
        grows: bool,
        warnings: &mut Warnings,
    ) -> Vec<OomReport> {
        let Self { device, failed, .. } = self;
        let earlier = failed.len().saturating_sub(DESCRIBED_OOMS);
        let ends_trace = !failed.is_empty() && device.ends_with_failure();
        let forecast = if ends_trace { Forecast::from_device(device, ForecastLength::UntilFull(None)) } else { None };
        let trials = remedies(device, &failed[earlier..], forecast.as_ref());
        let is_reproduced = trials.is_ok();
        let trials = trials.unwrap_or_else(|divergence| {
            let (id, entry, why) = (device.id(), divergence.entry_index, divergence.describe());
            warnings.add(
                Code::ModelParted,
                format!(
                    "GPU {id}: the model diverges from the recording at entry {entry}, so no \
                     remedies are reported and verdicts are less certain: {why}"
                ),
            );
            Vec::new()
        });
        let mut trials = trials.into_iter();
        let last = failed.len().saturating_sub(1);
        let ooms = failed.into_iter().enumerate().map(|(index, failed)| {
            // Earlier failures, and those of a long trace, have no trials.
            let trials = if index < earlier { None } else { trials.next() };
            let is_last = index == last;
            let context = FailureContext {
                trials: trials.unwrap_or_default(),
                ends_trace: is_last && ends_trace,
                forecast: forecast.as_ref().filter(|_| is_last),
                held: held.take_if(|_| is_last),
                is_reproduced,
                grows,
            };
            OomReport::new(device, failed, context)
        });
        let ooms: Vec<OomReport> = ooms.collect();
        warn_about_failures(device, &ooms, warnings);
        ooms
    }
}

/// Warns about unknown pools of failed requests, and about failures that are left out.
fn warn_about_failures(device: DeviceStudy<'_, '_>, ooms: &[OomReport], warnings: &mut Warnings) {
    let (memory, oom_count) = (device.memory(), device.failed_requests().count() as u64);
    let device = device.id();
    if ooms.iter().any(|oom| oom.pool_id.is_none() && oom.kept_back_bytes.is_none())
        && memory.pools.iter().any(|pool| pool.pool_id != [0, 0])
    {
        warnings.add(
            Code::FailedPoolNotRecorded,
            format!(
                "GPU {device}: this release does not record the pool of a failed request. The \
                 default pool is assumed, although there are private pools (CUDA graphs, MemPool); \
                 no remedy is reported for a request on one of their streams"
            ),
        );
    }
    if oom_count > ooms.len() as u64 {
        let (all, described) = (counted(oom_count, "failed request"), ooms.len());
        warnings.add(Code::ManyOoms, format!("GPU {device} has {all}: the last {described} are described"));
    }
}
