//! The fate of a program after a failed request that is served.

use serde::Serialize;

use super::Forecast;
use super::unknown::WhyUnknown;
use crate::base::warning::words;
use crate::replay::model::Simulation;
use crate::stacks::frames::CodeLocation;
use crate::study::DeviceStudy;
use crate::study::iterations::{Growth, GrowthRate};

/// Small differences between iterations add up: further requests are predicted to within one or two iterations only.
const SURE_REQUESTS: usize = 12_000;

words! {
    /// When a program fails again.
    pub enum FailsIn {
        /// In the rest of the iteration whose request failed
        ThisIteration = "this-iteration",
        /// In the iteration after it
        NextIteration = "next-iteration",
        /// Later, because memory grows from iteration to iteration
        LaterIteration = "later-iteration",
    }
}

/// The fate of a program after a failed request that is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum ForecastVerdict {
    /// The rest of its iteration and one more are served.
    GoesOn {
        /// The largest further request that would be served when most is allocated, in bytes.
        headroom_bytes: u64,
        /// Sizes vary from iteration to iteration without a rule, so that a larger input than all so far may fail.
        sizes_vary: bool,
    },
    /// A later request fails.
    FailsAgain {
        /// Number of requests that are served after the failed one.
        after_requests: u64,
        /// When it fails.
        fails_in: FailsIn,
        /// Number of iterations between that of the failed request and this one.
        iterations_later: u64,
        /// Whether all requests up to it were predicted by established laws and replayed. Otherwise their number is an
        /// estimate.
        sure: bool,
        /// The line whose request fails; without a frame if it was not replayed.
        location: Box<CodeLocation>,
    },
    /// The recording does not show it.
    Unknown {
        /// Why.
        why: WhyUnknown,
    },
}

impl Forecast<'_> {
    /// The number of the predicted request that is the first of `failed`, the entry indexes and bytes of the requests
    /// that fail in a replay of [`Self::program`]. 0 is the repetition of the failed request.
    pub(crate) fn first_failure(&self, failed: &[(usize, u64)]) -> Option<usize> {
        let later = failed.iter().map(|(entry, _)| *entry).find(|entry| *entry > self.failed)?;
        Some(later - self.failed - 1)
    }

    /// Whether a request fails in `simulation` in the rest of the iteration or in one more; `None` if these are unknown.
    pub(crate) fn fails_soon(&self, simulation: &Simulation) -> Option<bool> {
        match self.first_failure(&simulation.ooms).filter(|request| *request <= self.one_more) {
            Some(request) => (request <= self.sure).then_some(true),
            None => self.covers_one_more().then_some(false),
        }
    }

    /// The entries after which to measure headroom: the failed request, and the one with which most is allocated up to
    /// the end of one more iteration.
    pub(crate) fn headroom_entries(&self) -> [usize; 2] {
        [self.failed + 1, self.peak_entry]
    }

    /// The fate of the program in `simulation`, a replay of [`Self::program`] with the headroom at
    /// [`Self::headroom_entries`], in which the failed request is served.
    pub(crate) fn verdict(&self, device: DeviceStudy<'_, '_>, simulation: &Simulation) -> ForecastVerdict {
        let headroom = self.headroom_entries().iter().filter_map(|entry| simulation.headroom.get(entry)).min();
        let growth = self.growth.as_ref().map(Growth::rate);
        self.verdict_with(device, &simulation.ooms, headroom.copied().unwrap_or(0), growth)
    }

    /// The same for a changed program: the entry indexes and bytes of the requests that fail in its replay, the headroom
    /// when most is allocated, and the growth that remains.
    pub(crate) fn verdict_with(
        &self,
        device: DeviceStudy<'_, '_>,
        failed: &[(usize, u64)],
        headroom_bytes: u64,
        growth: Option<GrowthRate>,
    ) -> ForecastVerdict {
        let failure = self.first_failure(failed).filter(|request| *request > 0);
        let is_estimate = |request: &usize| self.is_estimate(*request, growth);
        if let Some(request) = failure.filter(|request| !is_estimate(request)) {
            return self.failure(device, request);
        }
        match (self.limit, growth) {
            (Some(why), _) if why != WhyUnknown::IrregularSizes => ForecastVerdict::Unknown { why },
            (_, Some(growth)) => {
                let by_headroom = 1 + headroom_bytes / growth.lasting_bytes().max(1);
                let iterations = match failure {
                    _ if !growth.is_steady() => by_headroom,
                    Some(request) => self.iterations_until(request),
                    None => by_headroom.max(self.iterations_until(self.requests)),
                };
                ForecastVerdict::FailsAgain {
                    after_requests: iterations.saturating_mul(self.period() as u64).saturating_add(self.rest as u64),
                    fails_in: FailsIn::LaterIteration,
                    iterations_later: iterations,
                    sure: false,
                    location: Box::default(),
                }
            }
            (limit, None) => ForecastVerdict::GoesOn { headroom_bytes, sizes_vary: limit.is_some() },
        }
    }

    /// Whether the failure of predicted `request` says only that memory grows: it is in a later iteration, and these vary.
    fn is_estimate(&self, request: usize, growth: Option<GrowthRate>) -> bool {
        let varies = self.limit == Some(WhyUnknown::IrregularSizes);
        growth.is_some_and(|growth| request > self.one_more && (varies || !growth.is_steady()))
    }

    fn period(&self) -> usize {
        (self.one_more - self.rest).max(1)
    }

    /// The number of iterations between the one that failed and that of the predicted request `number`.
    fn iterations_until(&self, number: usize) -> u64 {
        number.checked_sub(self.rest + 1).map_or(0, |beyond| 1 + (beyond / self.period()) as u64)
    }

    fn failure(&self, device: DeviceStudy<'_, '_>, number: usize) -> ForecastVerdict {
        let iterations_later = self.iterations_until(number);
        if let Some(why) = self.limit.filter(|_| number > self.sure) {
            return ForecastVerdict::Unknown { why };
        }
        let stacks = device.stacks();
        let stack = |entry| device.device().entry(entry).extended_stack;
        let location = self.source_entry(self.failed + 1 + number).map(stack);
        let location = location.map(|stack| stacks.code_location(stacks.line_id(stack)));
        ForecastVerdict::FailsAgain {
            after_requests: (number - 1) as u64,
            fails_in: match iterations_later {
                0 => FailsIn::ThisIteration,
                1 => FailsIn::NextIteration,
                _ => FailsIn::LaterIteration,
            },
            iterations_later,
            sure: number <= SURE_REQUESTS,
            location: Box::new(location.unwrap_or_default()),
        }
    }
}
