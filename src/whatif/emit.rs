//! The run of the model as a snapshot: the trace that it wrote, and its final state.

use std::io::{self, Write};

use super::overrides::Overrides;
use crate::allocator::{AllocatorEntry, CachingAllocator};
use crate::replay::model::{EmittedDevice, emit, verify};
use crate::study::Study;

/// The trace entries that the model wrote, each with the recorded time of its call.
pub type Journal = Vec<(AllocatorEntry, u64)>;

/// One device's trace, replayed by the model.
#[derive(Debug)]
pub struct ModelRun {
    /// Device index.
    pub device: u64,
    /// The trace that the model wrote.
    pub journal: Journal,
    /// The final state.
    pub allocator: CachingAllocator,
}

/// Replays every device under the inferred hypothesis, and keeps the entries that the model writes.
pub fn run_model(study: &Study<'_>) -> Vec<ModelRun> {
    let runs = study.inference().devices.iter().map(|inferred| {
        let mut journal = Journal::new();
        let verification =
            verify(inferred.device, &inferred.hypothesis, Some(&mut |entry, time| journal.push((*entry, time))));
        ModelRun { device: inferred.device.id(), journal, allocator: verification.allocator }
    });
    runs.collect()
}

/// Writes `runs` as a snapshot with the settings and in the release of `overrides`, or as recorded where it has none.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_snapshot(
    study: &Study<'_>,
    overrides: &Overrides,
    runs: &[ModelRun],
    out: &mut dyn Write,
) -> io::Result<()> {
    let devices = runs.iter().map(|run| {
        let (segments, blocks) = run.allocator.view();
        EmittedDevice { device: run.device, entries: (&run.journal[..]).into(), texts: Vec::new(), segments, blocks }
    });
    let devices: Vec<EmittedDevice<'_>> = devices.collect();
    let settings = overrides.settings.as_ref().map(|(settings, string)| (string.as_str(), settings));
    let minor = overrides.minor.unwrap_or(*study.inference().releases.end());
    emit(study.snapshot(), minor, settings, &devices, out)
}
