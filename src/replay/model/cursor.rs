//! The model taken through a recording call by call, under settings that may change on the way.

use super::divergence::Divergence;
use super::hypothesis::Hypothesis;
use super::verification::{EntrySink, Verification};
use super::verify::Verifier;
use crate::allocator::conf::Settings;
use crate::replay::ops::TraceOps;
use crate::replay::literal::Reservations;
use crate::snapshot::Device;

/// Holds the model under `hypothesis` against the trace of `device`.
pub fn verify(device: Device<'_>, hypothesis: &Hypothesis) -> Verification {
    verify_with_sink(device, hypothesis, None)
}

/// The same; `keep` sees every entry that the model writes, with the recorded time of the call.
pub fn verify_with_sink(
    device: Device<'_>,
    hypothesis: &Hypothesis,
    mut keep: Option<&mut EntrySink<'_>>,
) -> Verification {
    let reservations = Reservations::new(device);
    let mut walk = ReplayCursor::new(device, hypothesis, &reservations);
    for later in &hypothesis.settings_changes {
        walk.advance_to(later.first_entry, &mut keep);
        walk.set_settings(&later.settings);
    }
    walk.advance_to(usize::MAX, &mut keep);
    walk.verifier.finish()
}

/// A place in a recording, and the model as it is there.
#[derive(Clone)]
pub(super) struct ReplayCursor<'a> {
    device: Device<'a>,
    verifier: Verifier<'a>,
    ops: TraceOps<'a>,
}

impl<'a> ReplayCursor<'a> {
    /// Before the first call.
    pub(super) fn new(
        device: Device<'a>,
        hypothesis: &Hypothesis,
        reservations: &'a Reservations,
    ) -> Self {
        let verifier = Verifier::new(device, hypothesis, reservations);
        let calls = TraceOps::new(device, verifier.reserved_before);
        Self { device, verifier, ops: calls }
    }

    /// Index of the entry with which the next call begins.
    pub(super) fn position(&self) -> usize {
        self.ops.position()
    }

    /// Where the model diverged, if it did.
    pub(super) fn divergence(&self) -> Option<&Divergence> {
        self.verifier.divergence.as_ref()
    }

    /// The first entry that is not reproduced, as far as the calls were made.
    pub(super) fn reached_entry(&self) -> usize {
        self.divergence().map_or(self.position(), |divergence| divergence.entry_index)
    }

    /// Blocks that the program holds in the model: what a copy costs.
    pub(super) fn live_blocks(&self) -> usize {
        self.verifier.live.len()
    }

    /// From here on the allocator goes by `settings`.
    pub(super) fn set_settings(&mut self, settings: &Settings) {
        self.verifier.set_settings(settings);
    }

    /// Makes one call, unless the trace is at its end or the model has diverged; says whether it did.
    pub(super) fn step(&mut self, keep: &mut Option<&mut EntrySink<'_>>) -> bool {
        if self.verifier.divergence.is_some() {
            return false;
        }
        let Some(call) = self.ops.next() else { return false };
        self.verifier.step(&call, &self.ops);
        if let Some(keep) = keep {
            let last = call.entries().end.saturating_sub(1);
            let time = self.device.time_us(last).unwrap_or(0);
            for entry in self.verifier.allocator.entries() {
                keep(entry, time);
            }
        }
        self.verifier.allocator.clear_entries();
        true
    }

    /// Makes the calls that begin before entry `end`.
    pub(super) fn advance_to(&mut self, end: usize, keep: &mut Option<&mut EntrySink<'_>>) {
        while self.position() < end && self.step(keep) {}
    }
}
