//! Our figures are PyTorch's own: every fixture against the `torch.cuda.memory_stats()` and the error
//! message that were recorded with it. Slow: every recording is analyzed.

use crate::support::recorded::{Recorded, between, format_size};
use crate::support::{fixtures, recorded};
use oomscope::analysis::{DeviceReport, SnapshotReport};
use oomscope::replay::literal::{LiteralOutcome, LiteralReplay, Totals, Tracking};
use oomscope::snapshot::{Action, Block, BlockState, Device, Snapshot};
use oomscope::study::{Scope, Study};

/// Recordings of the C++ pickler, which have no statistics beside them.
const WITHOUT_STATISTICS: [&str; 2] = ["2.1.2-cpp_pickler-streams", "2.15.0-cpp_pickler-streams"];
/// Recorded from the middle of a run on: what came before is not in the file, but its peaks are in
/// PyTorch's statistics.
const TRUNCATED: [&str; 2] = ["2.15.0-gpt_varlen-late", "2.15.0-gpt_varlen-wrapped"];
/// PyTorch 2.3 cuts its message off after the number of the GPU, which it leaves out as well.
const CUT_MESSAGE: [&str; 1] = ["2.3.1-holes-at-oom"];
/// Nothing was recorded but the final state.
const WITHOUT_TRACE: [&str; 1] = ["2.15.0-gpt_varlen-no-history"];

/// Calls `check` with every device that has statistics.
fn for_every_device(mut check: impl FnMut(&Recorded, &Snapshot, &SnapshotReport, &DeviceReport)) {
    for recorded in recorded::all() {
        let snapshot = fixtures::study(&recorded.name).snapshot();
        let report = fixtures::report(&recorded.name);
        assert!(!report.devices.is_empty(), "{}", recorded.name);
        for device in &report.devices {
            check(&recorded, snapshot, report, device);
        }
    }
}

fn index(device: &DeviceReport) -> usize {
    usize::try_from(device.device).unwrap()
}

#[track_caller]
fn same(recorded: &Recorded, device: &DeviceReport, figures: &[(&str, u64)]) {
    for (key, ours) in figures {
        let theirs = recorded.stat(index(device), key);
        assert_eq!(*ours, theirs, "{} of device {} of {}", key, device.device, recorded.name);
    }
}

/// Free blocks that have a neighbour in their segment, which cannot be an expandable one.
fn split_free_blocks(snapshot: &Snapshot, device: u64) -> u64 {
    let is_free = |b: &&Block| b.state == BlockState::Inactive;
    let segments = snapshot.device(device).segments().filter(|s| !s.is_expandable);
    let blocks = segments.map(|s| snapshot.blocks_of(s)).filter(|b| b.len() > 1);
    blocks.map(|blocks| blocks.iter().filter(is_free).count() as u64).sum()
}

#[test]
fn the_memory_at_the_snapshot_is_what_pytorch_counted() {
    let mut devices = 0;
    for_every_device(|recorded, snapshot, _, device| {
        let memory = &device.memory;
        let blocks = &memory.blocks;
        let active = blocks.active_allocated.count + blocks.active_pending_free.count;
        same(
            recorded,
            device,
            &[
                ("reserved_bytes.all.current", memory.reserved_bytes),
                ("reserved_bytes.small_pool.current", memory.segments.small.bytes),
                ("reserved_bytes.large_pool.current", memory.segments.large.bytes),
                ("allocated_bytes.all.current", memory.allocated_bytes),
                ("active_bytes.all.current", memory.active_bytes),
                ("requested_bytes.all.current", memory.requested_bytes),
                ("inactive_split_bytes.all.current", memory.fragmentation.inactive_split_bytes),
                ("inactive_split.all.current", split_free_blocks(snapshot, device.device)),
                // PyTorch counts only what cudaMalloc gave.
                ("segment.all.current", memory.segments.count - memory.segments.expandable.count),
                ("allocation.all.current", blocks.active_allocated.count),
                ("active.all.current", active),
            ],
        );
        devices += 1;
    });
    assert!(devices > 60, "only {devices} devices were compared");
}

/// The highest of each total in the literal replay of `device`'s trace, and what it came to.
fn peaks(device: Device<'_>) -> (Totals, LiteralOutcome) {
    let settings = Study::new(device.snapshot(), Scope::default()).settings().clone();
    let mut peak = Totals::default();
    let outcome = LiteralReplay { device, settings: &settings, settings_changes: &[] }.run(Tracking::Totals, |step| {
        let now = step.tiling.totals();
        peak.reserved = peak.reserved.max(now.reserved);
        peak.allocated = peak.allocated.max(now.allocated);
        peak.active = peak.active.max(now.active);
        peak.requested = peak.requested.max(now.requested);
    });
    (peak, outcome)
}

#[test]
fn the_peaks_are_those_that_pytorch_counted() {
    let mut compared = 0;
    for_every_device(|recorded, snapshot, report, device| {
        let name = recorded.name.as_str();
        assert_eq!(report.truncated, TRUNCATED.contains(&name), "{name}");
        assert_eq!(device.timeline.is_none(), WITHOUT_TRACE.contains(&name), "{name}");
        if report.truncated || device.timeline.is_none() {
            return;
        }
        let (peaks, outcome) = peaks(snapshot.device(device.device));
        same(
            recorded,
            device,
            &[
                ("reserved_bytes.all.peak", device.peak.reserved_bytes),
                ("reserved_bytes.all.peak", peaks.reserved),
                ("num_ooms", device.oom_count),
            ],
        );
        assert_eq!((outcome.contradictions, outcome.end_differences), (0, 0), "{name}");
        same(
            recorded,
            device,
            &[
                ("allocated_bytes.all.peak", device.peak.allocated_bytes),
                ("allocated_bytes.all.peak", peaks.allocated),
                ("active_bytes.all.peak", peaks.active),
                ("requested_bytes.all.peak", peaks.requested),
            ],
        );
        compared += 1;
    });
    assert!(compared > 55, "only {compared} devices were compared");
}

#[test]
fn the_last_failed_request_is_the_one_of_the_error_message() {
    let mut compared = 0;
    for_every_device(|recorded, snapshot, _, device| {
        let Some(error) = &recorded.error else { return };
        let name = &recorded.name;
        let oom = device.ooms.last().unwrap_or_else(|| panic!("{name}: no failed request"));
        let asked = between(error, "Tried to allocate ", ". GPU ");
        assert_eq!(asked, Some(format_size(oom.segment_bytes).as_str()), "{name}: {error}");
        if CUT_MESSAGE.contains(&name.as_str()) {
            assert!(error.ends_with("GPU "), "{name} needs no exception any more");
            return;
        }
        let free = between(error, " of which ", " is free");
        assert_eq!(free, Some(format_size(oom.device_free_bytes).as_str()), "{name}: {error}");
        // No other process held device memory; PyTorch 2.1 misspelt the word.
        let capacity = between(error, "total capacity of ", " of which")
            .or_else(|| between(error, "total capacty of ", " of which"));
        let all = format_size(oom.device_free_bytes + oom.reserved_bytes);
        assert_eq!(capacity, Some(all.as_str()), "{name}: {error}");
        let allocated = between(error, "Of the allocated memory ", " is allocated by PyTorch");
        assert_eq!(allocated, Some(format_size(oom.allocated_bytes).as_str()), "{name}: {error}");
        let unallocated = format_size(oom.reserved_bytes - oom.allocated_bytes);
        assert!(error.contains(&format!("and {unallocated} is reserved")), "{name}: {error}");

        let last = snapshot.device(device.device).entries().next_back();
        if last.is_some_and(|entry| entry.action == Action::Oom) {
            assert_eq!(oom.reserved_bytes, device.memory.reserved_bytes, "{name}");
            assert_eq!(oom.allocated_bytes, device.memory.allocated_bytes, "{name}");
            assert_eq!(oom.cached_bytes, device.memory.blocks.inactive.bytes, "{name}");
        }
        compared += 1;
    });
    assert!(compared > 15, "only {compared} messages were compared");
}

#[test]
fn every_recording_has_its_statistics_save_those_listed() {
    let without: Vec<String> = fixtures::names().into_iter().filter(|name| recorded::of(name).is_none()).collect();
    assert_eq!(without, WITHOUT_STATISTICS);
}
