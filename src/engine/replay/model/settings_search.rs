//! Finds settings that the program changed at run time, by trial.
//!
//! A snapshot records only the last settings. If they do not reproduce the whole trace, the search tries other settings
//! from several entries before the divergence on, and keeps those with which the model gets furthest. The result counts
//! only if every entry is reproduced. The search is bounded by a multiple of the trace's length.

use super::common_values::{LARGE_SEGMENT_SIZES_MIB, ROUNDUP_DIVISIONS, split_limits};
use super::cursor::InferredDevice;
use super::hypothesis::Hypothesis;
use super::verification::{Divergence, Fault};
use super::verify::Verifier;
use crate::allocator::conf::{Settings, option_since};
use crate::base::units::MIB;
use crate::replay::literal::{Reservations, SettingsChange};
use crate::snapshot::{Action, Device};

const MAX_CHANGES: usize = 64;
/// The budget is this many passes over the trace, and `EXTRA_ENTRIES` more.
const MAX_PASSES: usize = 24;
const EXTRA_ENTRIES: usize = 1 << 20;
/// The search tries each of this many operations before a divergence as the one at which settings changed; before them
/// it tries every second one, then every fourth, and so on.
const DENSE_CANDIDATES: usize = 24;
/// Entries after a divergence that a trial must reproduce to be followed further.
const HORIZON: usize = 64;
/// Settings with no evidence but a divergence must explain this many entries in a row: one odd decision can have many
/// causes.
const MIN_EPOCH_LEN: usize = 64;
/// Trials that are followed further at once.
const BEAM_WIDTH: usize = 4;

/// `device` with settings changes added to `hypothesis`, if they explain its whole trace.
pub(super) fn find_settings_changes<'a>(device: Device<'a>, hypothesis: &Hypothesis) -> Option<InferredDevice<'a>> {
    let reservations = Reservations::new(device);
    let mut search = SettingsSearch::new(device, hypothesis.clone(), &reservations);
    let epochs = search.run()?;
    // Short epochs are replaced by the next one, or else by the one before.
    let candidates = [true, false].into_iter().filter_map(|is_later| search.without_short_epochs(&epochs, is_later));
    let changing = candidates.filter(|candidate| !candidate.settings_changes.is_empty());
    let mut verified = changing.map(|candidate| InferredDevice::verified(device, candidate));
    verified.find(|inferred| inferred.verification.is_exact())
}

struct SettingsSearch<'a> {
    device: Device<'a>,
    reservations: &'a Reservations,
    has_recorded_settings: bool,
    hypothesis: Hypothesis,
    /// Settings to try first: the recorded ones, the defaults, then those found so far.
    known: Vec<Settings>,
    /// Entries that may still be replayed.
    budget: usize,
}

struct Trial<'a> {
    first_entry: usize,
    /// Index among the settings tried; simpler ones come first.
    rank: usize,
    settings: Settings,
    verifier: Verifier<'a>,
}

impl<'a> SettingsSearch<'a> {
    fn new(device: Device<'a>, hypothesis: Hypothesis, reservations: &'a Reservations) -> Self {
        let defaults = Settings::defaults_for_release(hypothesis.minor);
        Self {
            device,
            reservations,
            has_recorded_settings: device.snapshot().settings.is_some(),
            known: vec![hypothesis.settings.clone(), defaults],
            hypothesis,
            budget: device.len().saturating_mul(MAX_PASSES).saturating_add(EXTRA_ENTRIES),
        }
    }

    /// Finds settings for each epoch of the trace; the first one starts at entry 0.
    fn run(&mut self) -> Option<Vec<SettingsChange>> {
        let mut epochs = vec![SettingsChange { first_entry: 0, settings: self.hypothesis.settings.clone() }];
        let mut base = Verifier::new(self.device, &self.hypothesis, self.reservations);
        loop {
            let mut ahead = base.clone();
            let mut op_starts = vec![ahead.position()];
            while ahead.step(&mut None) {
                op_starts.push(ahead.position());
            }
            let Some(divergence) = &ahead.so_far.divergence else { break }; // the epochs explain the whole trace
            if !matches!(divergence.fault, Fault::Decision) {
                return None;
            }
            // The last start is that of the operation after the diverging one.
            op_starts.pop();
            self.spend(ahead.position() - base.position())?;
            let current = &epochs.last()?.settings;
            let change = self.choose_change(&base, current, &op_starts, divergence)?;
            self.spend(change.first_entry - base.position())?;
            base.advance_to(change.first_entry, &mut None);
            base.set_settings(&change.settings);
            if !self.known.contains(&change.settings) {
                self.known.push(change.settings.clone());
            }
            if epochs.last().is_some_and(|last| last.first_entry == change.first_entry) {
                epochs.pop();
            }
            if epochs.last().is_none_or(|last| last.settings != change.settings) {
                epochs.push(change);
            }
            if epochs.len() > MAX_CHANGES {
                return None;
            }
        }
        // The recorded settings came into effect at some time, if only after the last request.
        let recorded = &self.hypothesis.settings;
        if self.has_recorded_settings && epochs.last().is_some_and(|last| last.settings != *recorded) {
            epochs.push(SettingsChange { first_entry: self.device.len(), settings: recorded.clone() });
        }
        Some(epochs)
    }

    /// The hypothesis with each short epoch of uncertain settings merged into the next epoch (`is_later`) or the one
    /// before. The caller verifies the result.
    fn without_short_epochs(&self, epochs: &[SettingsChange], is_later: bool) -> Option<Hypothesis> {
        let certain = self.known.get(..2)?;
        let ends = epochs.iter().skip(1).map(|next| next.first_entry).chain([self.device.len()]);
        let mut kept: Vec<SettingsChange> = Vec::with_capacity(epochs.len());
        let mut pending_start = None;
        for (epoch, end) in epochs.iter().zip(ends) {
            let is_long = end.saturating_sub(epoch.first_entry) >= MIN_EPOCH_LEN;
            if certain.contains(&epoch.settings) || is_long {
                let from = pending_start.take().unwrap_or(epoch.first_entry);
                kept.push(SettingsChange { first_entry: from, ..epoch.clone() });
            } else if is_later || kept.is_empty() {
                pending_start.get_or_insert(epoch.first_entry);
            }
        }
        let mut kept = kept.into_iter();
        let settings = kept.next()?.settings;
        Some(Hypothesis { settings, settings_changes: kept.collect(), ..self.hypothesis.clone() })
    }

    /// Takes `entries` from the budget; `None` if it is exhausted.
    fn spend(&mut self, entries: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(entries)?;
        Some(())
    }

    /// The settings, and their first entry, with which the model gets furthest beyond `divergence`.
    fn choose_change(
        &mut self,
        base: &Verifier<'a>,
        current: &Settings,
        op_starts: &[usize],
        divergence: &Divergence,
    ) -> Option<SettingsChange> {
        let starts = self.candidate_entries(op_starts);
        let known: Vec<Settings> = self.known.iter().filter(|settings| *settings != current).cloned().collect();
        let mut trials = self.run_trials(base, &starts, &known, divergence.entry_index)?;
        let goal = divergence.entry_index.saturating_add(HORIZON).min(self.device.len());
        if trials.iter().all(|trial| trial.verifier.reached_entry() < goal) {
            let mut variants = Vec::new();
            for base_settings in std::iter::once(current).chain(&self.known) {
                for settings in single_option_variants(base_settings, &self.hypothesis, divergence) {
                    let is_new = !self.known.contains(&settings) && !variants.contains(&settings);
                    if is_new && settings != *current {
                        variants.push(settings);
                    }
                }
            }
            trials.extend(self.run_trials(base, &starts, &variants, divergence.entry_index)?);
        }
        let furthest = self.pick_furthest(trials, divergence.entry_index)?;
        Some(SettingsChange { first_entry: furthest.first_entry, settings: furthest.settings })
    }

    /// The entries at which settings may have changed: starts of operations that allocate or release memory, and the
    /// start of the current epoch.
    fn candidate_entries(&self, op_starts: &[usize]) -> Vec<usize> {
        let found = op_starts.iter().copied().filter(|index| self.device.action(*index) != Some(Action::FreeRequested));
        let deciding: Vec<usize> = found.collect();
        let mut starts = Vec::new();
        let (mut back, mut stride) = (1, 1);
        while let Some(index) = deciding.len().checked_sub(back) {
            starts.push(deciding[index]);
            if back >= DENSE_CANDIDATES * stride {
                stride *= 2;
            }
            back += stride;
        }
        starts.extend(op_starts.first());
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// The best trials that get beyond entry `diverged_at`, of each candidate from each start on.
    fn run_trials(
        &mut self,
        base: &Verifier<'a>,
        starts: &[usize],
        candidates: &[Settings],
        diverged_at: usize,
    ) -> Option<Vec<Trial<'a>>> {
        let mut trials: Vec<Trial<'a>> = Vec::new();
        let mut walk = base.clone();
        for from in starts {
            self.spend(from - walk.position())?;
            walk.advance_to(*from, &mut None);
            for (rank, settings) in candidates.iter().enumerate() {
                let mut trial = walk.clone();
                self.spend(trial.live.len())?; // the cost of a clone
                trial.set_settings(settings);
                self.advance(&mut trial, diverged_at.saturating_add(HORIZON))?;
                if trial.reached_entry() > diverged_at {
                    let settings = settings.clone();
                    trials.push(Trial { first_entry: *from, rank, settings, verifier: trial });
                }
            }
            sort_trials(&mut trials, base.position());
            trials.truncate(4 * BEAM_WIDTH);
        }
        Some(trials)
    }

    fn advance(&mut self, walk: &mut Verifier<'a>, end: usize) -> Option<()> {
        let before = walk.position();
        walk.advance_to(end, &mut None);
        self.spend(walk.position() - before)
    }

    /// Follows the best trials to the end of the trace; the one that gets furthest.
    fn pick_furthest(&mut self, mut trials: Vec<Trial<'a>>, diverged_at: usize) -> Option<Trial<'a>> {
        let start = trials.iter().map(|trial| trial.first_entry).min()?;
        let mut horizon = HORIZON;
        while diverged_at.saturating_add(horizon) < self.device.len() {
            horizon = horizon.saturating_mul(4);
            for trial in &mut trials {
                self.advance(&mut trial.verifier, diverged_at.saturating_add(horizon))?;
            }
            sort_trials(&mut trials, start);
            trials.truncate(BEAM_WIDTH);
        }
        sort_trials(&mut trials, start);
        trials.into_iter().next()
    }
}

/// Sorts by reach, the furthest first. Ties go to the trial that explains most, then to the simplest, then to the
/// latest.
fn sort_trials(trials: &mut [Trial<'_>], start: usize) {
    trials.sort_by_key(|trial| {
        use std::cmp::Reverse;
        (Reverse(trial.verifier.reached_entry()), trial.first_entry != start, trial.rank, Reverse(trial.first_entry))
    });
}

/// `settings` with one option changed.
fn single_option_variants(settings: &Settings, hypothesis: &Hypothesis, divergence: &Divergence) -> Vec<Settings> {
    let mut all = vec![Settings { expandable_segments: !settings.expandable_segments, ..settings.clone() }];
    all.extend(ROUNDUP_DIVISIONS.map(|d| Settings { roundup_power2_divisions: [d; 16], ..settings.clone() }));
    // If entries do not name their pool, a block may have been skipped because of its pool, not because of its size.
    if !divergence.names_pools {
        return all;
    }
    let split_sizes = std::iter::once(u64::MAX).chain(split_limits(divergence));
    all.extend(split_sizes.map(|max_split_size| Settings { max_split_size, ..settings.clone() }));
    let large_sizes = LARGE_SEGMENT_SIZES_MIB.map(|mib| mib * MIB);
    if settings.max_split_size != u64::MAX {
        all.extend(large_sizes.map(|bytes| Settings { max_non_split_rounding: bytes, ..settings.clone() }));
    }
    if hypothesis.limit.is_some() {
        let parts = (0..=9u32).map(|tenths| f64::from(tenths) / 10.0);
        all.extend(parts.map(|part| Settings { garbage_collection_threshold: part, ..settings.clone() }));
    }
    if option_since("large_segment_size_mb").is_some_and(|since| hypothesis.minor >= since) {
        all.extend(large_sizes.map(|bytes| Settings { large_segment_size: bytes, ..settings.clone() }));
    }
    all
}
