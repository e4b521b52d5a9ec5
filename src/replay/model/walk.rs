//! The model taken through a recording call by call, under settings that may change on the way.

use super::divergence::Divergence;
use super::hypothesis::Hypothesis;
use super::verification::{Sink, Verification};
use super::verify::Verifier;
use crate::allocator::conf::Settings;
use crate::replay::calls::Calls;
use crate::replay::facts::Reservations;
use crate::snapshot::Device;

/// Holds the model under `hypothesis` against the trace of `device`.
pub fn verify(device: Device<'_>, hypothesis: &Hypothesis) -> Verification {
    verify_and_keep(device, hypothesis, None)
}

/// The same; `keep` sees every entry that the model writes, with the recorded time of the call.
pub fn verify_and_keep(
    device: Device<'_>,
    hypothesis: &Hypothesis,
    mut keep: Option<&mut Sink<'_>>,
) -> Verification {
    let reservations = Reservations::new(device);
    let mut walk = Walk::new(device, hypothesis, &reservations);
    for later in &hypothesis.later {
        walk.go(later.from, &mut keep);
        walk.change(&later.settings);
    }
    walk.go(usize::MAX, &mut keep);
    walk.verifier.finish()
}

/// A place in a recording, and the model as it is there.
#[derive(Clone)]
pub(super) struct Walk<'a> {
    device: Device<'a>,
    verifier: Verifier<'a>,
    calls: Calls<'a>,
}

impl<'a> Walk<'a> {
    /// Before the first call.
    pub(super) fn new(
        device: Device<'a>,
        hypothesis: &Hypothesis,
        reservations: &'a Reservations,
    ) -> Self {
        let verifier = Verifier::new(device, hypothesis, reservations);
        let calls = Calls::new(device, verifier.reserved_before);
        Self { device, verifier, calls }
    }

    /// Index of the entry with which the next call begins.
    pub(super) fn position(&self) -> usize {
        self.calls.position()
    }

    /// Where the model diverged, if it did.
    pub(super) fn divergence(&self) -> Option<&Divergence> {
        self.verifier.divergence.as_ref()
    }

    /// The first entry that is not reproduced, as far as the calls were made.
    pub(super) fn reach(&self) -> usize {
        self.divergence().map_or(self.position(), |divergence| divergence.event)
    }

    /// Blocks that the program holds in the model: what a copy costs.
    pub(super) fn live(&self) -> usize {
        self.verifier.live.len()
    }

    /// From here on the allocator goes by `settings`.
    pub(super) fn change(&mut self, settings: &Settings) {
        self.verifier.set_settings(settings);
    }

    /// Makes one call, unless the trace is at its end or the model has diverged; says whether it did.
    pub(super) fn step(&mut self, keep: &mut Option<&mut Sink<'_>>) -> bool {
        if self.verifier.divergence.is_some() {
            return false;
        }
        let Some(call) = self.calls.next() else { return false };
        self.verifier.step(&call, &self.calls);
        if let Some(keep) = keep {
            let last = call.rows().end.saturating_sub(1);
            let time = self.device.time_us(last).unwrap_or(0);
            for entry in self.verifier.allocator.entries() {
                keep(entry, time);
            }
        }
        self.verifier.allocator.clear_entries();
        true
    }

    /// Makes the calls that begin before entry `end`.
    pub(super) fn go(&mut self, end: usize, keep: &mut Option<&mut Sink<'_>>) {
        while self.position() < end && self.step(keep) {}
    }
}
