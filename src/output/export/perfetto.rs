//! A trace for Perfetto: counters, slices and failed requests of each device.
//!
//! Native packets rather than JSON: Perfetto reads them faster. All packets belong to one sequence.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::protobuf::Message;
use super::recording::{DeviceRecording, Recording};
use super::tracks::Track;
use crate::base::units::size;

/// Fields of `Trace` and `TracePacket`.
mod packet {
    pub(super) const IN_TRACE: u32 = 1;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const DEFAULTS: u32 = 59;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of `TrackEvent` and of its annotations.
mod event {
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const TRACK: u32 = 11;
    pub(super) const NAME: u32 = 23;
    pub(super) const COUNTER_VALUE: u32 = 30;

    pub(super) const SLICE_BEGIN: u64 = 1;
    pub(super) const SLICE_END: u64 = 2;
    pub(super) const INSTANT: u64 = 3;
    pub(super) const COUNTER: u64 = 4;

    pub(super) const ANNOTATION_NAME: u32 = 10;
    pub(super) const ANNOTATION_UNSIGNED: u32 = 3;
    pub(super) const ANNOTATION_TEXT: u32 = 6;
}

const SEQUENCE: u64 = 1;
const INCREMENTAL_STATE_CLEARED: u64 = 1;
const NEEDS_INCREMENTAL_STATE: u64 = 2;

/// Clocks of Perfetto.
const CLOCK_REALTIME: u64 = 1;
const CLOCKS: [u64; 3] = [CLOCK_REALTIME, 3, 6]; // realtime, monotonic, boot time

/// Writes packets.
pub struct PerfettoWriter<W> {
    out: W,
    /// The number of the last track.
    last_track: u64,
    pids: BTreeSet<u64>,
}

impl<W: Write> PerfettoWriter<W> {
    /// A writer to `out`.
    pub fn new(out: W) -> Self {
        Self { out, last_track: 0, pids: BTreeSet::new() }
    }

    /// Adds a snapshot as a process.
    pub fn add(&mut self, recording: &Recording<'_, '_>) -> io::Result<()> {
        let starts = recording.devices.iter().filter(|device| !device.window.is_empty());
        let first_us = starts.map(|device| device.time_us(device.window.start)).min().unwrap_or_default();
        if self.last_track == 0 {
            self.start(first_us)?;
        }
        let pid = self.pid(recording);
        let process = self.next_track();
        self.track(&describe_process(recording, process, pid))?;
        for device in &recording.devices {
            self.device(device, process)?;
        }
        Ok(())
    }

    /// The first packet: the clock of all others.
    fn start(&mut self, first_us: u64) -> io::Result<()> {
        const CLOCK_ID: u32 = 58;
        let defaults = Message::new().unsigned(CLOCK_ID, CLOCK_REALTIME).message(packet::TRACK_EVENT, &Message::new());
        let clocks = CLOCKS.into_iter().fold(Message::new(), |clocks, id| {
            clocks.message(1, &Message::new().unsigned(1, id).unsigned(2, nanoseconds(first_us)))
        });
        let first = start_packet(INCREMENTAL_STATE_CLEARED).message(packet::DEFAULTS, &defaults);
        self.write(&first.unsigned(packet::TIMESTAMP, nanoseconds(first_us)).message(packet::CLOCK_SNAPSHOT, &clocks))
    }

    /// The recorded process id; another number if two snapshots have the same.
    fn pid(&mut self, recording: &Recording<'_, '_>) -> u64 {
        let recorded = recording.study.snapshot().recorder_info.as_ref().and_then(|info| info.pid).unwrap_or(1);
        let mut free = (0..).map(|others| recorded.wrapping_add(others));
        free.find(|pid| self.pids.insert(*pid)).unwrap_or(recorded)
    }

    fn device(&mut self, device: &DeviceRecording<'_, '_>, process: u64) -> io::Result<()> {
        let slices = device.slices();
        let numbers = self.describe_device(device, process, device.tracks(&slices))?; // all tracks in use
        if !device.window.is_empty() {
            device.counters(|track, time_us, bytes| {
                self.event(time_us, &start_event(event::COUNTER, numbers[&track]).unsigned(event::COUNTER_VALUE, bytes))
            })?;
        }
        for slice in &slices {
            let begin = start_event(event::SLICE_BEGIN, numbers[&slice.track]).string(event::NAME, &slice.name);
            let bytes = slice.bytes.map(|bytes| annotation("bytes", bytes));
            let begin = bytes.iter().fold(begin, |begin, bytes| begin.message(event::ANNOTATION, bytes));
            self.event(slice.time_us.start, &begin)?;
            self.event(slice.time_us.end, &start_event(event::SLICE_END, numbers[&slice.track]))?;
        }
        device.device.failed_requests().try_for_each(|index| self.failure(numbers[&Track::Failures], device, index))
    }

    fn next_track(&mut self) -> u64 {
        self.last_track += 1;
        self.last_track
    }

    /// Describes a group for the device and its tracks; returns their numbers.
    fn describe_device(
        &mut self,
        device: &DeviceRecording<'_, '_>,
        process: u64,
        tracks: BTreeSet<Track>,
    ) -> io::Result<BTreeMap<Track, u64>> {
        let id = device.device.id();
        let group = self.next_track();
        let descriptor = describe_track(group, process, &format!("cuda:{id}"));
        let descriptor = descriptor.unsigned(field::CHILD_ORDERING, field::ORDER_EXPLICIT);
        self.track(&descriptor)?;
        let in_bytes = Message::new().unsigned(field::COUNTER_UNIT, field::UNIT_BYTES);
        let in_bytes = in_bytes.string(field::Y_AXIS_KEY, &format!("cuda:{id} {process}"));
        let mut numbers = BTreeMap::new();
        for (track, rank) in tracks.into_iter().zip(1..) {
            let number = self.next_track();
            let mut descriptor = describe_track(number, group, &track.label());
            if track >= Track::Allocated {
                descriptor = descriptor.message(field::COUNTER, &in_bytes);
            }
            self.track(&descriptor.unsigned(field::RANK, rank))?;
            numbers.insert(track, number);
        }
        Ok(numbers)
    }

    /// The failed request at entry `index`, which has the free memory of the device in place of an address.
    fn failure(&mut self, track: u64, device: &DeviceRecording<'_, '_>, index: usize) -> io::Result<()> {
        let failed = device.device.device().entry(index);
        let name = format!("out of memory: {}", size(failed.size));
        let line = device.line(failed.extended_stack);
        let annotations = [
            annotation("requested_bytes", failed.size),
            annotation("device_free_bytes", failed.addr),
            annotation("entry", index as u64),
            Message::new().string(event::ANNOTATION_NAME, "line").string(event::ANNOTATION_TEXT, &line),
        ];
        let instant = start_event(event::INSTANT, track).string(event::NAME, &name);
        let instant = annotations.iter().fold(instant, |instant, one| instant.message(event::ANNOTATION, one));
        self.event(device.time_us(index), &instant)
    }

    fn event(&mut self, time_us: u64, event: &Message) -> io::Result<()> {
        let packet = start_packet(NEEDS_INCREMENTAL_STATE).unsigned(packet::TIMESTAMP, nanoseconds(time_us));
        self.write(&packet.message(packet::TRACK_EVENT, event))
    }

    fn track(&mut self, descriptor: &Message) -> io::Result<()> {
        self.write(&start_packet(NEEDS_INCREMENTAL_STATE).message(packet::TRACK_DESCRIPTOR, descriptor))
    }

    fn write(&mut self, packet: &Message) -> io::Result<()> {
        self.out.write_all(Message::new().message(packet::IN_TRACE, packet).as_bytes())
    }

    /// Completes the file.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn describe_track(number: u64, parent: u64, name: &str) -> Message {
    Message::new().unsigned(field::UUID, number).unsigned(field::PARENT, parent).string(field::NAME, name)
}

fn start_packet(flags: u64) -> Message {
    Message::new().unsigned(packet::SEQUENCE_ID, SEQUENCE).unsigned(packet::SEQUENCE_FLAGS, flags)
}

fn start_event(kind: u64, track: u64) -> Message {
    Message::new().unsigned(event::TYPE, kind).unsigned(event::TRACK, track)
}

/// A number that the viewer shows with an event.
fn annotation(name: &str, value: u64) -> Message {
    Message::new().string(event::ANNOTATION_NAME, name).unsigned(event::ANNOTATION_UNSIGNED, value)
}

fn nanoseconds(time_us: u64) -> u64 {
    time_us.saturating_mul(1000)
}

/// Fields of `TrackDescriptor` and its parts.
mod field {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PROCESS: u32 = 3;
    pub(super) const PARENT: u32 = 5;
    pub(super) const COUNTER: u32 = 8;
    pub(super) const CHILD_ORDERING: u32 = 11;
    pub(super) const RANK: u32 = 12;
    pub(super) const PID: u32 = 1;
    pub(super) const PROCESS_NAME: u32 = 6;
    pub(super) const COUNTER_UNIT: u32 = 3;
    pub(super) const Y_AXIS_KEY: u32 = 7;

    pub(super) const UNIT_BYTES: u64 = 3;
    pub(super) const ORDER_EXPLICIT: u64 = 3;
}

fn describe_process(recording: &Recording<'_, '_>, track: u64, pid: u64) -> Message {
    let rank = recording.rank.map_or_else(String::new, |rank| format!("rank {rank}: "));
    let name = format!("{rank}{}", recording.path);
    let process = Message::new().unsigned(field::PID, pid).string(field::PROCESS_NAME, &name);
    Message::new().unsigned(field::UUID, track).message(field::PROCESS, &process)
}
