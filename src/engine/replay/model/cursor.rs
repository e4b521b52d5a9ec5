//! Runs the model through a recording operation by operation, under settings that may change.

use super::divergence::Divergence;
use super::hypothesis::Hypothesis;
use super::verification::{EntrySink, Verification};
use super::verify::Verifier;
use crate::allocator::conf::Settings;
use crate::replay::literal::Reservations;
use crate::replay::ops::TraceOps;
use crate::snapshot::Device;

/// Compares the model under `hypothesis` with the trace of `device`.
pub fn verify(device: Device<'_>, hypothesis: &Hypothesis) -> Verification {
    verify_with_sink(device, hypothesis, None)
}

/// The same; `sink` receives every entry that the model writes.
pub fn verify_with_sink(
    device: Device<'_>,
    hypothesis: &Hypothesis,
    mut sink: Option<&mut EntrySink<'_>>,
) -> Verification {
    let reservations = Reservations::new(device);
    let mut walk = ReplayCursor::new(device, hypothesis, &reservations);
    for change in &hypothesis.settings_changes {
        walk.advance_to(change.first_entry, &mut sink);
        walk.set_settings(&change.settings);
    }
    walk.advance_to(usize::MAX, &mut sink);
    walk.verifier.so_far
}

/// A device with a hypothesis, and the verification of that.
#[derive(Debug)]
pub struct InferredDevice<'a> {
    pub device: Device<'a>,
    pub hypothesis: Hypothesis,
    pub verification: Verification,
}

impl<'a> InferredDevice<'a> {
    pub(super) fn verified(device: Device<'a>, hypothesis: Hypothesis) -> Self {
        let verification = verify(device, &hypothesis);
        Self { device, hypothesis, verification }
    }
}

/// A position in a recording, with the model's state there.
#[derive(Clone)]
pub(super) struct ReplayCursor<'a> {
    device: Device<'a>,
    verifier: Verifier<'a>,
    ops: TraceOps<'a>,
}

impl<'a> ReplayCursor<'a> {
    pub(super) fn new(device: Device<'a>, hypothesis: &Hypothesis, reservations: &'a Reservations) -> Self {
        let verifier = Verifier::new(device, hypothesis, reservations);
        let ops = TraceOps::new(device, verifier.so_far.reserved_before);
        Self { device, verifier, ops }
    }

    /// The entry with which the next operation begins.
    pub(super) fn position(&self) -> usize {
        self.ops.position()
    }

    pub(super) fn divergence(&self) -> Option<&Divergence> {
        self.verifier.so_far.divergence.as_ref()
    }

    /// The first entry that is not reproduced so far.
    pub(super) fn reached_entry(&self) -> usize {
        self.divergence().map_or(self.position(), |divergence| divergence.entry_index)
    }

    /// Number of live blocks: the cost of a clone.
    pub(super) fn live_blocks(&self) -> usize {
        self.verifier.live.len()
    }

    pub(super) fn set_settings(&mut self, settings: &Settings) {
        self.verifier.set_settings(settings);
    }

    /// Performs one operation; false at the end of the trace or once the model has diverged.
    pub(super) fn step(&mut self, sink: &mut Option<&mut EntrySink<'_>>) -> bool {
        if self.verifier.so_far.divergence.is_some() {
            return false;
        }
        let Some(op) = self.ops.next() else { return false }; // the end of the trace
        self.verifier.step(&op, &self.ops);
        if let Some(sink) = sink {
            let last = op.entries().end.saturating_sub(1);
            let time = self.device.time_us(last).unwrap_or(0); // snapshots write a missing time as 0
            for entry in self.verifier.so_far.allocator.entries() {
                sink(entry, time);
            }
        }
        self.verifier.so_far.allocator.clear_entries();
        true
    }

    /// Performs the operations that begin before entry `end`.
    pub(super) fn advance_to(&mut self, end: usize, sink: &mut Option<&mut EntrySink<'_>>) {
        while self.position() < end && self.step(sink) {}
    }
}
