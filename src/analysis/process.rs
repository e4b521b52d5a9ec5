//! Which process wrote a snapshot: one process may leave several.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;

use crate::snapshot::{Device, Snapshot};
use crate::study::Study;

/// Entries of a fingerprint. A single time may coincide: a thousand ranks start within a second.
const ENTRIES: usize = 16;

/// Fingerprint of the process: the start of its trace, with times. `None` if no times were recorded. The processes of a
/// dry run may make only a few requests; they are distinguished by process id, as are short traces.
pub(super) fn process(study: &Study<'_>) -> Option<u64> {
    let recorder = study.snapshot().recorder_info.as_ref();
    let recorded = recorder.and_then(|info| Some((info.host.as_ref()?, info.pid?)));
    // Numbers of processes repeat, so the first time counts as well.
    let first_us = |device: Device<'_>| if device.is_empty() { None } else { device.time_us(0) };
    let of_recorder =
        || Some(FxBuildHasher.hash_one((recorded?, study.devices().map(|it| first_us(it.device())).min())));
    let of_trace = || study.devices().find_map(|device| start_of_trace(device.device()));
    if recorder.is_some_and(|info| info.dry_run.is_some()) {
        of_recorder().or_else(of_trace)
    } else {
        of_trace().or_else(of_recorder)
    }
}

/// Fingerprint of the process, or else of everything in the snapshot that differs between processes. Two files with the
/// same fingerprint count as one.
pub fn process_or_contents(study: &Study<'_>) -> u64 {
    process(study).unwrap_or_else(|| contents(study.snapshot()))
}

fn start_of_trace(device: Device<'_>) -> Option<u64> {
    if device.len() < ENTRIES {
        return None;
    }
    let times = (0..ENTRIES).map(|entry| device.time_us(entry)).collect::<Option<Vec<u64>>>()?;
    Some(FxBuildHasher.hash_one((device.entry(0).addr, times)))
}

fn contents(snapshot: &Snapshot) -> u64 {
    let entry = |hash: u64, device: Device<'_>, index: usize| {
        let entry = device.entry(index);
        FxBuildHasher.hash_one((hash, entry.action.word(), entry.addr, entry.size, entry.stream, entry.time_us))
    };
    let process = snapshot.recorder_info.as_ref().map(|info| (&info.rank, &info.host, info.pid));
    snapshot.devices().fold(FxBuildHasher.hash_one(process), |hash, device| {
        let hash = (0..device.len()).fold(hash, |hash, index| entry(hash, device, index));
        let hash = device.segments().fold(FxBuildHasher.hash_one((hash, device.id())), |hash, segment| {
            FxBuildHasher.hash_one((hash, segment.address, segment.total_size, segment.stream))
        });
        device
            .blocks()
            .fold(hash, |hash, block| FxBuildHasher.hash_one((hash, block.address, block.size, block.requested_size)))
    })
}
