//! The tables of a recording, row by row.

use std::io;

use rustc_hash::FxHashMap;

use super::recording::{DeviceRecording, Recording, last_entry};
use super::table::{Cell, Column, Kind, Table, TableSink, text_cell};
use crate::base::ids::{StackId, SymbolId};
use crate::base::units::escape_name;
use crate::output::wording::keeper_name;
use crate::snapshot::{Action, Snapshot, Stacks, TraceEntry};
use crate::stacks::frames::{BEFORE_RECORDING, StackReader};
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::lifetimes::{AllocationLifetime, is_live};

/// Rows whose cells are in one call: as many as a row group has.
const ROWS_AT_ONCE: usize = 1 << 17;

/// Tables with their columns.
macro_rules! tables {
    ($($table:ident { $($name:ident: $kind:ident),* })*) => { [$(Table {
        name: stringify!($table),
        columns: &[$(Column { name: stringify!($name), kind: Kind::$kind }),*],
    }),*] };
}

/// The tables. docs/export.md describes the columns.
pub const TABLES: [Table; 5] = tables! {
    allocations {
        path: Text, rank: OptionalInteger, device: Integer, id: Integer, address: Integer,
        bytes: Integer, requested_bytes: Integer, start_event: OptionalInteger,
        end_event: OptionalInteger, start_us: OptionalInteger, end_us: OptionalInteger,
        stream: Integer, pool_id: Text, stack_id: Integer, category: Text, confidence: Text,
        phase: OptionalText, step: OptionalInteger, name: OptionalText, user_metadata: OptionalText,
        line: Text, at_peak: Flag
    }
    events {
        path: Text, rank: OptionalInteger, device: Integer, event: Integer,
        time_us: OptionalInteger, action: Text, address: OptionalInteger, bytes: Integer,
        device_free_bytes: OptionalInteger, stream: Integer, pool_id: OptionalText,
        stack_id: Integer, user_metadata: OptionalText, allocated_bytes: Integer,
        reserved_bytes: Integer, phase: Text, step: OptionalInteger
    }
    stacks {
        path: Text, stack_id: Integer, line: Text, frames: Frames
    }
    segments {
        path: Text, rank: OptionalInteger, device: Integer, id: Integer, address: Integer,
        bytes: Integer, start_event: OptionalInteger, end_event: OptionalInteger,
        start_us: OptionalInteger, end_us: OptionalInteger, stream: Integer, pool_id: Text,
        is_small: Flag, is_expandable: Flag, stack_id: Integer
    }
    run {
        path: Text, rank: OptionalInteger, device: Integer, host: OptionalText,
        pid: OptionalInteger, torch_version: Text, first_event: Integer, events: Integer,
        start_us: OptionalInteger, end_us: OptionalInteger, capacity_bytes: OptionalInteger,
        peak_event: OptionalInteger, peak_allocated_bytes: Integer, peak_reserved_bytes: Integer,
        failures: Integer, failure_event: OptionalInteger, allocated_bytes: Integer,
        reserved_bytes: Integer
    }
};

/// Writes each of [`TABLES`] to the sink at its place.
pub struct TableSet<S>(pub [S; 5]);

impl<S: TableSink + Send> TableSet<S> {
    /// Opens a sink for each table.
    ///
    /// # Errors
    /// The first error of `open`.
    pub fn open<E>(mut open: impl FnMut(Table) -> Result<S, E>) -> Result<Self, E> {
        let [allocations, events, stacks, segments, run] = TABLES;
        Ok(Self([open(allocations)?, open(events)?, open(stacks)?, open(segments)?, open(run)?]))
    }

    /// Adds the rows of a snapshot.
    pub fn add(&mut self, recording: &Recording<'_, '_>) -> io::Result<()> {
        let [to_allocations, to_events, to_stacks, to_segments, to_run] = &mut self.0;
        let stacks = recording.study.stacks();
        let count = recording.study.snapshot().stacks.len();
        let mut used = UsedStacks { reader: stacks, lines: vec![None; count] };
        let mut used_by_events = vec![false; count];
        for device in &recording.devices {
            let rows = DeviceRows { recording, device };
            let (allocations, events) = rayon::join(
                || rows.allocations(to_allocations, &mut used),
                || rows.events(to_events, &mut used_by_events),
            );
            let last_totals = allocations.and(events)?;
            rows.segments(to_segments, &mut used)?;
            rows.run(to_run, last_totals)?;
        }
        for (index, is_used_by_events) in used_by_events.into_iter().enumerate() {
            if !is_used_by_events && used.lines[index].is_none() {
                continue;
            }
            let stack = StackId::from_index(index);
            let line = used.line(stack);
            let frames = stacks.frames_with_callers(stack).into_iter().map(|frame| stacks.frame_report(frame));
            let frames: Vec<_> = frames.collect();
            let cells =
                [Cell::Text(recording.path), Cell::from_u64(stack.0.into()), Cell::Text(line), Cell::Frames(&frames)];
            to_stacks.row(cells)?;
        }
        Ok(())
    }

    /// Completes the files.
    pub fn finish(&mut self) -> io::Result<()> {
        self.0.iter_mut().try_for_each(TableSink::finish)
    }
}

/// The stacks that rows refer to, with the source line of each.
struct UsedStacks<'r> {
    reader: &'r StackReader<'r>,
    /// By stack.
    lines: Vec<Option<String>>,
}

impl UsedStacks<'_> {
    fn line(&mut self, stack: StackId) -> &str {
        let reader = self.reader;
        self.lines[stack.index()].get_or_insert_with(|| reader.code_location(reader.line_id(stack)).label())
    }

    /// The line of an allocation whose stack is among them.
    fn line_of(&self, one: &AllocationLifetime, device: DeviceStudy<'_, '_>) -> Option<&str> {
        let has_stack = self.reader.recorded_stack(one.made_by) != Stacks::EMPTY;
        let is_older = !has_stack && one.is_before_recording(device);
        if is_older { Some(BEFORE_RECORDING) } else { self.lines[one.made_by.index()].as_deref() }
    }
}

/// The rows of one device.
struct DeviceRows<'r, 's, 'a> {
    recording: &'r Recording<'s, 'a>,
    device: &'r DeviceRecording<'s, 'a>,
}

impl DeviceRows<'_, '_, '_> {
    /// The cells that most tables begin with.
    fn key(&self) -> [Cell<'_>; 3] {
        let Recording { path, rank, .. } = self.recording;
        [Cell::Text(path), Cell::from_option(*rank), Cell::from_u64(self.device.device.id())]
    }

    fn snapshot(&self) -> &Snapshot {
        self.recording.study.snapshot()
    }

    fn time_us(&self, entry: Option<usize>) -> Cell<'static> {
        Cell::from_option(entry.and_then(|entry| self.device.device.device().time_us(entry)))
    }

    /// Adds text of the program to `texts`: escaped, and nothing if it is empty.
    fn add_text(&self, texts: &mut FxHashMap<SymbolId, Option<String>>, symbol: Option<SymbolId>) {
        let Some(symbol) = symbol else { return }; // no text
        let text = self.snapshot().text(symbol);
        texts.entry(symbol).or_insert_with(|| (!text.is_empty()).then(|| escape_name(text)));
    }

    /// Text that the program attached to an allocation.
    fn attached(&self, one: &AllocationLifetime) -> Option<SymbolId> {
        let DeviceRecording { device, lives, .. } = self.device;
        lives.annotation(one).or_else(|| device.device().entry(last_entry(one.start)?).user_metadata)
    }

    fn allocations(&self, sink: &mut impl TableSink, used: &mut UsedStacks<'_>) -> io::Result<()> {
        let device = self.device.device;
        let (stacks, lives, steps) = (device.stacks(), &self.device.lives, &device.phases().steps);
        let pools = self.pools();
        let variables = device.variables().into_iter();
        let names = variables.flat_map(|all| (0..all.count()).map(|index| keeper_name(&all.row(index, stacks))));
        let names: Vec<String> = names.collect();
        let peak = self.device.peak() as usize;
        let key = self.key();
        let mut allocations = self.device.allocations();
        for first in (0_u64..).step_by(ROWS_AT_ONCE) {
            let all: Vec<&AllocationLifetime> = allocations.by_ref().take(ROWS_AT_ONCE).collect();
            if all.is_empty() {
                break;
            }
            let mut texts = FxHashMap::default();
            for one in &all {
                used.line(one.made_by);
                self.add_text(&mut texts, self.attached(one));
            }
            let starts: Vec<Option<usize>> = all.iter().map(|one| last_entry(one.start)).collect();
            sink.rows(
                all.len(),
                &[
                    &|_| key[0],
                    &|_| key[1],
                    &|_| key[2],
                    &|row| Cell::from_u64(first + row as u64),
                    &|row| Cell::from_u64(all[row].address),
                    &|row| Cell::from_u64(lives.kind_of(all[row]).bytes),
                    &|row| Cell::from_u64(lives.kind_of(all[row]).requested_bytes),
                    &|row| Cell::from_option(starts[row].map(|entry| entry as u64)),
                    &|row| Cell::from_option(all[row].freed_at().and_then(last_entry).map(|entry| entry as u64)),
                    &|row| self.time_us(starts[row]),
                    &|row| self.time_us(all[row].freed_at().and_then(last_entry)),
                    &|row| Cell::from_u64(lives.places.all[lives.kind_of(all[row]).place as usize].stream),
                    &|row| Cell::Text(&pools[lives.kind_of(all[row]).place as usize]),
                    &|row| Cell::from_u64(all[row].made_by.0.into()),
                    &|row| Cell::Text(all[row].category.word()),
                    &|row| Cell::Text(all[row].confidence.word()),
                    &|row| text_cell(all[row].phase.map(Phase::word)),
                    &|row| Cell::from_option(starts[row].and_then(|entry| steps.step_at(entry)).map(u64::from)),
                    &|row| text_cell(all[row].variable(device).map(|index| &*names[index])),
                    &|row| text_cell(self.attached(all[row]).and_then(|text| texts[&text].as_deref())),
                    &|row| text_cell(used.line_of(all[row], device)),
                    &|row| Cell::Flag(is_live(all[row].start, all[row].freed_at(), &(peak..peak))),
                ],
            )?;
        }
        Ok(())
    }

    fn pools(&self) -> Vec<String> {
        self.device.lives.places.all.iter().map(|place| self.snapshot().pools.label(place.pool)).collect()
    }

    /// Returns the totals after the last entry.
    fn events(&self, sink: &mut impl TableSink, used: &mut [bool]) -> io::Result<[u64; 2]> {
        let (phases, trace, window) = (self.device.device.phases(), self.device.device.device(), &self.device.window);
        let (mut texts, mut pools, mut last_pool) = (FxHashMap::default(), FxHashMap::default(), None);
        for index in window.clone() {
            let TraceEntry { extended_stack, pool, user_metadata, .. } = trace.entry(index);
            used[extended_stack.index()] = true;
            self.add_text(&mut texts, user_metadata);
            if let Some(pool) = pool.filter(|pool| last_pool.replace(*pool) != Some(*pool)) {
                pools.entry(pool).or_insert_with(|| self.snapshot().pools.label(pool));
            }
        }
        let key = self.key();
        let (mut totals, mut last) = (Vec::new(), [0; 2]);
        self.device.each_totals(|applied, now| {
            last = now;
            if applied > window.start {
                totals.push(now);
            }
            if totals.len() < ROWS_AT_ONCE && applied < window.end {
                return Ok(());
            }
            let first = applied - totals.len();
            let entries: Vec<TraceEntry> = (first..applied).map(|index| trace.entry(index)).collect();
            sink.rows(
                totals.len(),
                &[
                    &|_| key[0],
                    &|_| key[1],
                    &|_| key[2],
                    &|row| Cell::from_u64((first + row) as u64),
                    &|row| self.time_us(Some(first + row)),
                    &|row| Cell::Text(entries[row].action.word()),
                    &|row| Cell::from_option((entries[row].action != Action::Oom).then_some(entries[row].addr)),
                    &|row| Cell::from_u64(entries[row].size),
                    &|row| Cell::from_option((entries[row].action == Action::Oom).then_some(entries[row].addr)),
                    &|row| Cell::from_u64(entries[row].stream),
                    &|row| text_cell(entries[row].pool.map(|pool| &*pools[&pool])),
                    &|row| Cell::from_u64(entries[row].extended_stack.0.into()),
                    &|row| text_cell(entries[row].user_metadata.and_then(|text| texts[&text].as_deref())),
                    &|row| Cell::from_u64(totals[row][0]),
                    &|row| Cell::from_u64(totals[row][1]),
                    &|row| Cell::Text(phases.phase_at(first + row).word()),
                    &|row| Cell::from_option(phases.steps.step_at(first + row).map(u64::from)),
                ],
            )?;
            totals.clear();
            Ok(())
        })?;
        Ok(last)
    }

    fn segments(&self, sink: &mut impl TableSink, used: &mut UsedStacks<'_>) -> io::Result<()> {
        let pools = self.pools();
        for (id, one) in (0_u64..).zip(self.device.segments()) {
            used.line(one.made_by);
            let [start, end] = [last_entry(one.start), one.end.and_then(last_entry)];
            let place = &self.device.lives.places.all[one.place as usize];
            sink.row(self.key().into_iter().chain([
                Cell::from_u64(id),
                Cell::from_u64(one.address),
                Cell::from_u64(one.bytes),
                Cell::from_option(start.map(|entry| entry as u64)),
                Cell::from_option(end.map(|entry| entry as u64)),
                self.time_us(start),
                self.time_us(end),
                Cell::from_u64(place.stream),
                Cell::Text(&pools[one.place as usize]),
                Cell::Flag(place.is_small),
                Cell::Flag(one.is_expandable),
                Cell::from_u64(one.made_by.0.into()),
            ]))?;
        }
        Ok(())
    }

    fn run(&self, sink: &mut impl TableSink, [allocated, reserved]: [u64; 2]) -> io::Result<()> {
        let (device, window) = (self.device.device, &self.device.window);
        let recorder = self.snapshot().recorder_info.as_ref();
        let host = recorder.and_then(|info| info.host.as_deref()).map(escape_name);
        let version = self.snapshot().torch_version();
        let peak = device.peak();
        // -1 compares with `start_event` and `end_event` like a position before the first entry.
        let has_trace = !device.device().is_empty();
        let peak_event = if has_trace { Cell::Integer(i64::from(self.device.peak()) - 1) } else { Cell::Null };
        sink.row(self.key().into_iter().chain([
            text_cell(host.as_deref()),
            Cell::from_option(recorder.and_then(|info| info.pid)),
            Cell::Text(&version),
            Cell::from_u64(window.start as u64),
            Cell::from_u64(window.len() as u64),
            self.time_us(Some(window.start)),
            self.time_us(window.end.checked_sub(1)),
            Cell::from_option(device.capacity()),
            peak_event,
            Cell::from_u64(peak.allocated_bytes),
            Cell::from_u64(peak.reserved_bytes),
            Cell::from_u64(device.failed_requests().count() as u64),
            Cell::from_option(device.failed_requests().next_back().map(|entry| entry as u64)),
            Cell::from_u64(allocated),
            Cell::from_u64(reserved),
        ]))
    }
}
