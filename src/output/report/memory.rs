//! The memory of a device: totals, segments, blocks, pools and streams.

use itertools::Itertools as _;

use super::phrases::{and_others, pool_label};
use crate::analysis::DeviceReport;
use crate::base::units::{count, counted, percent, ratio, size, stream};
use crate::output::document::{Cell, Document, Table, TableOf, amount};
use crate::output::wording::describe_position_on;
use crate::study::memory::{MemoryReport, MemoryUse};

/// Totals, rounding and peaks.
pub(super) fn memory(document: &mut Document, device: &DeviceReport) {
    let memory = &device.memory;
    // Without --at the figures are those of the snapshot.
    let at = describe_position_on(device, device.moment.unwrap_or_default());
    document.heading(format!("Memory of GPU {} {at}", device.device));
    let table = Table::from_rows(totals(memory))
        .text("", |(depth, name, ..)| Cell::indented(*depth, *name))
        .number("bytes", |(_, _, bytes, _)| amount(*bytes))
        .number("share", |(_, _, bytes, _)| percent(ratio(*bytes, memory.reserved_bytes)))
        .text("", |(.., note)| note.clone());
    document.table(table);
    let free = &memory.fragmentation;
    if free.rounding_bytes > 0 {
        let pending = if memory.blocks.active_pending_free.count > 0 { " or pending" } else { "" };
        let [rounding, requested] = [free.rounding_bytes, memory.requested_bytes].map(size);
        let part = format!("{rounding} ({}) of the blocks in use{pending}", percent(free.rounding_ratio));
        document.field("rounding", format!("{part} is rounding: the program requested {requested}"));
    }
    let Some(timeline) = &device.timeline else { return }; // no trace, no peak
    let peak = &device.peak;
    let bound = if peak.is_lower_bound { "at least " } else { "" };
    let [allocated, reserved] = [peak.allocated_bytes, peak.reserved_bytes].map(size);
    let [allocated_at, reserved_at] = [peak.allocated_event, peak.reserved_event].map(|event| match event {
        Some(event) => format!("at entry {}", count(event)),
        None if timeline.entries < timeline.trace_entries => "before this part of the trace".to_owned(),
        None => "before the first entry".to_owned(),
    });
    let text = format!("{bound}{allocated} allocated {allocated_at}, {bound}{reserved} reserved {reserved_at}");
    document.field("peak", text);
    let flushes = device.cache_flushes.map(|flushes| {
        let requests = counted(flushes.count, "request");
        format!("{} of the cache, for {requests} that found no room", size(flushes.bytes))
    });
    document.fields("released", flushes);
}

/// Depth, name, bytes and note of each kind of memory.
fn totals(memory: &MemoryReport) -> Vec<(u8, &'static str, u64, String)> {
    let (blocks, free) = (&memory.blocks, &memory.fragmentation);
    let held = format!("held by the program in {}", counted(blocks.active_allocated.count, "block"));
    let mut rows = vec![
        (0, "reserved", memory.reserved_bytes, counted(memory.segments.count, "segment")),
        (0, "allocated", memory.allocated_bytes, held),
    ];
    let pending = Some(blocks.active_pending_free).filter(|pending| pending.count > 0);
    let waiting = "freed by the program, waiting for work on another stream";
    rows.extend(pending.map(|pending| (0, "pending free", pending.bytes, waiting.to_owned())));
    let inactive = &blocks.inactive;
    if inactive.count == 0 {
        rows.push((0, "free", inactive.bytes, "nothing cached".to_owned()));
        return rows;
    }
    let (cached, largest) = (counted(inactive.count, "block"), size(memory.fragmentation.largest_free_block_bytes));
    rows.push((0, "free", inactive.bytes, format!("cached in {cached}, the largest {largest}")));
    let releasable = "empty_cache() would release it to the device".to_owned();
    rows.push((1, "releasable", free.releasable_bytes, releasable));
    let private = memory.private_pools.unwrap_or_default().inactive_bytes;
    let private = if private == 0 { String::new() } else { format!(" or in private pools ({})", size(private)) };
    let stranded = match free.stranded_bytes {
        0 => "none of it is stuck beside live blocks".to_owned(),
        _ => format!("stuck beside live blocks{private}, serves smaller requests only"),
    };
    rows.push((1, "stranded", free.stranded_bytes, stranded));
    rows
}

/// Segments by kind.
pub(super) fn segments(document: &mut Document, device: &DeviceReport) {
    let s = &device.memory.segments;
    if s.count == 0 {
        return;
    }
    document.heading("Segments");
    let kinds = [("small", s.small), ("large", s.large)].into_iter().filter(|(_, k)| k.count > 0);
    let kinds = kinds.map(|(name, k)| format!("{} {name} ({})", count(k.count), size(k.bytes))).format(", ");
    let expandable = match s.expandable.count {
        0 => String::new(),
        n => format!("; {} of them expandable ({})", count(n), size(s.expandable.bytes)),
    };
    let all = counted(s.count, "segment");
    document.paragraph(format!("{all}: {kinds}{expandable}"));
}

/// Maximum number of pools and of streams listed.
const MAX_SPACES: usize = 100;

/// The memory of the largest of `all` pools or streams, and a note on the others.
fn spaces<'m, T>(
    all: &'m [T],
    by: &'static str,
    name: impl Fn(&T) -> String,
    bytes: impl Fn(&T) -> &MemoryUse,
) -> TableOf<&'m T> {
    let by_size = (0..all.len()).sorted_by_key(|index| std::cmp::Reverse(bytes(&all[*index]).reserved_bytes));
    let shown = by_size.take(MAX_SPACES).sorted_unstable().map(|index| &all[index]);
    let more = ", which reserve no more than these (--format json lists them)";
    Table::from_rows(shown)
        .text(by, |space| name(space))
        .number("reserved", |space| size(bytes(space).reserved_bytes))
        .number("allocated", |space| size(bytes(space).allocated_bytes))
        .number("pending", |space| size(bytes(space).pending_bytes))
        .only_if(all.iter().any(|space| bytes(space).pending_bytes > 0))
        .number("free", |space| size(bytes(space).inactive_bytes))
        .note(and_others(all.len(), MAX_SPACES, "other", more))
}

/// Tables of pools and of streams, if there are several.
pub(super) fn pools_and_streams(document: &mut Document, memory: &MemoryReport) {
    if memory.pools.len() > 1 {
        document.heading("Pools");
        let table = spaces(&memory.pools, "pool", |pool| pool_label(pool.pool_id), |pool| &pool.bytes);
        document.table(table.number("used by", |pool| counted(pool.streams.len() as u64, "stream")));
    }
    if memory.streams.len() > 1 {
        document.heading("Streams (each can only use its own free blocks)");
        let table = spaces(&memory.streams, "stream", |of| stream(of.stream), |of| &of.bytes);
        document.table(table.number("largest free block", |of| size(of.largest_free_block_bytes)));
    }
}
