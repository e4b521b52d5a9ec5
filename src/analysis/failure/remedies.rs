//! Replays failed requests under other settings.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use itertools::Itertools as _;
use rayon::prelude::*;
use serde::Serialize;

use super::failed::FailureFacts;
use crate::allocator::conf::{ConfChange, Settings};
use crate::allocator::device::UNBOUNDED;
use crate::replay::model::{Divergence, Hypothesis, Simulation, simulate_with_headroom};
use crate::study::{DeviceStudy, MAX_CONTINUED_ENTRIES};
use crate::whatif::forecast::Forecast;
use crate::whatif::{Candidate, JobOutcome, Overrides, candidates, free_of, hypothesis_with, settings_order};

/// A replay under other settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Settings added to or replacing the recorded ones, as in `PYTORCH_CUDA_ALLOC_CONF`; `default` removes all of them.
    pub settings: String,
    /// The recorded options that were removed, separated by commas; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without: Option<String>,
    /// Whether the request succeeds.
    pub avoids_oom: bool,
    /// Peak of reserved bytes up to this request.
    pub peak_reserved_bytes: u64,
    /// Peak of reserved bytes of the whole trace, as `oomscope whatif` shows it.
    #[serde(skip)]
    pub(crate) peak_of_trace_bytes: u64,
    /// Number of device allocations up to this request.
    pub device_allocs: u64,
    /// Number of device frees up to this request.
    pub device_frees: u64,
    /// The largest further request like it that would be served after it, in bytes, to within 2 MiB or 1/256; absent if
    /// it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_bytes: Option<u64>,
    /// Whether a request of the rest of the failed iteration, or of one more, fails; `None` if these are unknown.
    #[serde(skip)]
    pub fails_soon: Option<bool>,
    /// The outcome of the job under these settings.
    pub then: JobOutcome,
}

impl Remedy {
    /// The change to the recorded settings, in the syntax of `oomscope whatif --set`.
    pub fn settings_change(&self) -> String {
        let removed = self.without.iter().flat_map(|options| options.split(',')).map(|key| format!("{key}:default"));
        let set = (!self.settings.is_empty()).then(|| self.settings.clone());
        set.into_iter().chain(removed).collect::<Vec<_>>().join(",")
    }

    /// Settings that get further have more.
    fn gain(&self) -> (bool, (u8, u64)) {
        (self.avoids_oom, self.then.reach())
    }
}

/// The replay under the recorded settings, for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RecordedReplay {
    /// Allocated bytes at the failure plus the request, with blocks rounded to 512 bytes.
    pub needed_bytes: u64,
    /// Maximum bytes that the process could reserve: the memory within reach.
    pub reach_bytes: u64,
    /// Number of device allocations.
    pub device_allocs: u64,
    /// Number of device frees.
    pub device_frees: u64,
    /// Bytes that were reserved before the first entry, which every replay keeps in place.
    pub reserved_before_bytes: u64,
    /// Whether the original request may have been smaller than the recorded, rounded size.
    pub is_rounded_up: bool,
    /// Number of replayed settings without a result: it depends on whether a request was made in a graph capture or
    /// in `use_mem_pool`, which is not recorded.
    pub undecided: u64,
    /// Whether allocated memory and the request exceed the memory within reach.
    pub no_setting_helps: bool,
}

/// Results of replaying a failed request under other settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TrialResults {
    pub(super) as_recorded: Option<RecordedReplay>,
    pub(super) remedies: Vec<Remedy>,
}

impl TrialResults {
    /// Whether a setting serves the request.
    pub(super) fn has_remedy(&self) -> bool {
        self.remedies.iter().any(|remedy| remedy.avoids_oom)
    }

    /// Whether a setting serves the request and the next step.
    pub(super) fn has_lasting_remedy(&self) -> bool {
        self.remedies.iter().any(|remedy| remedy.fails_soon == Some(false))
    }

    /// Whether every setting that serves the request fails in the next step.
    pub(super) fn only_postpones(&self) -> bool {
        let mut serving = self.remedies.iter().filter(|remedy| remedy.avoids_oom);
        self.has_remedy() && serving.all(|remedy| remedy.fails_soon == Some(true))
    }
}

/// Replays other settings for each of `ooms`, failures of `device`. A failure that the replay under the recorded
/// settings does not reproduce gets no remedies. The last one is also replayed with the program's forecast.
///
/// # Errors
/// The first divergence, when the model does not reproduce the recorded run.
pub(super) fn remedies<'s, 'a>(
    device: DeviceStudy<'s, 'a>,
    ooms: &[FailureFacts],
    forecast: Option<&Forecast<'a>>,
) -> Result<Vec<TrialResults>, &'s Divergence> {
    if ooms.is_empty() || device.device().len() > MAX_CONTINUED_ENTRIES {
        return Ok(Vec::new());
    }
    let verification = &device.inferred().verification;
    if !verification.is_exact() {
        return verification.divergence.as_ref().map_or(Ok(Vec::new()), Err);
    }
    let trials = SettingTrials::new(device, ooms, forecast);
    let mut is_pool_open = false;
    let results = ooms.iter().map(|oom| {
        // After a request of an unknown pool the replay may differ from the recording, so no remedy is reported.
        is_pool_open |= oom.pool_guess.is_open;
        trials.at(oom, is_pool_open)
    });
    Ok(results.collect())
}

/// Replays of a device's calls under the recorded and other settings. Where unrecorded graph captures matter, each is
/// replayed with and without captures.
struct SettingTrials<'f, 'a> {
    /// The requests after the last failure.
    forecast: Option<&'f Forecast<'a>>,
    /// Under the recorded settings.
    controls: Vec<Simulation>,
    /// The entries that fail in each of `controls`.
    failed: Vec<BTreeSet<usize>>,
    /// Under other settings, with the job's outcome.
    tried: Vec<(Candidate, Vec<(Simulation, JobOutcome)>)>,
    /// Allocated bytes plus the request, by the entry of each failure.
    needed: BTreeMap<usize, u64>,
    /// Maximum bytes that the process could reserve.
    reach: u64,
    reserved_before: u64,
    is_rounded_up: bool,
}

impl<'f, 'a> SettingTrials<'f, 'a> {
    fn new(device: DeviceStudy<'_, 'a>, ooms: &[FailureFacts], forecast: Option<&'f Forecast<'a>>) -> Self {
        let ooms = ooms.iter().map(|oom| oom.entry);
        let headroom_entries = ooms.chain(forecast.iter().flat_map(|known| known.headroom_entries())).collect();
        let as_recorded = hypothesis_with(device, &Overrides::default());
        let controls = simulate_job(device, forecast, &as_recorded, &headroom_entries);
        let controls: Vec<Simulation> = controls.into_iter().map(|(done, _)| done).collect();
        let failed = controls.iter().map(|done| done.ooms.iter().map(|(event, _)| *event).collect());
        let limit = device.inferred_limit().map_or(as_recorded.limit, |limits| Some(*limits.end()));
        let tried = candidates(device)
            .into_par_iter()
            .map(|candidate| {
                let overrides = Overrides { settings: Some(candidate.settings.clone()), ..Overrides::default() };
                let hypothesis = hypothesis_with(device, &overrides);
                (candidate, simulate_job(device, forecast, &hypothesis, &headroom_entries))
            })
            .collect();
        let divisions = as_recorded.settings.roundup_power2_divisions;
        Self {
            forecast,
            failed: failed.collect(),
            tried,
            // No setting rounds to less than the default settings do.
            needed: device.program().bytes_needed_by_failed(&Settings::default()).into_iter().collect(),
            reach: [as_recorded.capacity, limit].into_iter().flatten().min().unwrap_or(UNBOUNDED),
            reserved_before: device.reserved_before(),
            // Only the rounded size of a failed request is recorded; other settings may round it to less.
            is_rounded_up: divisions.iter().any(|d| *d > 1),
            controls,
        }
    }

    /// The results for `oom`.
    fn at(&self, oom: &FailureFacts, is_pool_open: bool) -> TrialResults {
        let entry = oom.entry;
        let needed_bytes = self.needed.get(&entry).copied().unwrap_or(0); // 0 if the program lacks it
        let no_setting_helps = self.exceeds_reach(needed_bytes);
        if !self.failed.iter().all(|failed| failed.contains(&entry))
            // In a graph capture the allocator does not wait for pending blocks, which the replay cannot know.
            || oom.has_pending()
            || (is_pool_open && !no_setting_helps)
        {
            return TrialResults::default();
        }
        let control = self.controls.first().and_then(|done| done.at_failures.get(&entry));
        let control = control.copied().unwrap_or_default(); // every control fails at `entry`
        let tried = if is_pool_open { &[] } else { self.tried.as_slice() };
        let mut remedies: Vec<Remedy> = tried
            .iter()
            .filter_map(|(candidate, ways)| {
                let ways = ways.iter().zip(&self.failed);
                let mut rows = ways.map(|(tried, failed)| self.remedy(candidate, tried, entry, failed));
                let first = rows.next()?;
                rows.all(|row| row == first).then_some(first)
            })
            .collect();
        let as_recorded = Some(RecordedReplay {
            needed_bytes,
            reach_bytes: self.reach,
            device_allocs: control.device_allocs,
            device_frees: control.device_frees,
            reserved_before_bytes: self.reserved_before,
            is_rounded_up: self.is_rounded_up,
            undecided: (tried.len() - remedies.len()) as u64,
            no_setting_helps,
        });
        // Settings that get further come first.
        let lowest = remedies.iter().map(|r| (r.gain(), r.peak_of_trace_bytes)).into_grouping_map().min();
        remedies.sort_by_key(|r| {
            let lowest = lowest.get(&r.gain()).copied().unwrap_or(0); // every remedy has a group
            let calls = r.device_allocs.saturating_add(r.device_frees);
            (Reverse(r.gain()), settings_order(&r.settings_change(), r.peak_of_trace_bytes, lowest), calls)
        });
        TrialResults { as_recorded, remedies }
    }

    /// Whether no setting can serve a request that needs `needed` bytes.
    fn exceeds_reach(&self, needed: u64) -> bool {
        !self.is_rounded_up && needed > self.reach
    }

    fn remedy(
        &self,
        candidate: &Candidate,
        (done, then): &(Simulation, JobOutcome),
        event: usize,
        failed: &BTreeSet<usize>,
    ) -> Remedy {
        let figures = done.at_failures.get(&event).copied().unwrap_or_default();
        // A setting under which another request fails instead is no remedy.
        let mut failures = done.ooms.iter().map(|(at, _)| *at).take_while(|at| *at <= event);
        let avoids_oom = failures.all(|at| at != event && failed.contains(&at))
            && !self.needed.get(&event).is_some_and(|needed| self.exceeds_reach(*needed));
        let forecast = self.forecast.filter(|known| avoids_oom && known.failed == event);
        // The failed request is served, and so is its repetition.
        let fails_again = forecast.is_some_and(|known| known.first_failure(&done.ooms) == Some(0));
        let avoids_oom = avoids_oom && !fails_again;
        let forecast = forecast.filter(|_| !fails_again);
        let fails_soon = forecast.and_then(|known| known.fails_soon(done));
        let held_at = forecast.map_or(event, |known| known.headroom_entries()[0]);
        let change = ConfChange::parse(&candidate.option);
        Remedy {
            settings: if change.resets_all { candidate.option.clone() } else { change.set },
            without: (!change.reset.is_empty()).then(|| change.reset.join(",")),
            avoids_oom,
            peak_reserved_bytes: figures.peak_reserved_bytes,
            // A forecast continues a trace that ends with this request.
            peak_of_trace_bytes: match self.forecast {
                Some(_) => figures.peak_reserved_bytes,
                None => done.figures().peak_reserved_bytes,
            },
            device_allocs: figures.device_allocs,
            device_frees: figures.device_frees,
            spare_bytes: done.headroom.get(&held_at).copied().filter(|_| avoids_oom),
            fails_soon,
            then: then.clone(),
        }
    }
}

/// Replays the recorded program and its forecast. Where unrecorded graph captures matter, with and without captures.
fn simulate_job(
    device: DeviceStudy<'_, '_>,
    forecast: Option<&Forecast<'_>>,
    hypothesis: &Hypothesis,
    headroom_entries: &BTreeSet<usize>,
) -> Vec<(Simulation, JobOutcome)> {
    let program = forecast.map_or_else(|| device.program(), |known| &known.program);
    let captures: &[bool] = if program.has_unknown_captures(hypothesis.minor) { &[true, false] } else { &[true] };
    let trials = captures.iter().map(|assumes_captures| {
        let hypothesis = Hypothesis { assumes_captures: *assumes_captures, ..hypothesis.clone() };
        let done = simulate_with_headroom(program, &hypothesis, headroom_entries);
        let later = forecast.map(|known| known.outcome(device, &done));
        let free_bytes = free_of(&hypothesis, done.figures().peak_reserved_bytes);
        let then = JobOutcome::from_replay(device, &done.ooms, later, free_bytes);
        (done, then)
    });
    trials.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_all_memory_within_reach_may_be_served() {
        let mut trials = SettingTrials {
            forecast: None,
            controls: Vec::new(),
            failed: Vec::new(),
            tried: Vec::new(),
            needed: BTreeMap::new(),
            reach: 100,
            reserved_before: 0,
            is_rounded_up: false,
        };
        assert_eq!([100, 101].map(|needed| trials.exceeds_reach(needed)), [false, true]);
        trials.is_rounded_up = true;
        assert!(!trials.exceeds_reach(101));
    }
}
