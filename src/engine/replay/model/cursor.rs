//! Runs the model through a recording, under settings that may change.

use super::hypothesis::Hypothesis;
use super::verification::{EntrySink, Verification};
use super::verify::Verifier;
use crate::replay::literal::Reservations;
use crate::snapshot::Device;

/// Compares the model under `hypothesis` with the trace of `device`. `sink` receives every entry that the model writes.
pub fn verify(device: Device<'_>, hypothesis: &Hypothesis, mut sink: Option<&mut EntrySink<'_>>) -> Verification {
    let reservations = Reservations::new(device);
    let mut verifier = Verifier::new(device, hypothesis, &reservations);
    for change in &hypothesis.settings_changes {
        verifier.advance_to(change.first_entry, &mut sink);
        verifier.set_settings(&change.settings);
    }
    verifier.advance_to(usize::MAX, &mut sink);
    verifier.so_far
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
        let verification = verify(device, &hypothesis, None);
        Self { device, hypothesis, verification }
    }
}

impl Verifier<'_> {
    /// The entry with which the next operation begins.
    pub(super) fn position(&self) -> usize {
        self.ops.position()
    }

    /// The first entry that is not reproduced so far.
    pub(super) fn reached_entry(&self) -> usize {
        self.so_far.divergence.as_ref().map_or(self.position(), |divergence| divergence.entry_index)
    }

    /// Performs one operation; false at the end of the trace or once the model has diverged.
    pub(super) fn step(&mut self, sink: &mut Option<&mut EntrySink<'_>>) -> bool {
        if self.so_far.divergence.is_some() {
            return false;
        }
        let Some(op) = self.ops.next() else { return false }; // the end of the trace
        self.perform(&op);
        if let Some(sink) = sink {
            let last = op.entries.end.saturating_sub(1);
            let time = self.trace.time_us(last).unwrap_or(0); // snapshots write a missing time as 0
            for entry in &self.so_far.allocator.entries {
                sink(entry, time);
            }
        }
        self.so_far.allocator.entries.clear();
        true
    }

    /// Performs the operations that begin before entry `end`.
    pub(super) fn advance_to(&mut self, end: usize, sink: &mut Option<&mut EntrySink<'_>>) {
        while self.position() < end && self.step(sink) {}
    }
}
