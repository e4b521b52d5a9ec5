//! Failed requests of a trace, described as a replay passes them.

use super::oom::{self, OomReport};
use crate::facts::Step;
use crate::snapshot::Action;
use crate::study::DeviceStudy;

/// Failed requests described, the last ones: a program that retries for ever fails a million times.
pub(super) const MAX_OOMS: usize = 1000;
/// Failures at the end of a trace for which every block is looked at.
pub(super) const DESCRIBED_OOMS: usize = 16;

/// Gathers them.
pub(super) struct Failures<'s, 'a> {
    device: DeviceStudy<'s, 'a>,
    /// How many are still to come.
    left: usize,
    /// The last of them, oldest first.
    pub(super) ooms: Vec<OomReport>,
}

impl<'s, 'a> Failures<'s, 'a> {
    /// Of the part of the trace that is looked at.
    pub(super) fn of(device: DeviceStudy<'s, 'a>) -> Self {
        Self { device, left: device.failed().count(), ooms: Vec::new() }
    }

    /// A moment of the replay.
    #[inline]
    pub(super) fn see(&mut self, step: &Step<'_>) {
        let Some((index, entry)) = step.entry else { return };
        if entry.action == Action::Oom && self.device.window().contains(&index) {
            debug_assert!(self.left > 0, "a replay passes every entry once");
            self.left = self.left.saturating_sub(1);
            if self.left < MAX_OOMS {
                let (snapshot, stacks) = (self.device.snapshot(), self.device.stacks());
                let (settings, capacity) = (self.device.settings(), self.device.scope().capacity);
                let is_late = self.left < DESCRIBED_OOMS;
                let at = (index, entry);
                self.ooms
                    .push(oom::report(snapshot, stacks, settings, capacity, step, at, is_late));
            }
        }
    }
}
