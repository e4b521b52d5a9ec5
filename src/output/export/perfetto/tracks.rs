//! Descriptors of processes and tracks.

use std::collections::{BTreeMap, BTreeSet};

use super::super::protobuf::Message;
use super::super::recording::{DeviceRecording, Recording};
use super::super::tracks::{Counter, Lane};

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

/// Numbers of tracks.
#[derive(Debug, Default)]
pub(super) struct TrackIds {
    last: u64,
}

impl TrackIds {
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The tracks of a device.
pub(super) struct DeviceTracks {
    pub(super) descriptors: Vec<Message>,
    counters: BTreeMap<Counter, u64>,
    lanes: BTreeMap<Lane, u64>,
    pub(super) failures: u64,
}

impl DeviceTracks {
    pub(super) fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&counter).copied().unwrap_or_default() // there is one for each that changes
    }

    pub(super) fn lane(&self, lane: Lane) -> u64 {
        self.lanes.get(&lane).copied().unwrap_or_default() // there is one for each lane of a slice
    }
}

pub(super) fn describe_process(recording: &Recording<'_, '_>, track: u64, pid: u64) -> Message {
    let rank = recording.rank.map_or_else(String::new, |rank| format!("rank {rank}: "));
    let mut process = Message::new();
    process.unsigned(field::PID, pid).string(field::PROCESS_NAME, &format!("{rank}{}", recording.path));
    let mut descriptor = Message::new();
    descriptor.unsigned(field::UUID, track).message(field::PROCESS, &process);
    descriptor
}

/// A group for the device, with a track for each counter and each of `lanes`, from top to bottom: failures, slices,
/// counters.
pub(super) fn describe_device(
    device: &DeviceRecording<'_, '_>,
    process: u64,
    lanes: &BTreeSet<Lane>,
    ids: &mut TrackIds,
) -> DeviceTracks {
    let id = device.device.id();
    let group = ids.next();
    let mut descriptor = Message::new();
    descriptor.unsigned(field::UUID, group).unsigned(field::PARENT, process).string(field::NAME, &format!("cuda:{id}"));
    descriptor.unsigned(field::CHILD_ORDERING, field::ORDER_EXPLICIT);
    let mut descriptors = vec![descriptor];
    let mut add = |name: &str, counter: Option<&Message>| {
        let track = ids.next();
        let rank = descriptors.len() as u64;
        let mut descriptor = Message::new();
        descriptor.unsigned(field::UUID, track).unsigned(field::PARENT, group).string(field::NAME, name);
        if let Some(counter) = counter {
            descriptor.message(field::COUNTER, counter);
        }
        descriptor.unsigned(field::RANK, rank);
        descriptors.push(descriptor);
        track
    };
    let failures = add("failed requests", None);
    let lanes = lanes.iter().map(|lane| (*lane, add(&lane.label(), None))).collect();
    let mut in_bytes = Message::new();
    in_bytes
        .unsigned(field::COUNTER_UNIT, field::UNIT_BYTES)
        .string(field::Y_AXIS_KEY, &format!("cuda:{id} {process}"));
    let counters = device.counters_in_use().into_iter();
    let counters = counters.map(|counter| (counter, add(counter.label(), Some(&in_bytes)))).collect();
    DeviceTracks { descriptors, counters, lanes, failures }
}
