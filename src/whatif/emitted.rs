//! The model's own snapshot: what it wrote, and how it ended.

use std::io::{self, Write};

use super::change::WhatIf;
use crate::allocator::{CachingAllocator, Entry};
use crate::replay::model::{EmittedDevice, Inferred, emit, verify_and_keep};
use crate::study::Study;

/// The entries of one device that the model wrote, each with the recorded time of its call.
pub type Journal = Vec<(Entry, u64)>;

/// A replayed device with the model's final state, for writing it out.
#[derive(Debug)]
pub struct Emitted {
    /// Device number.
    pub device: u64,
    /// What the model wrote.
    pub journal: Journal,
    /// How it ended.
    pub allocator: CachingAllocator,
}

/// The model's own trace and final state of a recording.
pub fn emitted(study: &Study<'_>) -> Vec<Emitted> {
    let emit = |one: &Inferred<'_>| {
        let mut journal = Journal::new();
        let mut push = |entry: &Entry, time: u64| journal.push((*entry, time));
        let verification = verify_and_keep(one.device, &one.hypothesis, Some(&mut push));
        Emitted { device: one.device.id(), journal, allocator: verification.allocator }
    };
    study.inference().devices.iter().map(emit).collect()
}

/// Writes the model's own trace and final state as a snapshot, under the settings and in the release of `change`:
/// that of the recording if it names none.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_snapshot(
    study: &Study<'_>,
    change: &WhatIf,
    devices: &[Emitted],
    out: &mut dyn Write,
) -> io::Result<()> {
    let views: Vec<_> = devices.iter().map(|one| one.allocator.view()).collect();
    let devices: Vec<EmittedDevice<'_>> = devices
        .iter()
        .zip(&views)
        .map(|(one, (segments, blocks))| EmittedDevice {
            device: one.device,
            entries: &one.journal,
            segments,
            blocks,
        })
        .collect();
    let under = change.settings.as_ref().map(|(settings, string)| (string.as_str(), settings));
    // What is older than the rules that are known is replayed by the oldest of them, and written as it was.
    let is_older = study.snapshot().torch.last == Some(0);
    let as_recorded = if is_older { 0 } else { *study.inference().releases.end() };
    let minor = change.minor.unwrap_or(as_recorded);
    emit(study.snapshot(), minor, under, &devices, out)
}
