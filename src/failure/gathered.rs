//! Failed requests of a trace: gathered as a replay passes them, then reported.

use super::failed::Failed;
use super::oom::OomReport;
use super::remedies::remedies;
use crate::facts::Step;
use crate::held::HeldAt;
use crate::notice::{Code, Warnings};
use crate::snapshot::Action;
use crate::study::DeviceStudy;

/// Failed requests described, the last ones: a program that retries for ever fails a million times.
pub(crate) const MAX_OOMS: usize = 1000;
/// Failures at the end of a trace for which every block is looked at.
const DESCRIBED_OOMS: usize = 16;

/// Gathers them.
pub(crate) struct Failures<'s, 'a> {
    device: DeviceStudy<'s, 'a>,
    /// How many are still to come.
    left: usize,
    /// The last of them, oldest first.
    failed: Vec<Failed>,
}

impl<'s, 'a> Failures<'s, 'a> {
    /// Of the part of the trace that is looked at.
    pub(crate) fn of(device: DeviceStudy<'s, 'a>) -> Self {
        Self { device, left: device.failed().count(), failed: Vec::new() }
    }

    /// A moment of the replay.
    #[inline]
    pub(crate) fn see(&mut self, step: &Step<'_>) {
        let Some((index, entry)) = step.entry else { return };
        if entry.action == Action::Oom && self.device.window().contains(&index) {
            debug_assert!(self.left > 0, "a replay passes every entry once");
            self.left = self.left.saturating_sub(1);
            if self.left < MAX_OOMS {
                let is_late = self.left < DESCRIBED_OOMS;
                self.failed.push(Failed::recorded(self.device, step, (index, entry), is_late));
            }
        }
    }

    /// The reports, oldest first; that of the last failure says where the memory was `held`. Why no remedy is
    /// claimed goes to `warnings`.
    pub(crate) fn reports(
        self,
        mut held: Option<HeldAt>,
        warnings: &mut Warnings,
    ) -> Vec<OomReport> {
        let Self { device, failed, .. } = self;
        let earlier = failed.len().saturating_sub(DESCRIBED_OOMS);
        let tried = remedies(device, &failed[earlier..]).unwrap_or_else(|parted| {
            let (id, entry, why) = (device.id(), parted.event, parted.why());
            warnings.add(
                Code::ModelParted,
                format!(
                    "device {id}: no remedy is claimed, and verdicts are less certain, since the model and \
                     the recording part at entry {entry}: {why}"
                ),
            );
            Vec::new()
        });
        let mut tried = tried.into_iter();
        let last = failed.len().saturating_sub(1);
        let report = |(index, failed): (usize, Failed)| {
            let tried = if index < earlier { None } else { tried.next() };
            let held = if index == last { held.take() } else { None };
            OomReport::of(device, failed, tried.unwrap_or_default(), held)
        };
        failed.into_iter().enumerate().map(report).collect()
    }
}
