//! Finding out what a recording does not say, by trying.
//!
//! The keys of a file narrow the release down; where several behave differently, each is tried. Limits
//! of the process, pools that split nothing and, before 2.3, the settings themselves show only in what
//! the allocator did: at a divergence, every setting that could account for it is tried, and the one
//! that gets furthest is kept.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rayon::prelude::*;

use super::settings_search::find_settings_changes;
use super::divergence::{Divergence, Fault};
use super::hypothesis::Hypothesis;
use super::common_values::{ROUNDUP_DIVISIONS, MEMORY_FRACTION_PERCENTS, SPLIT_LIMITS_MIB};
use super::verification::Verification;
use super::cursor::verify;
use crate::allocator::conf::Settings;
use crate::allocator::{Behaviour, SMALL_SEGMENT};
use crate::base::ids::PoolId;
use crate::base::units::MIB;
use crate::replay::literal::{no_split_pools, candidate_releases, recorded_settings, settings_for_release, inferred_capacity};
use crate::snapshot::{Action, Device, Snapshot, TraceEntry};

/// How a recording was made, as far as whoever asks knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownSetup {
    /// The minor release of PyTorch 2 that recorded it.
    pub minor: Option<u32>,
    /// Bytes of each device.
    pub capacity: Option<u64>,
}

/// How a recording came about, as far as could be found out.
#[derive(Debug)]
pub struct Inference<'a> {
    /// The releases whose rules were taken: they do not differ in anything that matters here.
    pub releases: RangeInclusive<u32>,
    /// Whether every entry of every device was reproduced.
    pub is_exact: bool,
    /// The devices asked for, in their order.
    pub devices: Vec<InferredDevice<'a>>,
}

/// One device of an [`Inference`].
#[derive(Debug)]
pub struct InferredDevice<'a> {
    /// Which.
    pub device: Device<'a>,
    /// What was taken for granted.
    pub hypothesis: Hypothesis,
    /// What came of it.
    pub verification: Verification,
}

/// Finds the hypothesis under which the model reproduces most of the traces of `devices`.
pub fn infer<'a>(snapshot: &'a Snapshot, devices: &[Device<'a>], known: KnownSetup) -> Inference<'a> {
    let possible = known.minor.map_or_else(|| candidate_releases(&snapshot.torch), |minor| minor..=minor);
    let best = best_release(snapshot, devices, known.capacity, possible.clone());
    let by_keys = candidate_releases(&snapshot.torch_by_keys);
    // The stacks may tell of another build: what the allocator did outranks them.
    let best = if best.is_exact || known.minor.is_some() || by_keys == possible {
        best
    } else {
        let other = best_release(snapshot, devices, known.capacity, by_keys);
        if other.is_exact { other } else { best }
    };
    if best.is_exact {
        return best;
    }
    let refined = best.devices.into_par_iter().map(refine).map(with_settings_changes).collect();
    Inference::new(best.releases, refined)
}

/// The best of the hypotheses that differ in the release alone, which is one of `possible`.
fn best_release<'a>(
    snapshot: &'a Snapshot,
    devices: &[Device<'a>],
    capacity: Option<u64>,
    possible: RangeInclusive<u32>,
) -> Inference<'a> {
    let tried: Vec<Inference<'a>> = group_by_rules(snapshot, possible)
        .into_par_iter()
        .map(|(releases, minor)| {
            let start = Hypothesis {
                minor,
                settings: settings_for_release(snapshot, minor),
                limit: None,
                capacity,
                no_split: Vec::new(),
                assumes_captures: true,
                settings_changes: Vec::new(),
            };
            let start = Hypothesis { limit: start.limit_from_settings(), ..start };
            let verify_one = |&device: &Device<'a>| {
                let no_split = no_split_pools(device, &start.settings);
                let hypothesis = Hypothesis { no_split, ..start.clone() };
                let verification = verify(device, &hypothesis);
                InferredDevice { device, hypothesis, verification }
            };
            Inference::new(releases, devices.par_iter().map(verify_one).collect())
        })
        .collect();
    // Of releases that do equally well the newest; older ones that are exact too are named with it.
    let mut tried = tried.into_iter();
    let Some(mut best) = tried.next() else { return Inference::new(0..=0, Vec::new()) };
    for older in tried {
        if best.is_exact && older.is_exact && *older.releases.end() + 1 == *best.releases.start() {
            best.releases = *older.releases.start()..=*best.releases.end();
        } else if older.matched() > best.matched() {
            best = older;
        }
    }
    best
}

/// The settings in effect: as recorded, or found out by trying where the release does not record them.
/// `minor` is the release, if known.
pub fn settings_in_effect(snapshot: &Snapshot, minor: Option<u32>) -> Settings {
    let traced: Vec<Device<'_>> = snapshot.devices().filter(|device| !device.is_empty()).collect();
    if snapshot.settings.is_some() || traced.is_empty() {
        return minor
            .map_or_else(|| recorded_settings(snapshot), |minor| settings_for_release(snapshot, minor));
    }
    let inference = infer(snapshot, &traced, KnownSetup { minor, capacity: None });
    let furthest = inference.devices.into_iter().max_by_key(|one| one.verification.matched);
    furthest.map_or_else(|| recorded_settings(snapshot), |one| one.hypothesis.last_settings().clone())
}

impl<'a> Inference<'a> {
    fn new(releases: RangeInclusive<u32>, devices: Vec<InferredDevice<'a>>) -> Self {
        let is_exact = devices.iter().all(|one| one.verification.is_exact());
        Self { releases, is_exact, devices }
    }

    fn matched(&self) -> usize {
        self.devices.iter().map(|one| one.verification.matched).sum()
    }
}

/// The releases of `possible`, newest first, those with the same rules together.
fn group_by_rules(
    snapshot: &Snapshot,
    possible: RangeInclusive<u32>,
) -> Vec<(RangeInclusive<u32>, u32)> {
    let rules = |minor| (Behaviour::for_release(minor), settings_for_release(snapshot, minor));
    let mut groups: Vec<(RangeInclusive<u32>, u32)> = Vec::new();
    for minor in possible.rev() {
        match groups.last_mut() {
            Some((group, newest)) if rules(*newest) == rules(minor) => {
                *group = minor..=*group.end();
            }
            _ => groups.push((minor..=minor, minor)),
        }
    }
    groups
}

/// The same, with settings that changed at run time if they account for the whole trace.
fn with_settings_changes(one: InferredDevice<'_>) -> InferredDevice<'_> {
    if one.verification.is_exact() {
        return one;
    }
    match find_settings_changes(one.device, &one.hypothesis) {
        Some((hypothesis, verification)) => InferredDevice { hypothesis, verification, ..one },
        None => one,
    }
}

/// Betters a hypothesis as long as that gets the model further.
fn refine(one: InferredDevice<'_>) -> InferredDevice<'_> {
    let mut best = one;
    while let Some(divergence) = &best.verification.divergence
        && matches!(divergence.fault, Fault::Decision(_))
    {
        let device = best.device;
        let tries = alternatives(device, &best.hypothesis, divergence);
        let mut outcomes: Vec<InferredDevice<'_>> = tries
            .into_par_iter()
            .map(|hypothesis| {
                let verification = verify(device, &hypothesis);
                InferredDevice { device, hypothesis, verification }
            })
            .collect();
        outcomes.extend(find_limit(&best));
        // The first of equals: the simplest.
        let better = outcomes.into_iter().rev().max_by_key(|one| one.verification.matched);
        match better {
            Some(better) if better.verification.matched > best.verification.matched => {
                best = better;
            }
            _ => break,
        }
    }
    best
}

/// Hypotheses that could account for a divergence.
fn alternatives(
    device: Device<'_>,
    hypothesis: &Hypothesis,
    divergence: &Divergence,
) -> Vec<Hypothesis> {
    let mut tries = Vec::new();
    let pools = [
        divergence.predicted.map(|entry| entry.pool),
        divergence.recorded.and_then(|event| event.pool),
    ];
    for pool in pools.into_iter().flatten() {
        if pool != PoolId::default() && !hypothesis.no_split.contains(&pool) {
            let no_split = [hypothesis.no_split.as_slice(), &[pool]].concat();
            tries.push(Hypothesis { no_split, ..hypothesis.clone() });
        }
    }
    if hypothesis.settings.expandable_segments && hypothesis.capacity.is_none() {
        // The device's size decides how many addresses are reserved for a segment.
        let mut sizes: Vec<u64> = inferred_capacity(device, 0).into_iter().collect();
        if let Some(event) = divergence.recorded.filter(|e| e.action == Action::SegmentMap) {
            // A reservation is full, and the next one may adjoin it.
            let distances = reservation_sizes(device, &event);
            sizes.extend(distances.into_iter().map(|size| size / 9 * 8));
        }
        tries.extend(
            sizes.into_iter().map(|size| Hypothesis { capacity: Some(size), ..hypothesis.clone() }),
        );
    }
    let actions = [
        divergence.predicted.map(|entry| entry.action),
        divergence.recorded.map(|event| event.action),
    ];
    let touches_device =
        actions.into_iter().flatten().any(|action| action.changes_reserved() || action == Action::Oom);
    if touches_device && let (None, Some(capacity)) = (hypothesis.limit, inferred_capacity(device, 0))
    {
        let limits = MEMORY_FRACTION_PERCENTS.map(|percent| u128::from(capacity) * u128::from(percent) / 100);
        let limits = limits.into_iter().filter_map(|limit| u64::try_from(limit).ok());
        tries.extend(limits.map(|limit| Hypothesis { limit: Some(limit), ..hypothesis.clone() }));
    }
    if device.snapshot().settings.is_none() {
        let settings = unrecorded_settings(&hypothesis.settings, divergence);
        tries.extend(settings.map(|settings| Hypothesis { settings, ..hypothesis.clone() }));
    }
    tries
}

/// What the reservations of expandable segments may measure, when `event` maps memory far from where
/// the model would: the distance to where the one before it begins, of whatever kind; to the lowest
/// memory of its like, or a part of that.
fn reservation_sizes(device: Device<'_>, event: &TraceEntry) -> Vec<u64> {
    let like = |event: &TraceEntry| (event.stream, event.size == SMALL_SEGMENT);
    let mut bases: BTreeMap<(u64, bool), u64> = BTreeMap::new();
    let maps = device
        .entries_where(|action| action == Action::SegmentMap)
        .map(|(_, other)| other)
        .take_while(|other| other.time_us <= event.time_us || event.time_us == 0);
    for other in maps {
        let base = bases.entry(like(&other)).or_insert(other.addr);
        *base = other.addr.min(*base);
    }
    let distance = |base: &u64| event.addr.saturating_sub(*base);
    let before = bases.values().map(distance).filter(|size| *size > 0).min();
    let own = bases.get(&like(event)).map_or(0, distance);
    let parts = (1..=4).map(|parts| own / parts);
    before.into_iter().chain(parts).filter(|size| *size > 0).collect()
}

/// Settings of releases that do not record them.
fn unrecorded_settings<'a>(
    settings: &'a Settings,
    divergence: &Divergence,
) -> impl Iterator<Item = Settings> + 'a {
    let everywhere = ROUNDUP_DIVISIONS
        .into_iter()
        .map(|d| Settings { roundup_power2_divisions: [d; 16], ..settings.clone() });
    let in_one_bucket = (0..16).flat_map(move |bucket| {
        ROUNDUP_DIVISIONS.into_iter().map(move |d| {
            let mut settings = settings.clone();
            if let Some(value) = settings.roundup_power2_divisions.get_mut(bucket) {
                *value = d;
            }
            settings
        })
    });
    let sizes =
        [divergence.predicted.map(|entry| entry.size), divergence.recorded.map(|event| event.size)];
    let near = sizes.into_iter().flatten().flat_map(|size| [size / MIB, size / MIB + 1]);
    let limits: Vec<u64> = std::iter::once(u64::MAX / MIB)
        .chain(SPLIT_LIMITS_MIB)
        .chain(near.filter(|mib| (21..u64::MAX / MIB).contains(mib)))
        .collect();
    let split = limits.into_iter().map(|mib| Settings {
        max_split_size: if mib == u64::MAX / MIB { u64::MAX } else { mib * MIB },
        ..settings.clone()
    });
    everywhere.chain(in_one_bucket).chain(split)
}

/// No device has this many bytes.
const NO_LIMIT: u64 = 1 << 47;
/// Stands for a garbage collection threshold that is not recorded: so small that the limit it is a
/// part of refuses nothing.
const SMALL_THRESHOLD: f64 = 1.0 / (1 << 20) as f64;

/// Finds the limit of the process that garbage collection goes by, by bisection: too low a limit
/// collects what PyTorch kept, too high a one keeps what it collected.
fn find_limit<'a>(from: &InferredDevice<'a>) -> Option<InferredDevice<'a>> {
    let mut hypothesis = from.hypothesis.clone();
    if hypothesis.settings.garbage_collection_threshold == 0.0 {
        let recorded = from.verification.divergence.as_ref().and_then(|d| d.recorded);
        if from.device.snapshot().settings.is_some()
            || recorded.is_none_or(|event| event.action != Action::SegmentFree)
        {
            return None;
        }
        hypothesis.settings.garbage_collection_threshold = SMALL_THRESHOLD;
    }
    let scale =
        if hypothesis.settings.garbage_collection_threshold == SMALL_THRESHOLD { 20 } else { 0 };
    let (mut low, mut high) = (0, NO_LIMIT);
    let mut best: Option<InferredDevice<'a>> = None;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        hypothesis.limit = Some(middle.saturating_mul(1 << scale));
        let verification = verify(from.device, &hypothesis);
        let is_exact = verification.is_exact();
        let side = verification.divergence.as_ref().and_then(|divergence| {
            let before = divergence.entry_index.checked_sub(1);
            let before = before.and_then(|index| from.device.action(index));
            limit_is_too_low(divergence, before)
        });
        if best.as_ref().is_none_or(|b| verification.matched > b.verification.matched) {
            let hypothesis = hypothesis.clone();
            best = Some(InferredDevice { device: from.device, hypothesis, verification });
        }
        match side {
            _ if is_exact => break,
            Some(true) => low = middle,
            Some(false) => high = middle,
            None => break,
        }
    }
    best
}

/// Whether a divergence says that the limit was too low, or too high; `before` is the recorded action
/// before it.
fn limit_is_too_low(divergence: &Divergence, before: Option<Action>) -> Option<bool> {
    let predicted = divergence.predicted?.action;
    let recorded = divergence.recorded?.action;
    let frees = |action| action == Action::SegmentFree;
    if divergence.has_collected {
        // Both gave something back: PyTorch more, if it went on where the model was done.
        return Some(!frees(recorded) || frees(predicted));
    }
    if frees(recorded) {
        return Some(false);
    }
    // Refused without asking the device; unless PyTorch had collected what the model gave back only
    // when it was refused.
    (recorded.is_growth() && !predicted.is_growth()).then_some(before != Some(Action::SegmentFree))
}
