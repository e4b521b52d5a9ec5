//! Infers what a file does not record, by trial.
//!
//! The keys of a file narrow down the release; if several behave differently, each is tried. Limits of the process,
//! pools that never split and, before PyTorch 2.3, the settings show only in the allocator's decisions. At a
//! divergence, every hypothesis that could explain it is tried, and the one that gets furthest is kept.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rayon::prelude::*;

use super::common_values::{MEMORY_FRACTION_PERCENTS, ROUNDUP_DIVISIONS, split_limits};
use super::cursor::InferredDevice;
use super::hypothesis::{Hypothesis, INFERRED_THRESHOLD, INFERRED_THRESHOLD_BITS};
use super::settings_search::find_settings_changes;
use super::verification::{Divergence, Fault};
use crate::allocator::conf::Settings;
use crate::allocator::{Behaviour, SMALL_SEGMENT};
use crate::base::ids::PoolId;
use crate::replay::literal::{candidate_releases, inferred_capacity, no_split_pools, settings_for_release};
use crate::snapshot::{Action, Device, Snapshot, TraceEntry};

/// The best hypothesis for each device.
#[derive(Debug)]
pub struct Inference<'a> {
    /// The minor releases of PyTorch 2 assumed: their rules do not differ.
    pub releases: RangeInclusive<u32>,
    /// The model reproduces every entry of every device.
    pub is_exact: bool,
    /// In the order of the argument.
    pub devices: Vec<InferredDevice<'a>>,
}

/// Finds the hypotheses with which the model reproduces most entries of the traces of `devices`. `minor` is the minor
/// release of PyTorch 2 that recorded them, if the user knows it.
pub fn infer<'a>(snapshot: &'a Snapshot, devices: &[Device<'a>], minor: Option<u32>) -> Inference<'a> {
    let possible = minor.map_or_else(|| candidate_releases(&snapshot.torch), |minor| minor..=minor);
    let best = best_release(snapshot, devices, possible.clone());
    let by_keys = candidate_releases(&snapshot.torch_by_keys);
    // The stacks may come from another build: the allocator's decisions are better evidence.
    let best = if best.is_exact || minor.is_some() || by_keys == possible {
        best
    } else {
        let other = best_release(snapshot, devices, by_keys);
        if other.is_exact { other } else { best }
    };
    if best.is_exact {
        return best;
    }
    let refined = best.devices.into_par_iter().map(refine).collect();
    Inference::new(best.releases, refined)
}

/// The release among `possible` with which the model reproduces most entries.
fn best_release<'a>(snapshot: &'a Snapshot, devices: &[Device<'a>], possible: RangeInclusive<u32>) -> Inference<'a> {
    // An inference holds the memory of an allocator: two of them at a time, not all.
    let best = group_by_behaviour(snapshot, possible)
        .into_par_iter()
        .map(|(releases, minor)| {
            let start = Hypothesis {
                minor,
                settings: settings_for_release(snapshot, minor),
                limit: None,
                capacity: None,
                no_split: Vec::new(),
                assumes_captures: true,
                settings_changes: Vec::new(),
            };
            let verified = devices.par_iter().map(|device| {
                let no_split = no_split_pools(*device, &start.settings);
                InferredDevice::verified(*device, Hypothesis { no_split, ..start.clone() })
            });
            Inference::new(releases, verified.collect())
        })
        .reduce_with(Inference::or_better);
    best.unwrap_or_else(|| {
        debug_assert!(false, "the range of possible releases is never empty");
        Inference::new(0..=0, Vec::new())
    })
}

impl<'a> Inference<'a> {
    fn new(releases: RangeInclusive<u32>, devices: Vec<InferredDevice<'a>>) -> Self {
        let is_exact = devices.iter().all(|inferred| inferred.verification.is_exact());
        Self { releases, is_exact, devices }
    }

    /// Chooses between two groups of releases. Ties go to the newer one. If both are exact and adjacent, it has the
    /// range of both.
    fn or_better(mut self, older: Self) -> Self {
        if self.is_exact && older.is_exact && *older.releases.end() + 1 == *self.releases.start() {
            self.releases = *older.releases.start()..=*self.releases.end();
            self
        } else if older.matched() > self.matched() {
            older
        } else {
            self
        }
    }

    fn matched(&self) -> usize {
        self.devices.iter().map(|inferred| inferred.verification.matched).sum()
    }
}

/// The releases of `possible`, newest first, grouped by equal rules; each group with its newest release.
fn group_by_behaviour(snapshot: &Snapshot, possible: RangeInclusive<u32>) -> Vec<(RangeInclusive<u32>, u32)> {
    let mut groups: Vec<(RangeInclusive<u32>, u32)> = Vec::new();
    let mut newer = None;
    for minor in possible.rev() {
        let behaviour = Some((Behaviour::for_release(minor), settings_for_release(snapshot, minor)));
        match groups.last_mut() {
            Some((group, _)) if newer == behaviour => *group = minor..=*group.end(),
            _ => groups.push((minor..=minor, minor)),
        }
        newer = behaviour;
    }
    groups
}

/// Improves a hypothesis as long as the model gets further; then adds settings changes at run time, if they explain the
/// whole trace.
fn refine(inferred: InferredDevice<'_>) -> InferredDevice<'_> {
    let mut best = inferred;
    while let Some(divergence) = &best.verification.divergence
        && matches!(divergence.fault, Fault::Decision)
    {
        let device = best.device;
        let hypotheses = alternatives(device, &best.hypothesis, divergence);
        let outcomes = hypotheses.into_par_iter().map(|hypothesis| InferredDevice::verified(device, hypothesis));
        let mut outcomes: Vec<InferredDevice<'_>> = outcomes.collect();
        outcomes.extend(find_limit(&best));
        // `max_by_key` returns the last of equals; reversed, that is the simplest.
        let better = outcomes.into_iter().rev().max_by_key(|inferred| inferred.verification.matched);
        match better {
            Some(better) if better.verification.matched > best.verification.matched => {
                best = better;
            }
            _ => break,
        }
    }
    if best.verification.is_exact() {
        return best;
    }
    find_settings_changes(best.device, &best.hypothesis).unwrap_or(best)
}

/// Hypotheses that could explain a divergence.
fn alternatives(device: Device<'_>, hypothesis: &Hypothesis, divergence: &Divergence) -> Vec<Hypothesis> {
    let mut hypotheses = Vec::new();
    let pools = [divergence.predicted.map(|entry| entry.pool), divergence.recorded.and_then(|entry| entry.pool)];
    for pool in pools.into_iter().flatten() {
        if pool != PoolId::default() && !hypothesis.no_split.contains(&pool) {
            let no_split = [hypothesis.no_split.as_slice(), &[pool]].concat();
            hypotheses.push(Hypothesis { no_split, ..hypothesis.clone() });
        }
    }
    if hypothesis.settings.expandable_segments && hypothesis.capacity.is_none() {
        // PyTorch reserves 9/8 of the device's size for each expandable segment.
        let mut sizes: Vec<u64> = inferred_capacity(device, 0).into_iter().collect();
        if let Some(entry) = divergence.recorded.filter(|e| e.action == Action::SegmentMap) {
            // The reservation is full, and the next one may be adjacent.
            let distances = reservation_sizes(device, &entry);
            sizes.extend(distances.into_iter().map(|size| size / 9 * 8));
        }
        hypotheses.extend(sizes.into_iter().map(|size| Hypothesis { capacity: Some(size), ..hypothesis.clone() }));
    }
    let actions = [divergence.predicted.map(|entry| entry.action), divergence.recorded.map(|entry| entry.action)];
    let touches_device = actions.into_iter().flatten().any(|action| action.changes_reserved() || action == Action::Oom);
    if touches_device && let (None, Some(capacity)) = (hypothesis.limit, inferred_capacity(device, 0)) {
        let limits = MEMORY_FRACTION_PERCENTS.map(|percent| u128::from(capacity) * u128::from(percent) / 100);
        let limits = limits.into_iter().filter_map(|limit| u64::try_from(limit).ok());
        hypotheses.extend(limits.map(|limit| Hypothesis { limit: Some(limit), ..hypothesis.clone() }));
    }
    if device.snapshot().settings.is_none() {
        let settings = unrecorded_settings(&hypothesis.settings, divergence);
        hypotheses.extend(settings.map(|settings| Hypothesis { settings, ..hypothesis.clone() }));
    }
    hypotheses
}

/// Possible sizes of the reservations of expandable segments, if `entry` maps memory far from where the model would:
/// the distance to the nearest base below, of any kind, and the distance to the lowest address of its kind, or a part
/// of it.
fn reservation_sizes(device: Device<'_>, entry: &TraceEntry) -> Vec<u64> {
    let mut bases: BTreeMap<(u64, bool), u64> = BTreeMap::new();
    let maps = device
        .entries_where(|action| action == Action::SegmentMap)
        .map(|(_, other)| other)
        .take_while(|other| other.time_us <= entry.time_us || entry.time_us == 0);
    for other in maps {
        let base = bases.entry((other.stream, other.size == SMALL_SEGMENT)).or_insert(other.addr);
        *base = other.addr.min(*base);
    }
    let lowest_distance =
        bases.get(&(entry.stream, entry.size == SMALL_SEGMENT)).map_or(0, |base| entry.addr.saturating_sub(*base));
    let distances = bases.values().map(|base| entry.addr.saturating_sub(*base));
    let nearest_distance = distances.filter(|size| *size > 0).min();
    let parts = (1..=4).map(|parts| lowest_distance / parts);
    nearest_distance.into_iter().chain(parts).filter(|size| *size > 0).collect()
}

/// Settings to try for releases that do not record them.
fn unrecorded_settings<'a>(settings: &'a Settings, divergence: &Divergence) -> impl Iterator<Item = Settings> + 'a {
    let everywhere =
        ROUNDUP_DIVISIONS.into_iter().map(|d| Settings { roundup_power2_divisions: [d; 16], ..settings.clone() });
    let in_one_bucket = (0..16).flat_map(move |bucket| {
        ROUNDUP_DIVISIONS.into_iter().map(move |d| {
            let mut settings = settings.clone();
            settings.roundup_power2_divisions[bucket] = d;
            settings
        })
    });
    let limits = std::iter::once(u64::MAX).chain(split_limits(divergence));
    let split = limits.map(|max_split_size| Settings { max_split_size, ..settings.clone() });
    everywhere.chain(in_one_bucket).chain(split)
}

/// More bytes than any device has.
const NO_LIMIT: u64 = 1 << 47;

/// Finds the limit of the process that garbage collection depends on, by bisection: with too low a limit, the model
/// collects segments that PyTorch kept; with too high a one, it keeps segments that PyTorch collected.
fn find_limit<'a>(from: &InferredDevice<'a>) -> Option<InferredDevice<'a>> {
    let mut hypothesis = from.hypothesis.clone();
    if hypothesis.settings.garbage_collection_threshold == 0.0 {
        let recorded = from.verification.divergence.as_ref().and_then(|d| d.recorded);
        if from.device.snapshot().settings.is_some() || recorded.is_none_or(|entry| entry.action != Action::SegmentFree)
        {
            return None;
        }
        hypothesis.settings.garbage_collection_threshold = INFERRED_THRESHOLD;
    }
    let is_inferred = hypothesis.settings.garbage_collection_threshold == INFERRED_THRESHOLD;
    let scale = if is_inferred { INFERRED_THRESHOLD_BITS } else { 0 };
    let (mut low, mut high) = (0, NO_LIMIT);
    let mut best: Option<InferredDevice<'a>> = None;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        hypothesis.limit = Some(middle.saturating_mul(1 << scale));
        let tried = InferredDevice::verified(from.device, hypothesis.clone());
        // An exact one has no divergence.
        let is_too_low = tried.verification.divergence.as_ref().and_then(|divergence| {
            let action_before = divergence.entry_index.checked_sub(1);
            let action_before = action_before.and_then(|index| from.device.action(index));
            limit_is_too_low(divergence, action_before)
        });
        if best.as_ref().is_none_or(|b| tried.verification.matched > b.verification.matched) {
            best = Some(tried);
        }
        match is_too_low {
            Some(true) => low = middle,
            Some(false) => high = middle,
            None => break,
        }
    }
    best
}

/// Whether a divergence shows that the limit was too low (`true`) or too high; `action_before` is the recorded action
/// before it.
fn limit_is_too_low(divergence: &Divergence, action_before: Option<Action>) -> Option<bool> {
    let predicted = divergence.predicted?.action;
    let recorded = divergence.recorded?.action;
    if divergence.has_collected {
        // Both released segments; PyTorch released more if it continued where the model had finished.
        return Some(recorded != Action::SegmentFree || predicted == Action::SegmentFree);
    }
    if recorded == Action::SegmentFree {
        return Some(false);
    }
    // The model refused growth without asking the device, unless PyTorch had just collected a segment that the model
    // releases on refusal.
    (recorded.is_growth() && !predicted.is_growth()).then_some(action_before != Some(Action::SegmentFree))
}
