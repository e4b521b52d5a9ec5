//! The top level of a file, once everything below it is read.

use super::super::keys;
use super::super::{Annotation, RawSettings, Snapshot, SnapshotError};
use super::{DICT, Decoder, EVENT, LIST, List, SCALAR, SEGMENT, Scalar};
use crate::ids::SymbolId;
use crate::pickle::{Kind, Value};

/// Settings nest no deeper than this.
const SETTINGS_DEPTH: u32 = 4;

fn not_snapshot<T>(what: String) -> Result<T, SnapshotError> {
    Err(SnapshotError::NotSnapshot(what))
}

pub(super) fn finish(mut decoder: Decoder, root: Value) -> Result<Snapshot, SnapshotError> {
    let root = decoder.settle(root).map_err(|kind| SnapshotError::NotSnapshot(kind.to_string()))?;
    match root.kind() {
        Kind::Node(DICT, _) => decoder.top_level(root)?,
        // torch.cuda.memory_snapshot(): the segments alone.
        Kind::EmptyList => {}
        Kind::Node(LIST, _) => decoder.segments(root)?,
        _ => {
            let found = decoder.type_name(root);
            return not_snapshot(format!(
                "it holds {found}, not the dict that torch.cuda.memory._dump_snapshot() writes"
            ));
        }
    }
    Ok(decoder.into_snapshot())
}

impl Decoder {
    fn top_level(&mut self, root: Value) -> Result<(), SnapshotError> {
        let pairs = self.pairs(root);
        if !pairs.iter().any(|(key, _)| matches!(*key, keys::SEGMENTS | keys::DEVICE_TRACES)) {
            let names: Vec<_> =
                pairs.iter().take(5).map(|(key, _)| self.snapshot.symbols.get(*key)).collect();
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
                _ => {
                    self.unknown.insert(("the snapshot", key));
                }
            }
        }
        Ok(())
    }

    fn segments(&mut self, value: Value) -> Result<(), SnapshotError> {
        match value.kind() {
            Kind::EmptyList => Ok(()),
            Kind::Node(LIST, index) => match self.lists.get(index as usize) {
                Some(List::Rows(SEGMENT, _)) => Ok(()),
                Some(List::Rows(EVENT, _)) => {
                    not_snapshot("it is a bare list of trace entries without segments".to_owned())
                }
                _ => not_snapshot("its list holds something other than segments".to_owned()),
            },
            _ => not_snapshot(format!("'segments' is {}", self.type_name(value))),
        }
    }

    fn device_traces(&mut self, value: Value) -> Result<(), SnapshotError> {
        if !matches!(value.kind(), Kind::EmptyList | Kind::Node(LIST, _)) {
            return not_snapshot(format!("'device_traces' is {}", self.type_name(value)));
        }
        for (device, trace) in self.items(value).into_iter().enumerate() {
            let rows = match trace.kind() {
                Kind::EmptyList => 0..0,
                Kind::Node(LIST, index) => match self.lists.get(index as usize) {
                    Some(List::Rows(EVENT, runs)) => match runs.as_slice() {
                        [run] => run.start as usize..run.end as usize,
                        _ => {
                            return not_snapshot(format!(
                                "the trace of device {device} shares entries with another list"
                            ));
                        }
                    },
                    _ => {
                        return not_snapshot(format!(
                            "the trace of device {device} holds something other than trace entries"
                        ));
                    }
                },
                _ => {
                    return not_snapshot(format!(
                        "the trace of device {device} is {}",
                        self.type_name(trace)
                    ));
                }
            };
            self.snapshot.traces.push(rows);
        }
        Ok(())
    }

    fn settings(&mut self, value: Value) {
        let mut settings = RawSettings::default();
        for (key, value) in self.pairs(value) {
            let name = self.snapshot.symbols.get(key).to_owned();
            if name.ends_with("ALLOC_CONF") {
                self.as_text(value).unwrap_or_default().clone_into(&mut settings.string);
            } else {
                settings.effective.insert(name.clone(), self.to_json(value, SETTINGS_DEPTH));
            }
            self.seen.settings.push(name);
        }
        self.snapshot.settings = Some(settings);
    }

    fn to_json(&self, value: Value, depth: u32) -> serde_json::Value {
        match value.kind() {
            Kind::Bool(b) => b.into(),
            Kind::Int(n) => n.into(),
            Kind::Text(id) => self.snapshot.symbols.get(id).into(),
            Kind::EmptyDict => serde_json::Map::new().into(),
            Kind::Node(SCALAR, index) => match self.scalars.get(index as usize) {
                Some(Scalar::Float(x)) => (*x).into(),
                Some(Scalar::Int(n)) => {
                    u64::try_from(*n).map_or(serde_json::Value::Null, Into::into)
                }
                _ => serde_json::Value::Null,
            },
            Kind::Node(DICT, _) if depth > 0 => self
                .pairs(value)
                .into_iter()
                .map(|(key, value)| {
                    (self.snapshot.symbols.get(key).to_owned(), self.to_json(value, depth - 1))
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Kind::EmptyList | Kind::Node(..) if depth > 0 => self
                .items(value)
                .into_iter()
                .map(|item| self.to_json(item, depth - 1))
                .collect::<Vec<_>>()
                .into(),
            _ => serde_json::Value::Null,
        }
    }

    fn annotations(&mut self, value: Value) {
        for item in self.items(value) {
            let mut annotation =
                Annotation { name: SymbolId(0), is_start: false, device: 0, time_us: 0 };
            for (key, value) in self.pairs(item) {
                match (key, value.kind()) {
                    (keys::NAME, Kind::Text(name)) => annotation.name = name,
                    (keys::STAGE, stage) => annotation.is_start = stage == Kind::Text(keys::START),
                    (keys::DEVICE, _) => annotation.device = self.integer(value).unwrap_or(0),
                    (keys::TIME_US, _) => annotation.time_us = self.integer(value).unwrap_or(0),
                    _ => {}
                }
            }
            self.snapshot.annotations.push(annotation);
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
        let Self { mut snapshot, seen, unknown, .. } = self;
        for (place, symbol) in unknown {
            let word = snapshot.symbols.get(symbol).to_owned();
            if place == "action" {
                let message =
                    format!("trace entries with the unknown action '{word}' were left out");
                snapshot.warnings.add("unknown-action", message);
            } else {
                let verb = if place.starts_with("the") { "has" } else { "have" };
                let message =
                    format!("{place} {verb} the unknown key '{word}', which was left out");
                snapshot.warnings.add("unknown-key", message);
            }
        }
        snapshot.torch = seen.torch(!snapshot.events.is_empty(), !snapshot.segments.is_empty());
        snapshot
    }
}
