//! Reading the top level of a file, after everything below it.

use super::super::{Annotation, RawSettings, RecorderInfo, Snapshot, SnapshotError, TorchRange, extended_stacks, keys};
use super::{DICT, Decoder, ENTRY, LIST, MAX_WARNINGS, PAIR, SCALAR, SEGMENT, STACK, Scalar};
use crate::base::units::counted;
use crate::base::warning::Code;
use crate::snapshot::pickle::{Kind, Value, printable};

/// PyTorch's `DeviceIndex` has 8 bits. More devices would be a report without end.
const MAX_DEVICES: usize = 128;
/// Deeper settings are not read.
const SETTINGS_DEPTH: u32 = 4;
/// The maximum number of values and bytes of text in the settings. A file may refer to one value many times, but each
/// reference becomes a copy here.
const SETTINGS_SIZE: usize = 10_000;

/// Subtracts `cost` from `left`. Returns false, with nothing left, if that is not enough.
fn spend(left: &mut usize, cost: usize) -> bool {
    let enough = *left > cost;
    *left = if enough { *left - cost } else { 0 };
    enough
}

fn not_snapshot<T>(what: impl Into<String>) -> Result<T, SnapshotError> {
    Err(SnapshotError::NotSnapshot(what.into()))
}

impl Decoder {
    /// Reads the top level and returns the snapshot.
    pub(in crate::snapshot) fn finish(mut self, root: Value) -> Result<Snapshot, SnapshotError> {
        let root = self.freeze(root).map_err(|kind| SnapshotError::NotSnapshot(kind.to_string()))?;
        match root.kind() {
            Kind::EmptyDict | Kind::Node(DICT, _) => self.read_top_level(root)?,
            // `torch.cuda.memory_snapshot()` returns only the segments.
            Kind::EmptyList => {}
            Kind::Node(LIST, _) => self.read_segments(root)?,
            _ => {
                let found = self.type_name(root);
                return not_snapshot(format!(
                    "it holds {found}, not the dict that torch.cuda.memory._dump_snapshot() writes"
                ));
            }
        }
        let snapshot = self.into_snapshot();
        match snapshot.devices().count() {
            devices if devices > MAX_DEVICES => {
                let devices = counted(devices as u64, "device");
                not_snapshot(format!("it has {devices}, and PyTorch has at most {MAX_DEVICES}"))
            }
            _ => Ok(snapshot),
        }
    }

    fn read_top_level(&mut self, root: Value) -> Result<(), SnapshotError> {
        let pairs = self.pairs(root);
        if !pairs.iter().any(|(key, _)| matches!(*key, keys::SEGMENTS | keys::DEVICE_TRACES)) {
            let keys = pairs.iter().take(5).map(|(key, _)| self.snapshot.symbols.get(*key));
            let names: Vec<_> = keys.map(printable).collect();
            return not_snapshot(format!(
                "it is a dict without 'segments' and 'device_traces' (its keys: {})",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ));
        }
        for (key, value) in pairs {
            self.seen.top.add(key);
            match key {
                keys::SEGMENTS => self.read_segments(value)?,
                keys::DEVICE_TRACES => self.read_device_traces(value)?,
                keys::ALLOCATOR_SETTINGS => self.read_settings(value),
                keys::EXTERNAL_ANNOTATIONS => self.read_annotations(value),
                keys::HOST_SEGMENTS => self.read_host_segments(value),
                keys::HOST_TRACES => {}
                keys::OOMSCOPE => self.read_recorder_info(value),
                _ => self.note_unknown("the snapshot", key),
            }
        }
        Ok(())
    }

    fn read_segments(&mut self, value: Value) -> Result<(), SnapshotError> {
        match value.kind() {
            Kind::EmptyList => Ok(()),
            Kind::Node(LIST | STACK | PAIR, _) => match self.record_rows(value) {
                Some(rows) if rows.kind == SEGMENT => Ok(()),
                Some(rows) if rows.kind == ENTRY => not_snapshot("it is a bare list of trace entries without segments"),
                _ => not_snapshot("its list holds something other than segments"),
            },
            _ => not_snapshot(format!("'segments' is {}", self.type_name(value))),
        }
    }

    fn read_device_traces(&mut self, value: Value) -> Result<(), SnapshotError> {
        if !matches!(value.kind(), Kind::EmptyList | Kind::Node(LIST | STACK | PAIR, _)) {
            return not_snapshot(format!("'device_traces' is {}", self.type_name(value)));
        }
        if self.record_rows(value).is_some() {
            return not_snapshot("'device_traces' holds records instead of one list for each device");
        }
        let mut end = 0;
        for (device, trace) in self.items(value).into_iter().enumerate() {
            let rows = self.record_rows(trace).filter(|rows| rows.kind == ENTRY);
            let found = match (trace.kind(), rows.map(|rows| rows.runs.as_slice())) {
                (Kind::EmptyList, _) => {
                    self.snapshot.traces.push(0..0);
                    continue;
                }
                // Entries are numbered in file order, so rows out of order mean that two lists share entries.
                (_, Some([run])) if run.start >= end => {
                    end = run.end;
                    self.snapshot.traces.push(run.start as usize..run.end as usize);
                    continue;
                }
                (_, Some(_)) => "shares entries with another list".to_owned(),
                (Kind::Node(LIST | STACK | PAIR, _), None) => "holds something other than trace entries".to_owned(),
                _ => format!("is {}", self.type_name(trace)),
            };
            return not_snapshot(format!("the trace of device {device} {found}"));
        }
        Ok(())
    }

    fn read_settings(&mut self, value: Value) {
        let mut settings = RawSettings::default();
        let mut left = SETTINGS_SIZE;
        for (key, value) in self.pairs(value) {
            let name = self.snapshot.symbols.get(key);
            if !spend(&mut left, name.len()) {
                break;
            }
            let name = name.to_owned();
            if name.ends_with("ALLOC_CONF") {
                // Anything but text counts as an empty string.
                let text = self.as_text(value).unwrap_or_default();
                if spend(&mut left, text.len()) {
                    text.clone_into(&mut settings.string);
                }
            } else {
                let json = self.to_json(value, SETTINGS_DEPTH, &mut left);
                settings.effective.insert(name.clone(), json);
            }
            self.seen.settings.push(name);
        }
        if left == 0 {
            let message = "the allocator settings are larger than any that PyTorch writes and were truncated";
            self.snapshot.warnings.add(Code::SettingsSize, message);
        }
        self.snapshot.settings = Some(settings);
    }

    /// `value` as JSON; null where it exceeds the limits of depth and size.
    fn to_json(&self, value: Value, depth: u32, left: &mut usize) -> serde_json::Value {
        if !spend(left, 1) {
            return serde_json::Value::Null;
        }
        match value.kind() {
            Kind::Bool(b) => b.into(),
            Kind::Int(n) => n.into(),
            Kind::Text(id) => match self.snapshot.symbols.get(id) {
                text if spend(left, text.len()) => text.into(),
                _ => serde_json::Value::Null,
            },
            Kind::EmptyDict => serde_json::Map::new().into(),
            Kind::Node(SCALAR, index) => match self.scalars.get(index as usize) {
                Some(Scalar::Float(x)) => (*x).into(),
                Some(Scalar::Int(n)) => u64::try_from(*n).map_or(serde_json::Value::Null, Into::into),
                _ => serde_json::Value::Null,
            },
            Kind::Node(DICT, _) if depth > 0 => {
                let mut map = serde_json::Map::new();
                for (key, value) in self.pairs(value) {
                    let name = self.snapshot.symbols.get(key);
                    if !spend(left, name.len()) {
                        break;
                    }
                    map.insert(name.to_owned(), self.to_json(value, depth - 1, left));
                }
                map.into()
            }
            Kind::EmptyList | Kind::Node(..) if depth > 0 => {
                let mut list = Vec::new();
                for item in self.items(value) {
                    if *left == 0 {
                        break;
                    }
                    list.push(self.to_json(item, depth - 1, left));
                }
                list.into()
            }
            _ => serde_json::Value::Null,
        }
    }

    fn read_annotations(&mut self, value: Value) {
        for item in self.items(value) {
            // An annotation without a name is useless.
            let Some(name) = self.find(item, "name").and_then(Value::as_text) else { continue };
            let is_start = self.find(item, "stage").and_then(Value::as_text) == Some(keys::START);
            // A value of another type counts as missing: annotations are not essential.
            let [device, time_us] = ["device", "time_us"].map(|key| self.number_or_0(item, key));
            let annotation = Annotation { name, is_start, device, time_us };
            self.snapshot.annotations.push(annotation);
        }
    }

    fn read_host_segments(&mut self, value: Value) {
        let sizes = self.items(value).into_iter().filter_map(|item| self.number(item, "size"));
        self.snapshot.host_segments = sizes.collect();
    }

    fn into_snapshot(self) -> Snapshot {
        let Self { mut snapshot, original_traces, seen, unknown, has_more_unknown, wrong_sums, .. } = self;
        for (place, symbol) in unknown {
            let word = printable(snapshot.symbols.get(symbol));
            if place == "action" {
                let message = format!("trace entries with the unknown action '{word}' were ignored");
                snapshot.warnings.add(Code::UnknownAction, message);
            } else {
                let verb = if place.starts_with("the") { "has" } else { "have" };
                let message = format!("{place} {verb} the unknown key '{word}', which was ignored");
                snapshot.warnings.add(Code::UnknownKey, message);
            }
        }
        if has_more_unknown {
            let message = format!("there are more than {MAX_WARNINGS} unknown keys and actions");
            snapshot.warnings.add(Code::UnknownAction, message);
        }
        if wrong_sums > MAX_WARNINGS as u64 {
            let message = format!("the blocks of {} in all do not add up", counted(wrong_sums, "segment"));
            snapshot.warnings.add(Code::SegmentSum, message);
        }
        // PyTorch writes them in this order. `Device::segments` relies on it.
        snapshot.segments.sort_by_key(|segment| segment.device);
        let has_entries = snapshot.traces.iter().any(|rows| !rows.is_empty());
        let by_keys = seen.torch_range(has_entries, !snapshot.segments.is_empty());
        if let Some(minor) = snapshot.recorder_info.as_ref().and_then(RecorderInfo::minor) {
            snapshot.torch = TorchRange { first: Some(minor), last: Some(minor) };
            snapshot.torch_by_keys = snapshot.torch;
        } else {
            snapshot.torch_by_keys = by_keys;
            let narrowed = by_keys.narrow_by_lines(&snapshot.stacks, &snapshot.symbols);
            snapshot.torch = narrowed.unwrap_or_else(|by_lines| {
                let message = format!(
                    "the keys are those of PyTorch {by_keys}, but the lines of PyTorch's own code in the stacks \
                     are those of {by_lines}, as in a custom build: assuming {by_keys}"
                );
                snapshot.warnings.add(Code::ReleaseUnclear, message);
                by_keys
            });
        }
        extended_stacks::extend_stacks(&mut snapshot, original_traces);
        snapshot
    }
}
