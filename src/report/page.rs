//! The page a person reads first: did it fail and where, how the memory is used, how that came, who
//! holds it.

use super::chart::chart;
use super::ranks;
use super::sheet::Page;
use super::spaces;
use super::style::{Style, tail, wrap};
use super::table::table;
use super::words::{provenance, span};
use crate::analysis::{AnalyzeReport, DeviceReport, SnapshotReport};
use crate::memory::HeldByLine;
use crate::units::{count, counted, percent, plain, ratio, size};

/// The page for one snapshot, or the table of ranks and the page for the worst of them.
pub fn page(report: &AnalyzeReport, style: Style) -> String {
    let mut page = Page::new(style);
    if let Some(ranks) = &report.ranks {
        page.out.push_str(&ranks::ranks(ranks, style));
        let worst = ranks.rows.first().map(|worst| worst.path.as_str());
        if let Some(worst) = report.snapshots.iter().find(|s| Some(s.path.as_str()) == worst) {
            page.line("");
            page.line(&style.heading("The worst of them"));
            page.snapshot(worst);
        }
    } else {
        for snapshot in &report.snapshots {
            page.snapshot(snapshot);
        }
    }
    page.out
}

impl Page {
    fn snapshot(&mut self, snapshot: &SnapshotReport) {
        self.line(&self.style.heading(&plain(&snapshot.path)));
        self.text(&provenance(snapshot));
        for device in &snapshot.devices {
            self.device(device);
        }
        if let Some(host) = &snapshot.host {
            self.heading("Pinned host memory");
            let segments = host.segments;
            self.text(&format!(
                "{} in {}",
                size(segments.bytes),
                counted(segments.count, "segment")
            ));
        }
        if !snapshot.warnings.is_empty() {
            self.heading("Notes");
            for warning in &snapshot.warnings {
                let text = format!("{}: {}", warning.code, warning.message);
                let wrapped = wrap(&text, self.style.width.saturating_sub(4), "    ");
                self.line(&format!("  {} {wrapped}", self.style.pick("•", "-")));
            }
        }
    }

    fn device(&mut self, device: &DeviceReport) {
        self.ooms(device);
        self.request(device);
        self.memory(device);
        self.course(device);
        self.held(device);
        self.holders(device);
        self.segments(device);
        self.pools_and_streams(device);
    }

    fn memory(&mut self, device: &DeviceReport) {
        let memory = &device.memory;
        let (blocks, free) = (&memory.blocks, &memory.fragmentation);
        let reserved = memory.reserved_bytes;
        self.heading(&format!("Memory of device {} at the snapshot", device.device));
        let row = |name: &str, bytes: u64, note: String| {
            vec![name.to_owned(), size(bytes), percent(ratio(bytes, reserved)), note]
        };
        let mut rows = vec![
            row("reserved", reserved, counted(memory.segments.count, "segment")),
            row(
                "allocated",
                memory.allocated_bytes,
                format!(
                    "held by the program in {}",
                    counted(blocks.active_allocated.count, "block")
                ),
            ),
        ];
        if blocks.active_pending_free.count > 0 {
            rows.push(row(
                "pending free",
                blocks.active_pending_free.bytes,
                "freed by the program, waiting for work on another stream".to_owned(),
            ));
        }
        rows.push(row(
            "free",
            blocks.inactive.bytes,
            match blocks.inactive.count {
                0 => "nothing cached".to_owned(),
                n => format!(
                    "cached in {}, the largest {}",
                    counted(n, "block"),
                    size(blocks.inactive.largest_bytes)
                ),
            },
        ));
        if blocks.inactive.count > 0 {
            let private = memory.pools.iter().filter(|p| p.pool_id != [0, 0]);
            let private = private.map(|p| p.inactive_bytes).fold(0, u64::saturating_add);
            let private = match private {
                0 => String::new(),
                bytes => format!(", or is in private pools ({})", size(bytes)),
            };
            rows.push(row(
                "  releasable",
                free.releasable_bytes,
                "empty_cache() would give it back to the device".to_owned(),
            ));
            rows.push(row(
                "  stranded",
                free.stranded_bytes,
                match free.stranded_bytes {
                    0 => "none of it is stuck beside live blocks".to_owned(),
                    _ => format!("stuck beside live blocks{private}: for smaller requests only"),
                },
            ));
        }
        self.table(&["", "bytes", "share", ""], &[0, 3], rows);
        if free.rounding_bytes > 0 {
            self.named(
                "rounding",
                &format!(
                    "{} ({}) of the blocks in use is rounding: the program asked for {}",
                    size(free.rounding_bytes),
                    percent(free.rounding_ratio),
                    size(memory.requested_bytes)
                ),
            );
        }
        let peak = &device.peak;
        if device.timeline.is_some() {
            let partly = device.timeline.as_ref().is_some_and(|t| t.events < t.trace_events);
            let at = |event: Option<u64>| match event {
                Some(event) => format!("at entry {}", count(event)),
                None if partly => "before this part of the trace".to_owned(),
                None => "before the first entry".to_owned(),
            };
            self.named(
                "peak",
                &format!(
                    "{} allocated {}, {} reserved {}",
                    size(peak.allocated_bytes),
                    at(peak.allocated_event),
                    size(peak.reserved_bytes),
                    at(peak.reserved_event)
                ),
            );
        }
    }

    fn course(&mut self, device: &DeviceReport) {
        let Some(timeline) = device.timeline.as_ref().filter(|t| t.events > 1) else { return };
        if device.peak.reserved_bytes == 0 {
            return;
        }
        let (solid, shaded) = self.style.pick(("█", "░"), ("#", "."));
        self.heading(&format!(
            "Over time ({solid} allocated  {shaded} reserved, not allocated; {})",
            span(timeline)
        ));
        self.out.push_str(&chart(timeline, &device.ooms, self.style));
    }

    fn holders(&mut self, device: &DeviceReport) {
        let all = &device.memory.blocks.active_allocated;
        if all.bytes == 0 {
            return;
        }
        self.heading("Who holds the allocated memory, by line");
        self.out.push_str(&line_rows(&device.top_lines, all.bytes, all.count, self.style));
    }

    fn segments(&mut self, device: &DeviceReport) {
        let memory = &device.memory;
        if device.segments.top_segments.is_empty() {
            return;
        }
        self.heading("Segments and blocks");
        let s = &memory.segments;
        let mut kinds = Vec::new();
        for (name, kind) in [("small", s.small), ("large", s.large)] {
            if kind.count > 0 {
                kinds.push(format!("{} {name} ({})", count(kind.count), size(kind.bytes)));
            }
        }
        let expandable = match s.expandable.count {
            0 => String::new(),
            n => format!("; {} of them expandable ({})", count(n), size(s.expandable.bytes)),
        };
        self.text(&format!("{}: {}{expandable}", counted(s.count, "segment"), kinds.join(", ")));
        let blocks = &memory.blocks;
        let states = [
            ("active_allocated", blocks.active_allocated),
            ("active_pending_free", blocks.active_pending_free),
            ("inactive", blocks.inactive),
        ];
        let rows = states
            .iter()
            .filter(|(_, b)| b.count > 0)
            .map(|(state, b)| {
                vec![
                    (*state).to_owned(),
                    count(b.count),
                    size(b.bytes),
                    size(b.bytes / b.count),
                    size(b.largest_bytes),
                ]
            })
            .collect();
        self.line("");
        self.table(&["block state", "blocks", "bytes", "mean", "largest"], &[0], rows);
        if blocks.inactive.count > 0 {
            self.line("");
            self.line("Where memory is free, most stranded first:");
            self.segment_rows(device);
        }
    }

    fn segment_rows(&mut self, device: &DeviceReport) {
        /// Below so many columns the least telling one of these is left out.
        const NARROW: usize = 86;
        const BLOCKS: usize = 3;
        let mut rows: Vec<Vec<String>> = device
            .segments
            .top_segments
            .iter()
            .filter(|s| s.inactive_bytes > 0)
            .map(|s| {
                let kind = match (s.small, s.expandable) {
                    (true, false) => "small",
                    (false, false) => "large",
                    (true, true) => "small, exp.",
                    (false, true) => "large, exp.",
                };
                vec![
                    format!("{:#x}", s.address),
                    kind.to_owned(),
                    size(s.bytes),
                    count(s.blocks),
                    size(s.allocated_bytes),
                    size(s.inactive_bytes),
                    size(s.releasable_bytes),
                ]
            })
            .collect();
        let full: Vec<_> =
            device.segments.top_segments.iter().filter(|s| s.inactive_bytes == 0).collect();
        let other = &device.segments.other_segments;
        let others = other.count + full.len() as u64;
        if others > 0 {
            let add = |of: u64, each: fn(&crate::memory::SegmentReport) -> u64| {
                full.iter().map(|s| each(s)).fold(of, u64::saturating_add)
            };
            rows.push(vec![
                format!("{} others", count(others)),
                String::new(),
                size(add(other.bytes, |s| s.bytes)),
                count(add(other.blocks, |s| s.blocks)),
                size(add(other.allocated_bytes, |s| s.allocated_bytes)),
                size(other.inactive_bytes),
                size(other.releasable_bytes),
            ]);
        }
        let mut header =
            vec!["segment", "kind", "bytes", "blocks", "allocated", "free", "releasable"];
        if self.style.width < NARROW {
            header.remove(BLOCKS);
            for row in &mut rows {
                row.remove(BLOCKS);
            }
        }
        self.table(&header, &[0, 1], rows);
    }

    fn pools_and_streams(&mut self, device: &DeviceReport) {
        let memory = &device.memory;
        if memory.pools.len() > 1 {
            self.heading("Pools");
            let (header, rows) = spaces::pools(memory);
            self.table(&header, &[0], rows);
        }
        if memory.streams.len() > 1 {
            self.heading("Streams (each can only use its own free blocks)");
            let (header, rows) = spaces::streams(memory);
            self.table(&header, &[0], rows);
        }
    }
}

/// Lines of code with what they hold of `bytes` in `blocks`.
pub(super) fn line_rows(lines: &[HeldByLine], bytes: u64, blocks: u64, style: Style) -> String {
    let room = style.width.saturating_sub(32).max(24);
    let mut rows: Vec<Vec<String>> = lines
        .iter()
        .map(|held| {
            let share = percent(held.share_ratio);
            vec![size(held.bytes), share, count(held.blocks), holder(held, room, style)]
        })
        .collect();
    let others = bytes - lines.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
    let other_blocks = blocks - lines.iter().map(|line| line.blocks).sum::<u64>();
    if other_blocks > 0 {
        let share = percent(ratio(others, bytes));
        rows.push(vec![size(others), share, count(other_blocks), "all other lines".to_owned()]);
    }
    table(style, &["bytes", "share", "blocks", "allocated by"], &[3], rows)
}

/// A line of code in `room` columns, with what was done there.
fn holder(held: &HeldByLine, room: usize, style: Style) -> String {
    let line = match &held.frame {
        Some(frame) => {
            let name = format!(" in {}", frame.name);
            let place = format!("{}:{}", frame.file, frame.line);
            let left = room.saturating_sub(name.chars().count()).max(16);
            format!("{}{name}", tail(&place, left, style))
        }
        None if held.operation.is_none() => "no stack recorded".to_owned(),
        None => "no line of the user's code".to_owned(),
    };
    match &held.operation {
        Some(operation) => format!("{line}\n  {}", tail(operation, room.saturating_sub(2), style)),
        None => line,
    }
}
