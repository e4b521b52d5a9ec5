//! A profile of the format of pprof (`profile.proto`), compressed by gzip.
//!
//! A sample is the memory of one stack on one device, stream and pool, in one category. Sample types are the memory that
//! the window allocated, and the memory live at a position, at the last failure, and at the end.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::{Compression, GzBuilder};

use super::folded::NO_STACK;
use super::holders::{Held, HolderKey, allocated_in_window, live_at};
use super::protobuf::Message;
use super::recording::{DeviceRecording, NoPosition, Recording};
use crate::base::ids::SymbolId;
use crate::base::intern::Symbols;
use crate::stacks::frames::FrameReport;
use crate::study::PositionSelector;

/// Fields of the messages in `profile.proto`.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;

    pub(super) const VALUE_TYPE: u32 = 1;
    pub(super) const VALUE_UNIT: u32 = 2;
    pub(super) const SAMPLE_LOCATIONS: u32 = 1;
    pub(super) const SAMPLE_VALUES: u32 = 2;
    pub(super) const SAMPLE_LABEL: u32 = 3;
    pub(super) const LABEL_KEY: u32 = 1;
    pub(super) const LABEL_TEXT: u32 = 2;
    pub(super) const LOCATION_ID: u32 = 1;
    pub(super) const LOCATION_LINE: u32 = 4;
    pub(super) const LINE_FUNCTION: u32 = 1;
    pub(super) const LINE_NUMBER: u32 = 2;
    pub(super) const FUNCTION_ID: u32 = 1;
    pub(super) const FUNCTION_NAME: u32 = 2;
    pub(super) const FUNCTION_FILE: u32 = 4;
}

/// Name and unit of each value of a sample. `failure_space` is absent if no request failed.
const SAMPLE_TYPES: [(&str, &str); VALUES] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    (DEFAULT_TYPE, "bytes"),
    ("failure_space", "bytes"),
    ("end_space", "bytes"),
];
const VALUES: usize = 6;
const FAILURE_VALUE: usize = 4;
const DEFAULT_TYPE: &str = "inuse_space";

/// Collects the samples of each recording.
#[derive(Debug)]
pub struct PprofWriter {
    at: PositionSelector,
    strings: Symbols,
    functions: Vec<Message>,
    function_ids: BTreeMap<(u64, u64), u64>,
    locations: Vec<Message>,
    location_ids: BTreeMap<(u64, u64), u64>,
    samples: Vec<(Message, [u64; VALUES])>,
    has_failure: bool,
    time_us: u64,
}

impl PprofWriter {
    /// `at` is the position of `inuse_space`.
    pub fn new(at: PositionSelector) -> Self {
        let mut strings = Symbols::default();
        strings.intern(""); // the format demands it first
        Self {
            at,
            strings,
            functions: Vec::new(),
            function_ids: BTreeMap::new(),
            locations: Vec::new(),
            location_ids: BTreeMap::new(),
            samples: Vec::new(),
            has_failure: false,
            time_us: 0,
        }
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// If the snapshot does not have the position.
    pub fn add(&mut self, recording: &Recording<'_, '_>) -> Result<(), NoPosition> {
        let positions = recording.positions(self.at)?;
        for (device, position) in recording.devices.iter().zip(positions) {
            self.add_device(recording, device, position);
        }
        Ok(())
    }

    fn add_device(&mut self, recording: &Recording<'_, '_>, device: &DeviceRecording<'_, '_>, position: Option<u32>) {
        let mut values: BTreeMap<HolderKey, [u64; VALUES]> = BTreeMap::new();
        let mut add = |sums: BTreeMap<HolderKey, Held>, blocks: Option<usize>, bytes: usize| {
            for (key, held) in sums {
                let values = values.entry(key).or_default();
                values[bytes] = held.bytes;
                if let Some(blocks) = blocks {
                    values[blocks] = held.blocks;
                }
            }
        };
        add(allocated_in_window(device), Some(0), 1);
        if let Some(position) = position {
            add(live_at(device, position), Some(2), 3);
        }
        if let Some(failure) = device.position(PositionSelector::Failure) {
            self.has_failure = true;
            add(live_at(device, failure), None, FAILURE_VALUE);
        }
        if let Some(end) = device.position(PositionSelector::End) {
            add(live_at(device, end), None, FAILURE_VALUE + 1);
        }
        let start = device.device.device().time_us(device.window.start);
        self.time_us = self.time_us.max(start.unwrap_or_default());
        for (key, values) in values {
            let sample = self.sample(recording, device, key);
            self.samples.push((sample, values));
        }
    }

    /// A sample without its values.
    fn sample(&mut self, recording: &Recording<'_, '_>, device: &DeviceRecording<'_, '_>, key: HolderKey) -> Message {
        let stacks = recording.study.stacks();
        let frames = stacks.frames_with_callers(key.stack);
        let mut locations: Vec<u64> =
            frames.into_iter().map(|frame| self.location(&stacks.frame_report(frame))).collect();
        if locations.is_empty() {
            locations.push(self.location(&FrameReport { file: String::new(), line: 0, name: NO_STACK.to_owned() }));
        }
        let mut sample = Message::new();
        sample.packed(field::SAMPLE_LOCATIONS, locations);
        let rank = recording.rank.map(|rank| rank.to_string());
        let labels = [
            ("device", device.device.id().to_string()),
            ("stream", device.stream(key.place).to_string()),
            ("pool", device.pool_label(key.place)),
            ("category", key.category.word().to_owned()),
            ("snapshot", recording.path.to_owned()),
        ];
        for (name, text) in labels.into_iter().chain(rank.map(|rank| ("rank", rank))) {
            let mut label = Message::new();
            label.unsigned(field::LABEL_KEY, self.string(name)).unsigned(field::LABEL_TEXT, self.string(&text));
            sample.message(field::SAMPLE_LABEL, &label);
        }
        sample
    }

    fn string(&mut self, text: &str) -> u64 {
        self.strings.intern(text).index() as u64
    }

    fn location(&mut self, frame: &FrameReport) -> u64 {
        let [name, file] = [&frame.name, &frame.file].map(|text| self.string(text));
        let next = self.functions.len() as u64 + 1;
        let function = *self.function_ids.entry((name, file)).or_insert(next);
        if function == next {
            // A system name would be demangled, which loses names in angle brackets, such as `<module>`.
            let mut message = Message::new();
            message.unsigned(field::FUNCTION_ID, function);
            message.unsigned(field::FUNCTION_NAME, name).unsigned(field::FUNCTION_FILE, file);
            self.functions.push(message);
        }
        let next = self.locations.len() as u64 + 1;
        let location = *self.location_ids.entry((function, frame.line.into())).or_insert(next);
        if location == next {
            let mut line = Message::new();
            line.unsigned(field::LINE_FUNCTION, function).unsigned(field::LINE_NUMBER, frame.line.into());
            let mut message = Message::new();
            message.unsigned(field::LOCATION_ID, location).message(field::LOCATION_LINE, &line);
            self.locations.push(message);
        }
        location
    }

    /// Writes the profile.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        let is_shown = |value: usize| value != FAILURE_VALUE || self.has_failure;
        let shown: Vec<usize> = (0..VALUES).filter(|value| is_shown(*value)).collect();
        let mut profile = Message::new();
        for value in &shown {
            let (name, unit) = SAMPLE_TYPES[*value];
            let value_type = self.value_type(name, unit);
            profile.message(field::SAMPLE_TYPE, &value_type);
        }
        for (mut sample, values) in std::mem::take(&mut self.samples) {
            sample.packed(field::SAMPLE_VALUES, shown.iter().map(|value| values[*value]));
            profile.message(field::SAMPLE, &sample);
        }
        for location in &self.locations {
            profile.message(field::LOCATION, location);
        }
        for function in &self.functions {
            profile.message(field::FUNCTION, function);
        }
        let period = self.value_type("space", "bytes");
        profile.unsigned(field::TIME_NANOS, self.time_us.saturating_mul(1000));
        profile.message(field::PERIOD_TYPE, &period).unsigned(field::PERIOD, 1);
        let comment = self.string("CUDA memory, exported by oomscope");
        let default = self.string(DEFAULT_TYPE);
        profile.unsigned(field::COMMENT, comment).unsigned(field::DEFAULT_SAMPLE_TYPE, default);
        for index in 0..self.strings.len() {
            profile.string(field::STRING_TABLE, self.strings.get(SymbolId::from_index(index)));
        }
        let mut gzip = GzBuilder::new().mtime(0).write(out, Compression::default());
        gzip.write_all(profile.as_bytes())?;
        gzip.finish()?;
        Ok(())
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let mut message = Message::new();
        message.unsigned(field::VALUE_TYPE, self.string(name)).unsigned(field::VALUE_UNIT, self.string(unit));
        message
    }
}
