//! The fate of a program after a failed request that is served.

use super::Forecast;
use crate::replay::model::Simulation;
use crate::study::DeviceStudy;
use crate::study::iterations::GrowthRate;
use crate::whatif::outcome::{JobOutcome, WhyUnknown};

/// Small differences between iterations add up: further requests are predicted to within one or two iterations only.
const SURE_REQUESTS: usize = 12_000;

impl Forecast<'_> {
    /// The number of the predicted request that is the first of `failed`, the entry indexes and bytes of the requests
    /// that fail in a replay of [`Self::program`]. 0 is the repetition of the failed request.
    pub(crate) fn first_failure(&self, failed: &[(usize, u64)]) -> Option<usize> {
        let later = failed.iter().map(|(entry, _)| *entry).find(|entry| *entry > self.failed)?;
        Some(later - self.failed - 1)
    }

    /// Whether a request fails in `simulation` in the rest of the iteration or in one more; `None` if these are unknown.
    pub(crate) fn fails_soon(&self, simulation: &Simulation) -> Option<bool> {
        match self.first_failure(&simulation.ooms).filter(|request| *request <= self.parts.one_more) {
            Some(request) => (request <= self.parts.sure).then_some(true),
            None => self.covers_one_more().then_some(false),
        }
    }

    /// The entries after which to measure headroom: the failed request, and the one with which most is allocated up to
    /// the end of one more iteration.
    pub(crate) fn headroom_entries(&self) -> [usize; 2] {
        [self.failed + 1, self.peak_entry]
    }

    /// The outcome of `simulation`, a replay of [`Self::program`] with the headroom at [`Self::headroom_entries`], in
    /// which the failed request is served.
    pub(crate) fn outcome(&self, device: DeviceStudy<'_, '_>, simulation: &Simulation) -> JobOutcome {
        let headroom = self.headroom_entries().iter().filter_map(|entry| simulation.headroom.get(entry)).min();
        let growth = self.growth.as_ref().map(|growth| growth.rate);
        self.outcome_with(device, &simulation.ooms, headroom.copied().unwrap_or(0), growth)
    }

    /// The same for a changed program: the entry indexes and bytes of the requests that fail in its replay, the headroom
    /// when most is allocated, and the growth that remains.
    pub(crate) fn outcome_with(
        &self,
        device: DeviceStudy<'_, '_>,
        failed: &[(usize, u64)],
        headroom_bytes: u64,
        growth: Option<GrowthRate>,
    ) -> JobOutcome {
        let failure = self.first_failure(failed).filter(|request| *request > 0);
        let is_estimate = |request: &usize| self.is_estimate(*request, growth);
        if let Some(request) = failure.filter(|request| !is_estimate(request)) {
            return self.failure(device, request);
        }
        match (self.parts.limit, growth) {
            (Some(why), _) if why != WhyUnknown::IrregularSizes => JobOutcome::NotKnown { why },
            (_, Some(growth)) => {
                let by_headroom = 1 + headroom_bytes / growth.lasting_bytes().max(1);
                let iterations = match failure {
                    _ if !growth.is_steady() => by_headroom,
                    Some(request) => self.iterations_until(request),
                    None => by_headroom.max(self.iterations_until(self.requests)),
                };
                JobOutcome::FailsAgain {
                    after_requests: iterations
                        .saturating_mul(self.period() as u64)
                        .saturating_add(self.parts.rest as u64),
                    steps_later: iterations,
                    sure: false,
                    location: Box::default(),
                }
            }
            (limit, None) => {
                let survived_failures = failed.iter().filter(|(entry, _)| *entry < self.failed).count() as u64;
                JobOutcome::GoesOn {
                    headroom_bytes: Some(headroom_bytes),
                    sizes_vary: limit.is_some(),
                    survived_failures,
                }
            }
        }
    }

    /// Whether the failure of predicted `request` says only that memory grows: it is in a later iteration, and these vary.
    fn is_estimate(&self, request: usize, growth: Option<GrowthRate>) -> bool {
        let varies = self.parts.limit == Some(WhyUnknown::IrregularSizes);
        growth.is_some_and(|growth| request > self.parts.one_more && (varies || !growth.is_steady()))
    }

    fn period(&self) -> usize {
        (self.parts.one_more - self.parts.rest).max(1)
    }

    /// The number of iterations between the one that failed and that of the predicted request `number`.
    fn iterations_until(&self, number: usize) -> u64 {
        number.checked_sub(self.parts.rest + 1).map_or(0, |beyond| 1 + (beyond / self.period()) as u64)
    }

    fn failure(&self, device: DeviceStudy<'_, '_>, number: usize) -> JobOutcome {
        if let Some(why) = self.parts.limit.filter(|_| number > self.parts.sure) {
            return JobOutcome::NotKnown { why };
        }
        let location = self.source_entry(self.failed + 1 + number).map(|entry| device.code_location(entry));
        JobOutcome::FailsAgain {
            after_requests: (number - 1) as u64,
            steps_later: self.iterations_until(number),
            sure: number <= SURE_REQUESTS && !self.parts.is_rough,
            location: Box::new(location.unwrap_or_default()),
        }
    }
}
