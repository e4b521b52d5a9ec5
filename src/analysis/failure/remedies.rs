//! Settings under which a request would not have failed: each one replayed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;

use super::failed::Failed;
use crate::allocator::conf::Settings;
use crate::allocator::device::UNBOUNDED;
use crate::replay::model::{Divergence, Hypothesis, Simulation, simulate};
use crate::replay::ops::Continuation;
use crate::study::{DeviceStudy, MAX_CONTINUED_ENTRIES};
use crate::whatif::{COMMON_SETTINGS, Overrides, apply_option, hypothesis_with, is_worth_trying};

const MAX_SPLIT: &str = "max_split_size_mb";
const ROUNDUP: &str = "roundup_power2_divisions";

/// Settings that were replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Options set beside or instead of the recorded ones, as in `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings: String,
    /// A recorded option that is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without: Option<&'static str>,
    /// Whether the failure does not happen.
    pub avoids_oom: bool,
    /// Peak of reserved memory, up to this request.
    pub peak_reserved_bytes: u64,
    /// Calls to the device for memory, up to this request.
    pub device_allocs: u64,
    /// Calls to give it back, up to this request.
    pub device_frees: u64,
    /// What is left of the memory within reach beside what the program then holds; `None` if it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_bytes: Option<u64>,
    /// What becomes of one more step; `None` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<GoesOn>,
}

/// How far a program gets, after a request that is served, with what it asked for one step before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GoesOn {
    /// Requests that are served.
    pub served_requests: u64,
    /// Whether the one after them fails; otherwise all are served, up to the same request once more.
    pub fails: bool,
}

/// The replay under the recorded settings, to hold remedies against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Undisturbed {
    /// What the program held at the failure and asked for, each block rounded to 512 bytes.
    pub needed_bytes: u64,
    /// The most that the process could reserve.
    pub reach_bytes: u64,
    /// Calls to the device for memory.
    pub device_allocs: u64,
    /// Calls to give it back.
    pub device_frees: u64,
    /// What was reserved before the first entry: it lies as it was recorded in every replay.
    pub reserved_before_bytes: u64,
    /// Whether the request, of which only the rounded size is recorded, may have been for less.
    pub is_rounded_up: bool,
    /// Settings that were replayed and are left out: what comes of them turns on whether a request was
    /// made in a graph capture or in `use_mem_pool`, which is not recorded.
    pub undecided: u64,
    /// Whether live memory and the request alone are more than could be reserved.
    pub no_setting_helps: bool,
}

/// What came of replaying a failed request under other settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tried {
    pub(super) undisturbed: Option<Undisturbed>,
    pub(super) remedies: Vec<Remedy>,
}

impl Tried {
    /// Whether some setting serves the request.
    pub(super) fn serves(&self) -> bool {
        self.remedies.iter().any(|remedy| remedy.avoids_oom)
    }

    /// Whether some setting serves the request and is known to serve one more step.
    pub(super) fn lasts(&self) -> bool {
        let succeeds = |then: GoesOn| !then.fails;
        self.remedies.iter().any(|remedy| remedy.next_step.is_some_and(succeeds))
    }

    /// Whether every setting that serves the request fails in one more step.
    pub(super) fn only_postpones(&self) -> bool {
        let mut serving = self.remedies.iter().filter(|remedy| remedy.avoids_oom);
        self.serves() && serving.all(|remedy| remedy.next_step.is_some_and(|then| then.fails))
    }
}

/// What other settings come to at each of `ooms`, failures of `device`. None is claimed where the model does
/// not fail when it is replayed under the recorded settings. Of the last of them it is seen how the program goes
/// on, where that is known (`prolonged`).
///
/// # Errors
/// The first divergence, when the model does not reproduce the recorded run.
pub(super) fn remedies<'s>(
    device: DeviceStudy<'s, '_>,
    ooms: &[Failed],
    prolonged: Option<&Continuation<'_>>,
) -> Result<Vec<Tried>, &'s Divergence> {
    if ooms.is_empty() || device.device().len() > MAX_CONTINUED_ENTRIES {
        return Ok(Vec::new());
    }
    let verification = &device.inferred().verification;
    if !verification.is_exact() {
        return verification.divergence.as_ref().map_or(Ok(Vec::new()), Err);
    }
    let trials = Trials::of(device, prolonged);
    let mut is_pool_open = false;
    let at = |oom: &Failed| {
        // Of a request whose pool is not known no setting can be said to help, nor of those after it.
        is_pool_open |= oom.told.is_open;
        trials.at(oom, is_pool_open)
    };
    Ok(ooms.iter().map(at).collect())
}

/// A device's calls replayed under the recorded settings and under others.
struct Trials {
    /// Under the recorded settings, each way that is open.
    controls: Vec<Simulation>,
    /// The entries that fail in each of them.
    failed: Vec<BTreeSet<usize>>,
    /// Under other settings, each way.
    tried: Vec<(Candidate, Vec<Simulation>)>,
    /// What the program held and asked for at each failure.
    needed: BTreeMap<usize, u64>,
    /// The most that the process could reserve.
    reach: u64,
    reserved_before: u64,
    is_rounded_up: bool,
    /// The requests that follow the last failure.
    following: Option<u64>,
}

impl Trials {
    fn of(device: DeviceStudy<'_, '_>, prolonged: Option<&Continuation<'_>>) -> Self {
        let program = prolonged.map_or_else(|| device.program(), |goes_on| &goes_on.program);
        let as_recorded = hypothesis_with(device, &Overrides::default());
        // Where it is open whether a request was made in a graph capture, only what holds either way is said.
        let ways: &[bool] =
            if program.has_unknown_captures(as_recorded.minor) { &[true, false] } else { &[true] };
        let each_way = |hypothesis: &Hypothesis| -> Vec<Simulation> {
            let way =
                |captures: &bool| Hypothesis { assumes_captures: *captures, ..hypothesis.clone() };
            ways.iter().map(|captures| simulate(program, &way(captures), None)).collect()
        };
        let controls = each_way(&as_recorded);
        let failed =
            controls.iter().map(|done| done.ooms.iter().map(|(event, _)| *event).collect());
        let limit = device.inferred_limit().map_or(as_recorded.limit, |limits| Some(*limits.end()));
        let tried = candidates(device)
            .into_par_iter()
            .filter(|candidate| is_worth_trying(&candidate.settings, device))
            .map(|candidate| {
                let settings = Some((candidate.settings.clone(), String::new()));
                let overrides = Overrides { settings, ..Overrides::default() };
                let done = each_way(&hypothesis_with(device, &overrides));
                (candidate, done)
            })
            .collect();
        let divisions = as_recorded.settings.roundup_power2_divisions;
        Self {
            failed: failed.collect(),
            tried,
            // Every setting rounds to at least as much as the default ones do.
            needed: device
                .program()
                .bytes_needed_by_failed(&Settings::default())
                .into_iter()
                .collect(),
            reach: [as_recorded.capacity, limit].into_iter().flatten().min().unwrap_or(UNBOUNDED),
            reserved_before: device.reserved_before(),
            // A failed request is recorded as it was rounded: under other settings it may be smaller.
            is_rounded_up: divisions.iter().any(|d| *d > 1),
            following: prolonged.map(|goes_on| goes_on.added_requests as u64),
            controls,
        }
    }

    /// What they come to at `oom`.
    fn at(&self, oom: &Failed, is_pool_open: bool) -> Tried {
        let entry = oom.request.entry;
        let needed_bytes = self.needed.get(&entry).copied().unwrap_or(0);
        let no_setting_helps = self.is_beyond(needed_bytes);
        if !self.failed.iter().all(|failed| failed.contains(&entry))
            // A graph capture waits for nothing, which a replay cannot know of a request that fares better.
            || oom.has_pending()
            || (is_pool_open && !no_setting_helps)
        {
            return Tried::default();
        }
        let own = self.controls.first().and_then(|done| done.at_failures.get(&entry));
        let own = own.copied().unwrap_or_default();
        let tried = if is_pool_open { &[] } else { self.tried.as_slice() };
        let mut remedies: Vec<Remedy> = tried
            .iter()
            .filter_map(|(candidate, ways)| {
                let ways = ways.iter().zip(&self.failed);
                let mut rows =
                    ways.map(|(done, failed)| self.remedy(candidate, done, entry, failed));
                let first = rows.next()?;
                rows.all(|row| row == first).then_some(first)
            })
            .collect();
        let undisturbed = Some(Undisturbed {
            needed_bytes,
            reach_bytes: self.reach,
            device_allocs: own.device_allocs,
            device_frees: own.device_frees,
            reserved_before_bytes: self.reserved_before,
            is_rounded_up: self.is_rounded_up,
            undecided: (tried.len() - remedies.len()) as u64,
            no_setting_helps,
        });
        // What gets further comes first. A limit to splitting may help today and slow the program down tomorrow: it comes last of what
        // helps. Of the others a single option comes before a combination.
        remedies.sort_by_key(|r| {
            let splits = r.settings.contains(MAX_SPLIT);
            let options = r.settings.matches(',').count();
            let calls = r.device_allocs.saturating_add(r.device_frees);
            let reaches = r.next_step.map(|then| (!then.fails, then.served_requests));
            (Reverse((r.avoids_oom, reaches)), splits, options, r.peak_reserved_bytes, calls)
        });
        Tried { undisturbed, remedies }
    }

    /// Whether no setting can have served what `needed` so many bytes, whatever a replay makes of memory from
    /// before the recording.
    fn is_beyond(&self, needed: u64) -> bool {
        !self.is_rounded_up && needed > self.reach
    }

    fn remedy(
        &self,
        candidate: &Candidate,
        done: &Simulation,
        event: usize,
        failed: &BTreeSet<usize>,
    ) -> Remedy {
        let figures = done.at_failures.get(&event).copied().unwrap_or_default();
        // A setting that makes another request fail in its place helps nobody.
        let mut up_to_it = done.ooms.iter().map(|(at, _)| *at).take_while(|at| *at <= event);
        let avoids_oom = up_to_it.all(|at| at != event && failed.contains(&at))
            && !self.needed.get(&event).is_some_and(|needed| self.is_beyond(*needed));
        let is_last = self.needed.keys().next_back() == Some(&event);
        let next = done.ooms.iter().map(|(at, _)| *at).find(|at| *at > event);
        let goes_on = |following: u64| GoesOn {
            // The first is the failed request itself, once more.
            served_requests: next.map_or(following, |at| (at - event).saturating_sub(2) as u64),
            fails: next.is_some(),
        };
        Remedy {
            settings: candidate.option.to_owned(),
            without: candidate.without,
            avoids_oom,
            peak_reserved_bytes: figures.peak_reserved,
            device_allocs: figures.device_allocs,
            device_frees: figures.device_frees,
            spare_bytes: avoids_oom.then(|| self.reach.saturating_sub(figures.allocated)),
            next_step: self.following.filter(|_| avoids_oom && is_last).map(goes_on),
        }
    }
}

/// Settings to try.
struct Candidate {
    option: &'static str,
    /// The recorded option that has to go.
    without: Option<&'static str>,
    settings: Settings,
}

fn candidates(device: DeviceStudy<'_, '_>) -> Vec<Candidate> {
    let recorded = &device.inferred().hypothesis;
    let own = recorded.last_settings();
    let mut candidates: Vec<Candidate> = Vec::new();
    if own.max_split_size != u64::MAX {
        let settings = Settings { max_split_size: u64::MAX, ..own.clone() };
        candidates.push(Candidate { option: "", without: Some(MAX_SPLIT), settings });
    }
    if own.roundup_power2_divisions.iter().any(|divisions| *divisions > 1) {
        let settings = Settings { roundup_power2_divisions: [0; 16], ..own.clone() };
        candidates.push(Candidate { option: "", without: Some(ROUNDUP), settings });
    }
    for option in COMMON_SETTINGS {
        let Ok((mut settings, _)) = apply_option(device.snapshot(), recorded, option) else {
            continue;
        };
        let mut without = None;
        if settings.expandable_segments && own.max_split_size != u64::MAX {
            if option.contains(MAX_SPLIT) {
                continue;
            }
            settings.max_split_size = u64::MAX;
            without = Some(MAX_SPLIT);
        }
        if candidates.iter().all(|known| known.settings != settings) {
            candidates.push(Candidate { option, without, settings });
        }
    }
    candidates
}
