//! Predicts the requests of a program after the failed request that ended its recording.
//!
//! In: the loop that the program was in ([`crate::study::iterations`]). Out: a [`Forecast`]: the recorded program, then
//! the failed request once more, the rest of its iteration, one more iteration, and further ones while memory grows; the
//! simulator replays it under any settings, capacity or change. [`Forecast::outcome`] is the outcome of such a replay. Sizes
//! follow from those of earlier iterations (`history`, `laws`), frees from where earlier iterations freed (`steady`).
//! During the first optimizer step the state still to come follows from the parameters' sizes (`first_step`).
//!
//! A prediction is an assumption about the program. Requests without an established law are marked as unsure, and those
//! that nothing shows are not predicted: see [`WhyUnknown`].

mod first_step;
mod history;
mod laws;
mod program_index;
mod steady;
mod writer;

use self::first_step::predict_first_step;
use self::program_index::ProgramIndex;
use self::steady::{Parts, SteadyPredictor};
use self::writer::ContinuationWriter;
use crate::allocator::conf::Settings;
use crate::replay::model::Simulation;
use crate::replay::ops::{OperationKind, Program};
use crate::study::DeviceStudy;
use crate::study::iterations::{
    CallSites, Growth, GrowthKind, GrowthRate, Iterations, ProgramLoops, Requests, UnusualInput,
};
use crate::whatif::outcome::{JobOutcome, WhyUnknown};

/// Fewer iterations that each leave more may be the layers of a model.
const MIN_RISING: usize = 4;

/// A program that goes on after its last request failed.
#[derive(Debug, Clone)]
pub(crate) struct Forecast<'a> {
    /// The recorded operations. Then the failed request again, now served, and the predicted operations. Each added
    /// request has an entry index of its own, counted on from the failed one.
    pub(crate) program: Program<'a>,
    /// For each operation of `program`, the recorded one that it is or repeats.
    pub(crate) sources: Vec<u32>,
    /// Entry index of the failed request.
    pub(crate) failed: usize,
    /// Number of predicted requests after the failed one.
    pub(crate) requests: usize,
    parts: Parts,
    /// Entry index of the request with which most is allocated, up to the end of one more iteration.
    pub(crate) peak_entry: usize,
    /// Live bytes with the failed request, in blocks of 512 bytes.
    pub(crate) live_bytes: u64,
    /// Peak of the live bytes after it, in the sure requests up to the end of one more iteration.
    pub(crate) sure_peak_bytes: u64,
    /// The growth from iteration to iteration.
    pub(crate) growth: Option<Growth>,
    /// The input of the iteration that failed, if that is why it needs more than those before.
    pub(crate) unusual_input: Option<UnusualInput>,
}

/// How far to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForecastLength {
    /// Up to the end of one more iteration.
    OneMore,
    /// If memory grows, until it exceeds these bytes, or without them the memory within reach.
    UntilFull(Option<u64>),
}

impl<'a> Forecast<'a> {
    /// The forecast after the failed request that ended the trace of `device`; `None` if requests follow it.
    pub(crate) fn from_device(device: DeviceStudy<'_, 'a>, length: ForecastLength) -> Option<Self> {
        let end = device.failed_requests().next_back().filter(|_| device.ends_with_failure())?;
        let (loops, sites) = ProgramLoops::from_trace(device.device(), device.stacks(), Some(end));
        let reach = match length {
            ForecastLength::OneMore => None,
            ForecastLength::UntilFull(bytes) => Some(bytes.or(device.inferred_capacity()).unwrap_or(u64::MAX)),
        };
        let (program, growth) = (device.program(), device.growth());
        let failed = loops.requests.count().checked_sub(1)?;
        let index = ProgramIndex::new(program, &loops.requests)?;
        let mut writer = ContinuationWriter::new(program, &index, &loops.requests);
        let live_bytes = writer.live_bytes;
        let is_complete = device.lost_history().is_none();
        let first_step = if loops.inner.is_some() || loops.iterations.is_none() && is_complete {
            predict_first_step(&index, &loops.requests, loops.inner, &sites, &mut writer)
        } else {
            Err(WhyUnknown::NoLoop)
        };
        let parts = match (first_step, &loops.iterations) {
            (Ok(parts), _) => parts,
            (_, Some(iterations)) => {
                let reach = reach.filter(|_| loops.growth(&|_| None).is_some());
                let predictor = SteadyPredictor::new(&loops.requests, &index, iterations, &sites, &mut writer);
                match predictor.map(|predictor| predictor.predict(&sites, reach)) {
                    Some(parts) if may_end(iterations, &loops.requests, &sites) => {
                        let limit = Some(WhyUnknown::FirstIteration);
                        Parts { sure: parts.sure.min(parts.rest), limit, ..parts }
                    }
                    Some(parts) => parts,
                    None => Parts { limit: Some(WhyUnknown::NewRequests), ..Parts::default() },
                }
            }
            (Err(why), None) => Parts { limit: Some(why), ..Parts::default() },
        };
        let steps = Some(&device.phases().steps).filter(|_| is_complete);
        let input = loops.unusual_input(|entry| steps?.step_at(entry), |entry| device.code_location(entry));
        let requests = writer.len() - 1 - failed;
        let failed_entry = loops.requests.entry(failed);
        let ContinuationWriter { program, sources, .. } = writer;
        let (mut peak_entry, mut peak_bytes, mut sure_peak_bytes) = (failed_entry + 1, live_bytes, live_bytes);
        program.walk_requests(&Settings::default(), |request| {
            let (entry, live) = (request.entry_index as usize, request.live_bytes);
            let number = entry.checked_sub(failed_entry + 1).filter(|number| *number <= parts.one_more);
            if number.is_some_and(|number| number <= parts.sure) {
                sure_peak_bytes = live.max(sure_peak_bytes);
            }
            if number.is_some() && live > peak_bytes {
                (peak_entry, peak_bytes) = (entry, live);
            }
        });
        let is_replaced = growth.is_some_and(|growth| growth.kind == GrowthKind::Replaced);
        Some(Self {
            program,
            sources,
            failed: failed_entry,
            requests,
            parts,
            peak_entry,
            live_bytes,
            sure_peak_bytes,
            growth: growth.cloned(),
            // A tensor that replaces itself by a larger one is no input.
            unusual_input: input.filter(|_| !is_replaced),
        })
    }

    /// Number of requests after the failed one that are sure, up to the end of one more iteration.
    pub(crate) fn sure_requests(&self) -> usize {
        self.parts.sure.min(self.parts.one_more)
    }

    /// Whether each iteration makes a single request, so that nothing shows how many follow.
    pub(crate) fn is_single_request(&self) -> bool {
        self.parts.one_more == self.parts.rest + 1
    }

    /// Whether it covers the rest of the iteration and one more.
    pub(crate) fn covers_one_more(&self) -> bool {
        self.parts.one_more > self.parts.rest && self.parts.limit.is_none_or(|why| why == WhyUnknown::IrregularSizes)
    }

    /// Whether it predicts one more iteration, sure or not.
    pub(crate) fn has_one_more(&self) -> bool {
        self.parts.one_more > self.parts.rest && self.parts.limit != Some(WhyUnknown::FirstIteration)
    }

    /// The recorded entry that the request with entry index `entry` is or repeats.
    pub(crate) fn source_entry(&self, entry: usize) -> Option<usize> {
        let operations = &self.program.operations;
        let at = operations.partition_point(|operation| (operation.entry_index as usize) < entry);
        let offset = operations[at..].iter().position(|operation| {
            operation.entry_index as usize == entry && matches!(operation.kind, OperationKind::Alloc { .. })
        });
        let op = at + offset?;
        Some(operations[self.sources[op] as usize].entry_index as usize)
    }
}

/// Whether the loop may be one over the layers of a first forward pass: few iterations, each of which leaves more, without
/// a backward pass or an optimizer.
fn may_end(iterations: &Iterations, requests: &Requests, sites: &CallSites) -> bool {
    if iterations.is_inner || iterations.complete() >= MIN_RISING {
        return false;
    }
    let starts = iterations.starts();
    let is_rising = starts.windows(2).all(|pair| requests.live_before(pair[0]) < requests.live_before(pair[1]));
    is_rising
        && (starts[0]..iterations.start()).all(|request| {
            let site = requests.site(request);
            sites.has_python(site) && !sites.is_in_optimizer(site)
        })
}

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
        if let Some(request) = failure.filter(|request| !self.is_estimate(*request, growth)) {
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
                let (headroom_bytes, sizes_vary) = (Some(headroom_bytes), limit.is_some());
                JobOutcome::GoesOn { headroom_bytes, sizes_vary, survived_failures }
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
