//! Settings that the program changed as it ran, found by trying.
//!
//! A snapshot tells only the last settings. Where no settings reproduce the whole trace, others are tried
//! from the first entry, or from an earlier or later one on: those that get the model furthest are kept
//! from there. What that found counts only if every entry is then reproduced. What is tried is few, and
//! the work is bounded by a multiple of the trace.

use super::divergence::{Divergence, Fault};
use super::hypothesis::Hypothesis;
use super::common_values::{ROUNDUP_DIVISIONS, LARGE_SEGMENT_SIZES_MIB, SPLIT_LIMITS_MIB};
use super::verification::Verification;
use super::cursor::{ReplayCursor, verify};
use crate::allocator::conf::Settings;
use crate::allocator::releases::option_since;
use crate::base::units::MIB;
use crate::replay::literal::{SettingsChange, Reservations};
use crate::snapshot::{Action, Device};

/// More changes are not looked for.
const MAX_CHANGES: usize = 64;
/// How often the trace may be gone through, beside a fixed number of entries.
const MAX_PASSES: usize = 24;
const EXTRA_ENTRIES: usize = 1 << 20;
/// Calls before a divergence that are each tried as the one from which settings changed; before them every
/// second one is, then every fourth ..
const DENSE_CANDIDATES: usize = 24;
/// Entries after a divergence that tell what is worth following further.
const HORIZON: usize = 64;
/// Settings that nothing but a divergence speaks for have to account for so many entries in a row: one odd decision
/// can have many causes.
const MIN_EPOCH_LEN: usize = 64;
/// How many are followed further at once.
const BEAM_WIDTH: usize = 4;

/// `hypothesis` with settings that change, if they account for the whole trace of `device`.
pub(super) fn find_settings_changes(
    device: Device<'_>,
    hypothesis: &Hypothesis,
) -> Option<(Hypothesis, Verification)> {
    let reservations = Reservations::new(device);
    let mut search = SettingsSearch::new(device, hypothesis.clone(), &reservations);
    let epochs = search.run()?;
    // What holds too shortly gives way to what is after it, or before.
    let shown = [true, false].into_iter().filter_map(|is_later| search.without_short_epochs(&epochs, is_later));
    let mut verified = shown.filter(|shown| !shown.settings_changes.is_empty()).map(|shown| {
        let verification = verify(device, &shown);
        (shown, verification)
    });
    verified.find(|(_, verification)| verification.is_exact())
}

struct SettingsSearch<'a> {
    device: Device<'a>,
    reservations: &'a Reservations,
    /// Whether the file tells the last settings.
    has_recorded_settings: bool,
    hypothesis: Hypothesis,
    /// Settings that are tried before any others: the recorded ones, the defaults, those found.
    known: Vec<Settings>,
    /// What may still be replayed, in entries.
    budget: usize,
}

/// Settings tried from an entry on.
struct Trial<'a> {
    first_entry: usize,
    /// Among those tried, the simplest first.
    rank: usize,
    settings: Settings,
    cursor: ReplayCursor<'a>,
}

impl<'a> SettingsSearch<'a> {
    fn new(device: Device<'a>, hypothesis: Hypothesis, reservations: &'a Reservations) -> Self {
        let plain = Settings::defaults_for_release(hypothesis.minor);
        Self {
            device,
            reservations,
            has_recorded_settings: device.snapshot().settings.is_some(),
            known: vec![hypothesis.settings.clone(), plain],
            hypothesis,
            budget: device.len().saturating_mul(MAX_PASSES).saturating_add(EXTRA_ENTRIES),
        }
    }

    /// What is found, from the first entry on.
    fn run(&mut self) -> Option<Vec<SettingsChange>> {
        let mut epochs =
            vec![SettingsChange { first_entry: 0, settings: self.hypothesis.settings.clone() }];
        let mut base = ReplayCursor::new(self.device, &self.hypothesis, self.reservations);
        loop {
            let mut head = base.clone();
            let mut calls = vec![head.position()];
            while head.step(&mut None) {
                calls.push(head.position());
            }
            let Some(divergence) = head.divergence() else { break };
            if !matches!(divergence.fault, Fault::Decision(_)) {
                return None;
            }
            // What begins behind the diverging call is no place to change settings before it.
            calls.pop();
            self.spend(head.position() - base.position())?;
            let current = &epochs.last()?.settings;
            let chosen = self.choose_change(&base, current, &calls, divergence)?;
            self.spend(chosen.first_entry - base.position())?;
            base.advance_to(chosen.first_entry, &mut None);
            base.set_settings(&chosen.settings);
            if !self.known.contains(&chosen.settings) {
                self.known.push(chosen.settings.clone());
            }
            if epochs.last().is_some_and(|last| last.first_entry == chosen.first_entry) {
                epochs.pop();
            }
            if epochs.last().is_none_or(|last| last.settings != chosen.settings) {
                epochs.push(chosen);
            }
            if epochs.len() > MAX_CHANGES {
                return None;
            }
        }
        // The recorded ones came into effect at some time, be it when nothing more was asked for.
        let recorded = &self.hypothesis.settings;
        if self.has_recorded_settings && epochs.last().is_some_and(|last| last.settings != *recorded) {
            epochs.push(SettingsChange { first_entry: self.device.len(), settings: recorded.clone() });
        }
        Some(epochs)
    }

    /// The hypothesis without settings that hold too shortly to be believed: those after them, or before them, hold
    /// in their place. What that comes to is to be verified.
    fn without_short_epochs(&self, epochs: &[SettingsChange], is_later: bool) -> Option<Hypothesis> {
        let told = self.known.get(..2)?;
        let ends = epochs.iter().skip(1).map(|next| next.first_entry).chain([self.device.len()]);
        let mut shown: Vec<SettingsChange> = Vec::with_capacity(epochs.len());
        let mut since = None;
        for (epoch, end) in epochs.iter().zip(ends) {
            let lasts = end.saturating_sub(epoch.first_entry) >= MIN_EPOCH_LEN;
            if told.contains(&epoch.settings) || lasts {
                let from = since.take().unwrap_or(epoch.first_entry);
                shown.push(SettingsChange { first_entry: from, ..epoch.clone() });
            } else if is_later || shown.is_empty() {
                since.get_or_insert(epoch.first_entry);
            }
        }
        let mut shown = shown.into_iter();
        let settings = shown.next()?.settings;
        Some(Hypothesis { settings, settings_changes: shown.collect(), ..self.hypothesis.clone() })
    }

    /// Takes the work of `entries` from what is left.
    fn spend(&mut self, entries: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(entries)?;
        Some(())
    }

    /// The settings, and from where on, that get furthest beyond `divergence`.
    fn choose_change(
        &mut self,
        base: &ReplayCursor<'a>,
        current: &Settings,
        calls: &[usize],
        divergence: &Divergence,
    ) -> Option<SettingsChange> {
        let places = self.candidate_entries(calls);
        let is_other = |settings: &Settings| settings != current;
        let known: Vec<Settings> =
            self.known.iter().filter(|settings| is_other(settings)).cloned().collect();
        let mut trials = self.run_trials(base, &places, &known, divergence.entry_index)?;
        let enough = divergence.entry_index.saturating_add(HORIZON).min(self.device.len());
        if trials.iter().all(|trial| trial.cursor.reached_entry() < enough) {
            let mut others = Vec::new();
            for of in std::iter::once(current).chain(&self.known) {
                for settings in single_option_variants(of, &self.hypothesis, divergence) {
                    let is_new = !self.known.contains(&settings) && !others.contains(&settings);
                    if is_new && is_other(&settings) {
                        others.push(settings);
                    }
                }
            }
            trials.extend(self.run_trials(base, &places, &others, divergence.entry_index)?);
        }
        let furthest = self.pick_furthest(trials, divergence.entry_index)?;
        Some(SettingsChange { first_entry: furthest.first_entry, settings: furthest.settings })
    }

    /// Where settings may have changed: before calls that ask for memory or give it back, the start of
    /// what is replayed under the present ones first.
    fn candidate_entries(&self, calls: &[usize]) -> Vec<usize> {
        let decides = |row: &usize| self.device.action(*row) != Some(Action::FreeRequested);
        let deciding: Vec<usize> = calls.iter().copied().filter(decides).collect();
        let mut places = Vec::new();
        let (mut back, mut stride) = (1, 1);
        while let Some(at) = deciding.len().checked_sub(back) {
            places.push(deciding[at]);
            if back >= DENSE_CANDIDATES * stride {
                stride *= 2;
            }
            back += stride;
        }
        places.extend(calls.first());
        places.sort_unstable();
        places.dedup();
        places
    }

    /// What gets beyond entry `at`, of all `candidates` from all `places` on.
    fn run_trials(
        &mut self,
        base: &ReplayCursor<'a>,
        places: &[usize],
        candidates: &[Settings],
        at: usize,
    ) -> Option<Vec<Trial<'a>>> {
        let mut trials: Vec<Trial<'a>> = Vec::new();
        let mut walk = base.clone();
        for from in places {
            self.spend(from - walk.position())?;
            walk.advance_to(*from, &mut None);
            for (rank, settings) in candidates.iter().enumerate() {
                let mut trial = walk.clone();
                self.spend(trial.live_blocks())?;
                trial.set_settings(settings);
                self.advance(&mut trial, at.saturating_add(HORIZON))?;
                if trial.reached_entry() > at {
                    let settings = settings.clone();
                    trials.push(Trial { first_entry: *from, rank, settings, cursor: trial });
                }
            }
            sort_trials(&mut trials, base.position());
            trials.truncate(4 * BEAM_WIDTH);
        }
        Some(trials)
    }

    fn advance(&mut self, walk: &mut ReplayCursor<'a>, end: usize) -> Option<()> {
        let before = walk.position();
        walk.advance_to(end, &mut None);
        self.spend(walk.position() - before)
    }

    /// The one that gets furthest.
    fn pick_furthest(&mut self, mut trials: Vec<Trial<'a>>, at: usize) -> Option<Trial<'a>> {
        let start = trials.iter().map(|trial| trial.first_entry).min()?;
        let mut horizon = HORIZON;
        while at.saturating_add(horizon) < self.device.len() {
            horizon = horizon.saturating_mul(4);
            for trial in &mut trials {
                self.advance(&mut trial.cursor, at.saturating_add(horizon))?;
            }
            sort_trials(&mut trials, start);
            trials.truncate(BEAM_WIDTH);
        }
        sort_trials(&mut trials, start);
        trials.into_iter().next()
    }
}

/// The furthest first; of those that get as far what explains most, then the simplest, then the latest.
fn sort_trials(trials: &mut [Trial<'_>], start: usize) {
    trials.sort_by_key(|trial| {
        use std::cmp::Reverse;
        (Reverse(trial.cursor.reached_entry()), trial.first_entry != start, trial.rank, Reverse(trial.first_entry))
    });
}

/// `settings` with one option otherwise.
fn single_option_variants(
    settings: &Settings,
    hypothesis: &Hypothesis,
    divergence: &Divergence,
) -> Vec<Settings> {
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut other = settings.clone();
        change(&mut other);
        other
    };
    let mut all = vec![with(&|s| s.expandable_segments = !s.expandable_segments)];
    all.extend(ROUNDUP_DIVISIONS.map(|d| with(&|s| s.roundup_power2_divisions = [d; 16])));
    let sizes =
        [divergence.predicted.map(|entry| entry.size), divergence.recorded.map(|event| event.size)];
    let near = sizes.into_iter().flatten().flat_map(|size| [size / MIB, size / MIB + 1]);
    let near = near.filter(|mib| (21..u64::MAX / MIB).contains(mib));
    // A block passed over may be of another pool where entries do not say of which.
    if !divergence.names_pools {
        return all;
    }
    all.push(with(&|s| s.max_split_size = u64::MAX));
    all.extend(
        SPLIT_LIMITS_MIB.into_iter().chain(near).map(|mib| with(&|s| s.max_split_size = mib * MIB)),
    );
    if settings.max_split_size != u64::MAX {
        all.extend(LARGE_SEGMENT_SIZES_MIB.map(|mib| with(&|s| s.max_non_split_rounding = mib * MIB)));
    }
    if hypothesis.limit.is_some() {
        let tenths = (0..=9u32).map(|tenths| f64::from(tenths) / 10.0);
        all.extend(tenths.map(|part| with(&|s| s.garbage_collection_threshold = part)));
    }
    if option_since("large_segment_size_mb").is_some_and(|since| hypothesis.minor >= since) {
        all.extend(LARGE_SEGMENT_SIZES_MIB.map(|mib| with(&|s| s.large_segment_size = mib * MIB)));
    }
    all
}
