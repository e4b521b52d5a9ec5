//! A window of a trace as a snapshot: the entries as recorded, with segments and blocks as they were at its end.
//!
//! PyTorch's `_memory_viz.py` reconstructs a trace backwards from the final blocks. The entries do not record the sizes of
//! blocks, so the blocks come from the replay.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::recording::{DeviceRecording, Recording};
use crate::allocator::releases::NEWEST;
use crate::allocator::{AllocatorEntry, BlockView, DeviceRange, SegmentView};
use crate::base::ids::StackId;
use crate::replay::literal::Layout;
use crate::replay::model::{EmittedDevice, EmittedTexts, emit};
use crate::snapshot::{Stacks, TraceEntry};
use crate::study::TracePosition;
use crate::study::lifetimes::is_live;

/// Writes the window of `recording` as a pickle of the release that recorded it.
pub fn write_window(recording: &Recording<'_, '_>, out: &mut dyn Write) -> io::Result<()> {
    let snapshot = recording.study.snapshot();
    let devices: Vec<EmittedDevice<'_>> = recording.devices.iter().map(emitted_device).collect();
    let minor = recording.study.scope().minor.or(snapshot.torch.last).unwrap_or(NEWEST);
    emit(snapshot, minor, None, &devices, out)
}

/// The window of one device.
fn emitted_device(recording: &DeviceRecording<'_, '_>) -> EmittedDevice<'static> {
    let (device, window) = (recording.device, recording.window.clone());
    let trace = device.device();
    let emitted = window.clone().map(|index| {
        let entry = trace.entry(index);
        let texts = EmittedTexts { compile_context: entry.compile_context, user_metadata: entry.user_metadata };
        let TraceEntry { action, addr, size, stream, pool, stack, time_us, .. } = entry;
        (
            (AllocatorEntry { action, addr, size, stream, pool: pool.unwrap_or_default(), context: stack }, time_us),
            texts,
        )
    });
    let (entries, texts): (Vec<_>, Vec<_>) = emitted.unzip();
    let at_end = device.memory_at(TracePosition::after(window.end.checked_sub(1).map(|entry| entry as u64)));
    let snapshot = device.snapshot();
    // Without a trace, or at its end, the file has them.
    let (segments, blocks) = match at_end.layout.as_ref().filter(|_| window.end < trace.len()) {
        Some(Layout { segments, blocks }) => (segments.clone(), &blocks[..]),
        None => (trace.segments().cloned().collect(), &snapshot.blocks[..]),
    };
    // The stacks that allocated the segments which exist at the end of the window, by address.
    let live = recording.segments().filter(|one| is_live(one.start, one.end, &(window.end..window.end)));
    let known = live.filter(|one| one.made_by != Stacks::EMPTY);
    let made_by: BTreeMap<u64, StackId> =
        known.map(|one| (one.address, device.stacks().recorded_stack(one.made_by))).collect();
    let mut views = Vec::new();
    let segments = segments.iter().map(|segment| {
        let first = views.len();
        views.extend(segment.blocks_in(blocks).iter().map(|block| BlockView { context: block.stack, ..block.into() }));
        SegmentView {
            range: DeviceRange::from(segment),
            context: made_by.get(&segment.address).copied().unwrap_or(segment.stack),
            blocks: first..views.len(),
        }
    });
    EmittedDevice { device: device.id(), entries: entries.into(), texts, segments: segments.collect(), blocks: views }
}
