//! The top level of a file, once everything below it is read.

use super::super::{Annotation, RawSettings, Recorded, Snapshot, SnapshotError, TorchRange};
use super::super::{keys, makers};
use super::{DICT, Decoder, EVENT, LIST, List, PAIR, Rows, SCALAR, SEGMENT, STACK, Scalar, WARNED};
use crate::base::units::counted;
use crate::base::warning::Code;
use crate::snapshot::pickle::{Kind, Value, printable};

/// Settings nest no deeper than this.
const SETTINGS_DEPTH: u32 = 4;
/// Values and bytes of text that are kept of the settings: what a file shares, they repeat.
const SETTINGS_SIZE: usize = 10_000;

/// Takes `cost` from what is `left`; all of it, and `false`, when there is not so much.
fn spend(left: &mut usize, cost: usize) -> bool {
    let enough = *left > cost;
    *left = if enough { *left - cost } else { 0 };
    enough
}

fn not_snapshot<T>(what: String) -> Result<T, SnapshotError> {
    Err(SnapshotError::NotSnapshot(what))
}

impl Decoder {
    /// Walks the top level, and ends the reading.
    pub(in crate::snapshot) fn finish(mut self, root: Value) -> Result<Snapshot, SnapshotError> {
        let root =
            self.settle(root).map_err(|kind| SnapshotError::NotSnapshot(kind.to_string()))?;
        match root.kind() {
            Kind::EmptyDict | Kind::Node(DICT, _) => self.top_level(root)?,
            // torch.cuda.memory_snapshot(): the segments alone.
            Kind::EmptyList => {}
            Kind::Node(LIST, _) => self.segments(root)?,
            _ => {
                let found = self.type_name(root);
                return not_snapshot(format!(
                    "it holds {found}, not the dict that torch.cuda.memory._dump_snapshot() writes"
                ));
            }
        }
        Ok(self.into_snapshot())
    }

    fn top_level(&mut self, root: Value) -> Result<(), SnapshotError> {
        let pairs = self.pairs(root);
        if !pairs.iter().any(|(key, _)| matches!(*key, keys::SEGMENTS | keys::DEVICE_TRACES)) {
            let name = |key| printable(self.snapshot.symbols.get(key));
            let names: Vec<_> = pairs.iter().take(5).map(|(key, _)| name(*key)).collect();
            return not_snapshot(format!(
                "it is a dict without 'segments' and 'device_traces' (its keys: {})",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ));
        }
        for (key, value) in pairs {
            self.seen.top.add(key);
            match key {
                keys::SEGMENTS => self.segments(value)?,
                keys::DEVICE_TRACES => self.device_traces(value)?,
                keys::ALLOCATOR_SETTINGS => self.settings(value),
                keys::EXTERNAL_ANNOTATIONS => self.annotations(value),
                keys::HOST_SEGMENTS => self.host_segments(value),
                keys::HOST_TRACES => {}
                keys::OOMSCOPE => self.recorded(value),
                _ => {
                    self.unknown("the snapshot", key);
                }
            }
        }
        Ok(())
    }

    fn segments(&mut self, value: Value) -> Result<(), SnapshotError> {
        match value.kind() {
            Kind::EmptyList => Ok(()),
            Kind::Node(LIST | STACK | PAIR, _) => match self.rows(value) {
                Some(rows) if rows.kind == SEGMENT => Ok(()),
                Some(rows) if rows.kind == EVENT => {
                    not_snapshot("it is a bare list of trace entries without segments".to_owned())
                }
                _ => not_snapshot("its list holds something other than segments".to_owned()),
            },
            _ => not_snapshot(format!("'segments' is {}", self.type_name(value))),
        }
    }

    /// The records that a list consists of, if it does.
    fn rows(&self, list: Value) -> Option<&Rows> {
        match self.lists.get(list.as_node(LIST)? as usize)? {
            List::Rows(rows) => Some(rows),
            _ => None,
        }
    }

    fn device_traces(&mut self, value: Value) -> Result<(), SnapshotError> {
        if !matches!(value.kind(), Kind::EmptyList | Kind::Node(LIST | STACK | PAIR, _)) {
            return not_snapshot(format!("'device_traces' is {}", self.type_name(value)));
        }
        if self.rows(value).is_some() {
            return not_snapshot(
                "'device_traces' holds records, where one list for each device belongs".to_owned(),
            );
        }
        let mut end = 0;
        for (device, trace) in self.items(value).into_iter().enumerate() {
            if trace.kind() == Kind::EmptyList {
                self.snapshot.traces.push(0..0);
                continue;
            }
            if !matches!(trace.kind(), Kind::Node(LIST | STACK | PAIR, _)) {
                let found = self.type_name(trace);
                return not_snapshot(format!("the trace of device {device} is {found}"));
            }
            let runs = match self.rows(trace) {
                Some(rows) if rows.kind == EVENT => rows.runs.as_slice(),
                _ => {
                    return not_snapshot(format!(
                        "the trace of device {device} holds something other than trace entries"
                    ));
                }
            };
            // Lists are read one after the other, so only entries in two lists break the order.
            match runs {
                [run] if run.start >= end => {
                    end = run.end;
                    self.snapshot.traces.push(run.start as usize..run.end as usize);
                }
                _ => {
                    return not_snapshot(format!(
                        "the trace of device {device} shares entries with another list"
                    ));
                }
            }
        }
        Ok(())
    }

    fn settings(&mut self, value: Value) {
        let mut settings = RawSettings::default();
        let mut left = SETTINGS_SIZE;
        for (key, value) in self.pairs(value) {
            let name = self.snapshot.symbols.get(key);
            if !spend(&mut left, name.len()) {
                break;
            }
            let name = name.to_owned();
            if name.ends_with("ALLOC_CONF") {
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
            let message = "the allocator settings are larger than any that PyTorch writes: cut off";
            self.snapshot.warnings.add(Code::SettingsSize, message);
        }
        self.snapshot.settings = Some(settings);
    }

    /// `value` as JSON, null where the settings are larger than can be.
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
                Some(Scalar::Int(n)) => {
                    u64::try_from(*n).map_or(serde_json::Value::Null, Into::into)
                }
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

    fn annotations(&mut self, value: Value) {
        for item in self.items(value) {
            let (mut name, mut is_start, mut device, mut time_us) = (None, false, 0, 0);
            for (key, value) in self.pairs(item) {
                match (key, value.kind()) {
                    (keys::NAME, Kind::Text(text)) => name = Some(text),
                    (keys::STAGE, stage) => is_start = stage == Kind::Text(keys::START),
                    (keys::DEVICE, _) => device = self.integer(value).unwrap_or(0),
                    (keys::TIME_US, _) => time_us = self.integer(value).unwrap_or(0),
                    _ => {}
                }
            }
            // One without a name says nothing.
            let annotation = name.map(|name| Annotation { name, is_start, device, time_us });
            self.snapshot.annotations.extend(annotation);
        }
    }

    fn host_segments(&mut self, value: Value) {
        for item in self.items(value) {
            let size = self
                .pairs(item)
                .into_iter()
                .find(|(key, _)| *key == keys::SIZE)
                .and_then(|(_, size)| self.integer(size));
            self.snapshot.host_segments.extend(size);
        }
    }

    fn into_snapshot(self) -> Snapshot {
        let Self { mut snapshot, originals, seen, unknown, more_unknown, bad_sums, .. } = self;
        for (place, symbol) in unknown {
            let word = printable(snapshot.symbols.get(symbol));
            if place == "action" {
                let message =
                    format!("trace entries with the unknown action '{word}' were left out");
                snapshot.warnings.add(Code::UnknownAction, message);
            } else {
                let verb = if place.starts_with("the") { "has" } else { "have" };
                let message =
                    format!("{place} {verb} the unknown key '{word}', which was left out");
                snapshot.warnings.add(Code::UnknownKey, message);
            }
        }
        if more_unknown {
            let message = format!("there are more than {WARNED} unknown keys and actions");
            snapshot.warnings.add(Code::UnknownKey, message);
        }
        if bad_sums > WARNED as u64 {
            let message = format!("so it is for {} in all", counted(bad_sums, "segment"));
            snapshot.warnings.add(Code::SegmentSum, message);
        }
        // As PyTorch writes them; one device's are then found without a look at the others'.
        snapshot.segments.sort_by_key(|segment| segment.device);
        let has_events = snapshot.traces.iter().any(|rows| !rows.is_empty());
        let by_keys = seen.torch(has_events, !snapshot.segments.is_empty());
        if let Some(minor) = snapshot.recorded.as_ref().and_then(Recorded::minor) {
            snapshot.torch = TorchRange { first: Some(minor), last: Some(minor) };
            snapshot.torch_by_keys = snapshot.torch;
        } else {
            snapshot.torch_by_keys = by_keys;
            let narrowed = by_keys.narrowed(&snapshot.stacks, &snapshot.symbols);
            snapshot.torch = narrowed.unwrap_or_else(|told| {
                let message = format!(
                    "the keys are those of PyTorch {by_keys}, but the lines of PyTorch's own code in the stacks \
                     are those of {told}, as in a build of one's own: taken to be {by_keys}"
                );
                snapshot.warnings.add(Code::ReleaseUnclear, message);
                by_keys
            });
        }
        makers::find(&mut snapshot, originals);
        snapshot
    }
}
