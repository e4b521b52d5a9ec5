//! Reading the key `oomscope`, which the recorder of `oomscope run` writes. As untrusted as the rest of the file.

use super::super::{
    ObservedFailure, RecordedSleep, RecorderDevice, RecorderInfo, SleepCall, SleepChange, SleepSegment,
};
use super::{Decoder, STACK};
use crate::base::ids::StackId;
use crate::snapshot::pickle::{Kind, Value};

/// Longer texts are ignored; release, host and settings are shorter.
pub(super) const MAX_TEXT: usize = 2000;
/// Further devices and threads are ignored.
pub(super) const MAX_ITEMS: usize = 1000;

/// Further changes and segments of vLLM's sleep mode are ignored.
const MAX_SLEEPS: usize = 10_000;

impl Decoder {
    pub(super) fn read_recorder_info(&mut self, value: Value) {
        let mut recorded = RecorderInfo::default();
        for (key, value) in self.pairs(value) {
            let text = self.text_up_to_max(value);
            match self.snapshot.symbols.get(key) {
                "reason" => recorded.reason = text,
                "rank" => recorded.rank = text.or_else(|| Some(self.integer(value)?.to_string())),
                "world_size" => recorded.world_size = text.or_else(|| Some(self.integer(value)?.to_string())),
                "host" => recorded.host = text,
                "restarts" => recorded.restarts = text.and_then(|text| text.parse().ok()),
                "run_id" => recorded.run_id = text,
                "argv" => recorded.argv = self.read_texts(value),
                "visible_devices" => recorded.visible_devices = text,
                "pid" => recorded.pid = self.integer(value),
                "torch" => recorded.torch = text,
                "alloc_conf" => recorded.alloc_conf = text,
                "max_entries" => recorded.max_entries = self.integer(value),
                "devices" => recorded.devices = self.read_recorder_devices(value),
                "time_us" => recorded.time_us = self.integer(value),
                "oom" => recorded.oom = self.read_observed_failure(value),
                "dry_run" => recorded.dry_run = self.read_dry_run(value),
                "names" => self.snapshot.tensor_names = self.read_tensor_names(value),
                "program" => self.snapshot.source = self.read_source_files(value),
                "sleep" => recorded.sleep = self.read_sleep(value),
                "threads" => recorded.threads = self.read_stacks(value),
                _ => {}
            }
        }
        self.snapshot.recorder_info = Some(recorded);
    }

    fn text_up_to_max(&self, value: Value) -> Option<String> {
        self.as_text(value).filter(|text| text.len() <= MAX_TEXT).map(str::to_owned)
    }

    pub(super) fn read_texts(&self, value: Value) -> Vec<String> {
        self.items(value).into_iter().take(MAX_ITEMS).filter_map(|it| self.text_up_to_max(it)).collect()
    }

    fn read_recorder_devices(&self, value: Value) -> Vec<RecorderDevice> {
        let devices = self.items(value).into_iter().take(MAX_ITEMS).map(|item| RecorderDevice {
            name: self.short_text(item, "name"),
            // 0 says that the size is unknown.
            total_bytes: self.number_or_0(item, "total_bytes"),
        });
        devices.collect()
    }

    fn read_observed_failure(&self, value: Value) -> Option<ObservedFailure> {
        Some(ObservedFailure {
            device: self.number(value, "device")?,
            requested_bytes: self.number(value, "request_bytes")?,
            free_bytes: self.number(value, "device_free_bytes")?,
        })
    }

    fn read_sleep(&self, value: Value) -> Option<RecordedSleep> {
        let [changes, segments] =
            ["changes", "segments"].map(|key| self.items_of(value, key).into_iter().take(MAX_SLEEPS));
        let changes = changes.filter_map(|item| {
            let by_tag = self.pairs(self.find(item, "asleep")?).into_iter().take(MAX_ITEMS);
            let asleep = by_tag
                .filter_map(|(tag, bytes)| Some((self.snapshot.symbols.get(tag).to_owned(), self.integer(bytes)?)));
            let call = self.short_text(item, "call").replace('_', "-");
            let call = SleepCall::from_word(&call).unwrap_or(SleepCall::Snapshot);
            let (time_us, device) = (self.number(item, "time_us")?, self.number(item, "device")?);
            Some(SleepChange { call, time_us, device, asleep: asleep.collect() })
        });
        let changes: Vec<SleepChange> = changes.collect();
        let segments = segments.filter_map(|item| {
            let tag = self.short_text(item, "tag");
            Some(SleepSegment { address: self.number(item, "address")?, bytes: self.number(item, "bytes")?, tag })
        });
        let mut segments: Vec<SleepSegment> = segments.collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        (!changes.is_empty()).then_some(RecordedSleep { changes, segments })
    }

    /// The stacks of a list of dicts.
    pub(super) fn read_stacks(&self, list: Value) -> Vec<StackId> {
        self.items(list).into_iter().take(MAX_ITEMS).filter_map(|item| self.stack(item, "frames")).collect()
    }

    /// The text of `key` in a dict; empty if it is missing or too long.
    pub(super) fn short_text(&self, dict: Value, key: &str) -> String {
        // The recorder writes these texts for people; no figure depends on them.
        self.find(dict, key).and_then(|it| self.text_up_to_max(it)).unwrap_or_default()
    }

    /// The integer of `key` in a dict.
    pub(super) fn number(&self, dict: Value, key: &str) -> Option<u64> {
        self.integer(self.find(dict, key)?)
    }

    pub(super) fn number_or_0(&self, dict: Value, key: &str) -> u64 {
        self.number(dict, key).unwrap_or(0)
    }

    /// The stack of `key` in a dict.
    pub(super) fn stack(&self, dict: Value, key: &str) -> Option<StackId> {
        self.find(dict, key)?.as_node(STACK).map(StackId)
    }

    pub(super) fn is_true(&self, dict: Value, key: &str) -> bool {
        self.find(dict, key).is_some_and(|it| it.kind() == Kind::Bool(true))
    }

    /// The first `count` integers of a list.
    pub(super) fn numbers(&self, list: Value, count: usize) -> Vec<u64> {
        self.items(list).into_iter().take(count).filter_map(|it| self.integer(it)).collect()
    }

    /// The items of `key` in a dict.
    pub(super) fn items_of(&self, dict: Value, key: &str) -> Vec<Value> {
        self.find(dict, key).map(|it| self.items(it)).unwrap_or_default()
    }

    /// The value of `key` in a dict.
    pub(super) fn find(&self, dict: Value, key: &str) -> Option<Value> {
        let mut pairs = self.pairs(dict).into_iter();
        pairs.find(|(name, _)| self.snapshot.symbols.get(*name) == key).map(|(_, value)| value)
    }
}
