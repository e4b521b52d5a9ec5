//! The tables of a recording, row by row.

use std::io;

use itertools::Itertools as _;
use rustc_hash::FxHashMap;

use super::recording::{DeviceRecording, Recording, last_entry};
use super::table::{Cell, Column, Kind, Table, TableSink, text_cell};
use crate::base::ids::{StackId, SymbolId};
use crate::base::units::escape_name;
use crate::output::wording::keeper_name;
use crate::snapshot::{Action, Snapshot, Stacks};
use crate::stacks::frames::{BEFORE_RECORDING, StackReader};
use crate::stacks::phases::Phase;
use crate::study::lifetimes::{AllocationLifetime, is_live};
use crate::study::variables::LiveVariables;

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
    /// Adds the rows of a snapshot.
    pub fn add(&mut self, recording: &Recording<'_, '_>) -> io::Result<()> {
        let [to_allocations, to_events, to_stacks, to_segments, to_run] = &mut self.0;
        let stacks = recording.study.stacks();
        let used = || UsedStacks { reader: stacks, lines: FxHashMap::default() };
        let (mut used, mut used_by_events) = (used(), used());
        for device in &recording.devices {
            let rows = DeviceRows { recording, device };
            let allocations = || rows.allocations(to_allocations, &mut used);
            let (allocations, events) = rayon::join(allocations, || rows.events(to_events, &mut used_by_events));
            allocations.and(events)?;
            rows.segments(to_segments, &mut used)?;
            rows.run(to_run)?;
        }
        used.lines.extend(used_by_events.lines);
        for (stack, line) in used.lines.into_iter().sorted_unstable() {
            let frames = stacks.frames_with_callers(stack).into_iter().map(|frame| stacks.frame_report(frame));
            let frames: Vec<_> = frames.collect();
            let cells =
                [Cell::Text(recording.path), Cell::from_u64(stack.0.into()), Cell::Text(&line), Cell::Frames(&frames)];
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
    lines: FxHashMap<StackId, String>,
}

impl UsedStacks<'_> {
    fn line(&mut self, stack: StackId) -> &str {
        let reader = self.reader;
        self.lines.entry(stack).or_insert_with(|| reader.code_location(reader.line_id(stack)).label())
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

    /// Text of the program: escaped, and nothing if it is empty.
    fn metadata(&self, text: Option<SymbolId>) -> Option<String> {
        let text = self.snapshot().text(text?);
        (!text.is_empty()).then(|| escape_name(text))
    }

    fn allocations(&self, sink: &mut impl TableSink, used: &mut UsedStacks<'_>) -> io::Result<()> {
        let device = self.device.device;
        let trace = device.device();
        let pools = self.pools();
        let variables = device.variables();
        let mut names: Vec<Option<String>> = vec![None; variables.map_or(0, LiveVariables::count)];
        let peak = self.device.peak() as usize;
        for (id, one) in (0_u64..).zip(self.device.allocations()) {
            let [start, end] = [last_entry(one.start), one.freed_at().and_then(last_entry)];
            let attached = self.device.lives.annotation(one).or_else(|| trace.entry(start?).user_metadata);
            let attached = self.metadata(attached);
            let name = one.variable(device).filter(|index| *index < names.len());
            let name = name.zip(variables).map(|(index, variables)| {
                &*names[index].get_or_insert_with(|| keeper_name(&variables.row(index, device.stacks())))
            });
            let has_stack = device.stacks().recorded_stack(one.made_by) != Stacks::EMPTY;
            let is_older = !has_stack && one.is_before_recording(device);
            if is_older {
                used.line(one.made_by); // the table of stacks has it
            }
            let AllocationLifetime { address, bytes, requested_bytes, made_by, place, .. } = *one;
            sink.row(self.key().into_iter().chain([
                Cell::from_u64(id),
                Cell::from_u64(address),
                Cell::from_u64(bytes),
                Cell::from_u64(requested_bytes),
                Cell::from_option(start.map(|entry| entry as u64)),
                Cell::from_option(end.map(|entry| entry as u64)),
                self.time_us(start),
                self.time_us(end),
                Cell::from_u64(self.device.lives.places.all[place as usize].stream),
                Cell::Text(&pools[place as usize]),
                Cell::from_u64(made_by.0.into()),
                Cell::Text(one.category.word()),
                Cell::Text(one.confidence.word()),
                text_cell(one.phase.map(Phase::word)),
                Cell::from_option(start.and_then(|entry| device.phases().steps.step_at(entry)).map(u64::from)),
                text_cell(name.map(String::as_str)),
                text_cell(attached.as_deref()),
                Cell::Text(if is_older { BEFORE_RECORDING } else { used.line(made_by) }),
                Cell::Flag(is_live(one.start, one.freed_at(), &(peak..peak))),
            ]))?;
        }
        Ok(())
    }

    fn pools(&self) -> Vec<String> {
        self.device.lives.places.all.iter().map(|place| self.snapshot().pools.label(place.pool)).collect()
    }

    fn events(&self, sink: &mut impl TableSink, used: &mut UsedStacks<'_>) -> io::Result<()> {
        let phases = self.device.device.phases();
        let (mut last_pool, mut pool_label) = (None, None);
        for index in self.device.window.clone() {
            let entry = self.device.device.device().entry(index);
            used.line(entry.extended_stack);
            let is_failure = entry.action == Action::Oom;
            let (address, free) = if is_failure { (None, Some(entry.addr)) } else { (Some(entry.addr), None) };
            if last_pool != entry.pool {
                last_pool = entry.pool;
                pool_label = entry.pool.map(|pool| self.snapshot().pools.label(pool));
            }
            let attached = self.metadata(entry.user_metadata);
            let [allocated, reserved] = self.device.totals_at(index + 1);
            sink.row(self.key().into_iter().chain([
                Cell::from_u64(index as u64),
                self.time_us(Some(index)),
                Cell::Text(entry.action.word()),
                Cell::from_option(address),
                Cell::from_u64(entry.size),
                Cell::from_option(free),
                Cell::from_u64(entry.stream),
                text_cell(pool_label.as_deref()),
                Cell::from_u64(entry.extended_stack.0.into()),
                text_cell(attached.as_deref()),
                Cell::from_u64(allocated),
                Cell::from_u64(reserved),
                Cell::Text(phases.phase_at(index).word()),
                Cell::from_option(phases.steps.step_at(index).map(u64::from)),
            ]))?;
        }
        Ok(())
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

    fn run(&self, sink: &mut impl TableSink) -> io::Result<()> {
        let (device, window) = (self.device.device, &self.device.window);
        let recorder = self.snapshot().recorder_info.as_ref();
        let host = recorder.and_then(|info| info.host.as_deref()).map(escape_name);
        let version = self.snapshot().torch_version();
        let peak = device.peak();
        // -1 compares with `start_event` and `end_event` like a position before the first entry.
        let has_trace = !device.device().is_empty();
        let peak_event = if has_trace { Cell::Integer(i64::from(self.device.peak()) - 1) } else { Cell::Null };
        let [allocated, reserved] = self.device.totals_at(window.end);
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
