//! What the recorder of `oomscope run` wrote under the key `oomscope`. It is no more to be trusted than the rest.

use super::super::{Recorded, RecordedDevice};
use super::{Decoder, STACK};
use crate::base::ids::StackId;
use crate::snapshot::pickle::{Kind, Value};

/// Longest text that is kept; release, host and settings are shorter.
pub(super) const MAX_TEXT: usize = 2000;
/// Most devices and threads that are looked at.
pub(super) const MAX_ITEMS: usize = 1000;

impl Decoder {
    pub(super) fn recorded(&mut self, value: Value) {
        let mut recorded = Recorded::default();
        for (key, value) in self.pairs(value) {
            let text =
                || self.as_text(value).filter(|text| text.len() <= MAX_TEXT).map(str::to_owned);
            match self.snapshot.symbols.get(key) {
                "reason" => recorded.reason = text(),
                "rank" => recorded.rank = text(),
                "world_size" => recorded.world_size = text(),
                "host" => recorded.host = text(),
                "pid" => recorded.pid = self.integer(value),
                "torch" => recorded.torch = text(),
                "alloc_conf" => recorded.alloc_conf = text(),
                "max_entries" => recorded.max_entries = self.integer(value),
                "devices" => recorded.devices = self.recorded_devices(value),
                "oom" => {
                    recorded.failed_on = self.find(value, "device").and_then(|it| self.integer(it));
                }
                "dry_run" => recorded.dry_run = self.dry_run(value),
                "threads" => recorded.threads = self.recorded_threads(value),
                _ => {}
            }
        }
        self.snapshot.recorded = Some(recorded);
    }

    fn recorded_devices(&self, value: Value) -> Vec<RecordedDevice> {
        let device = |item: Value| RecordedDevice {
            name: self
                .find(item, "name")
                .and_then(|name| self.as_text(name))
                .filter(|name| name.len() <= MAX_TEXT)
                .unwrap_or_default()
                .to_owned(),
            total_bytes: self
                .find(item, "total_bytes")
                .and_then(|it| self.integer(it))
                .unwrap_or(0),
        };
        self.items(value).into_iter().take(MAX_ITEMS).map(device).collect()
    }

    fn recorded_threads(&self, value: Value) -> Vec<StackId> {
        let stack = |item: Value| match self.find(item, "frames")?.kind() {
            Kind::Node(STACK, id) => Some(StackId(id)),
            _ => None,
        };
        self.items(value).into_iter().take(MAX_ITEMS).filter_map(stack).collect()
    }

    /// The text of `key` in a dict; empty where there is none, or too much.
    pub(super) fn short_text(&self, dict: Value, key: &str) -> String {
        let text = self.find(dict, key).and_then(|it| self.as_text(it));
        text.filter(|text| text.len() <= MAX_TEXT).unwrap_or_default().to_owned()
    }

    /// The value of `key` in a dict.
    pub(super) fn find(&self, dict: Value, key: &str) -> Option<Value> {
        let mut pairs = self.pairs(dict).into_iter();
        pairs.find(|(name, _)| self.snapshot.symbols.get(*name) == key).map(|(_, value)| value)
    }
}
