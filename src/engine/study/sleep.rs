//! Memory that vLLM's sleep mode has unmapped, which PyTorch goes on counting as allocated and reserved.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::replay::literal::ReplayStep;
use crate::snapshot::{Action, BlockState, Device, SleepCall, SleepChange};
use crate::stacks::engines::Engine;
use crate::stacks::frames::StackReader;
use crate::stacks::phases::Phases;

/// The memory of a device that sleeps, and when that changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SleepReport {
    /// Bytes asleep at the snapshot: allocated by PyTorch's count, but not on the device.
    pub asleep_bytes: u64,
    /// The most bytes of PyTorch's segments that were on the device at once: reserved, less those asleep.
    pub peak_on_device_bytes: u64,
    /// Entry index of that peak; null if it lies before the first entry.
    pub peak_event: Option<u64>,
    /// Each time that memory was put to sleep or woken, oldest first, and the snapshot.
    pub changes: Vec<SleepSwitch>,
}

/// The device after memory was put to sleep or woken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SleepSwitch {
    /// The call that changed it.
    pub call: SleepCall,
    /// The entry before it; null before the first.
    pub event: Option<u64>,
    /// Microseconds since the epoch.
    pub time_us: u64,
    /// Bytes asleep, by the engine's tag, such as `weights` and `kv_cache`.
    pub asleep: BTreeMap<String, u64>,
    /// All bytes asleep.
    pub asleep_bytes: u64,
    /// Bytes of PyTorch's segments that are on the device: reserved, less those asleep.
    pub on_device_bytes: u64,
    /// Live bytes by the engine that allocated them (null for all other code), including those asleep, most first.
    pub allocated: Vec<(Option<&'static Engine>, u64)>,
}

impl SleepReport {
    fn add(&mut self, change: &SleepChange, entry: Option<usize>, memory: &LiveMemory) {
        let mut allocated: Vec<_> = memory.by_engine.clone().into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        allocated.sort_by_key(|(_, bytes)| Reverse(*bytes));
        self.asleep_bytes = change.bytes();
        self.changes.push(SleepSwitch {
            call: change.call,
            event: entry.map(|entry| entry as u64),
            time_us: change.time_us,
            asleep: change.asleep.iter().cloned().collect(),
            asleep_bytes: self.asleep_bytes,
            on_device_bytes: memory.reserved.saturating_sub(self.asleep_bytes),
            allocated,
        });
    }

    /// The number of changes up to entry `event` (`None`: before the first).
    fn changes_until(&self, event: Option<usize>) -> usize {
        let event = event.map(|event| event as u64);
        self.changes.partition_point(|change| change.event < event)
    }

    /// Bytes asleep after entry `event`.
    pub fn asleep_at(&self, event: usize) -> u64 {
        let last = self.changes_until(Some(event)).checked_sub(1);
        last.map_or(0, |last| self.changes[last].asleep_bytes)
    }

    /// Whether an address was not on `device` after `entry` (`None`: before the first). Without a trace, the
    /// snapshot decides.
    pub(crate) fn asleep_after<'a>(&self, device: Device<'a>, entry: Option<usize>) -> impl Fn(u64) -> bool + use<'a> {
        let changes = if device.is_empty() { self.changes.len() } else { self.changes_until(entry) };
        let recorded = device.snapshot().recorder_info.as_ref().and_then(|recorder| recorder.sleep.as_ref());
        let last = recorded.zip(changes.checked_sub(1));
        let last = last.and_then(|(recorded, at)| Some((recorded, recorded.changes_on(device.id()).nth(at)?)));
        move |address| last.is_some_and(|(recorded, at)| recorded.tag_at(address).is_some_and(|tag| at.has_asleep(tag)))
    }
}

/// Makes a [`SleepReport`] during a replay.
pub(super) struct SleepReader<'s, 'a> {
    device: Device<'a>,
    stacks: &'s StackReader<'a>,
    phases: &'s Phases,
    changes: Vec<&'a SleepChange>,
    report: SleepReport,
    memory: LiveMemory,
}

impl<'s, 'a> SleepReader<'s, 'a> {
    /// `None` if the recorder saw no memory of `device` put to sleep.
    pub(super) fn new(device: Device<'a>, stacks: &'s StackReader<'a>, phases: &'s Phases) -> Option<Self> {
        let recorded = device.snapshot().recorder_info.as_ref()?.sleep.as_ref()?;
        let changes: Vec<&SleepChange> = recorded.changes_on(device.id()).collect();
        let (report, memory) = (SleepReport::default(), LiveMemory::default());
        (!changes.is_empty()).then_some(Self { device, stacks, phases, changes, report, memory })
    }

    pub(super) fn observe(&mut self, step: &ReplayStep<'_>) {
        self.memory.reserved = step.tiling.totals().reserved;
        let Some((index, _)) = step.at else {
            // A replay may start over.
            (self.report, self.memory.blocks) = (SleepReport::default(), SeededMap::default());
            self.memory.by_engine.clear();
            for block in step.tiling.active_blocks().filter(|block| block.state == BlockState::ActiveAllocated) {
                self.memory.alloc(block.addr, block.size, self.engine_of(self.stacks.recorded_stack(block.context)));
            }
            return;
        };
        let entry = self.device.entry(index);
        match entry.action {
            Action::Alloc => self.memory.alloc(entry.addr, step.tiling.allocated_bytes(), self.engine_of(entry.stack)),
            Action::FreeRequested | Action::FreeCompleted => self.memory.free(entry.addr),
            _ => {}
        }
        let on_device = self.memory.reserved.saturating_sub(self.report.asleep_bytes);
        if on_device > self.report.peak_on_device_bytes {
            (self.report.peak_on_device_bytes, self.report.peak_event) = (on_device, Some(index as u64));
        }
        let (next, is_last) = (self.device.time_us(index + 1), index + 1 >= self.device.len());
        while let Some(change) = self.next_change().filter(|change| is_last || Some(change.time_us) <= next) {
            self.report.add(change, Some(index), &self.memory);
        }
    }

    /// The report; `reserved` is that at the snapshot.
    pub(super) fn finish(mut self, reserved: u64) -> SleepReport {
        if self.device.is_empty() {
            self.memory.reserved = reserved;
        }
        while let Some(change) = self.next_change() {
            self.report.add(change, None, &self.memory);
        }
        let at_end = self.memory.reserved.saturating_sub(self.report.asleep_bytes);
        self.report.peak_on_device_bytes = self.report.peak_on_device_bytes.max(at_end);
        self.report
    }

    fn next_change(&self) -> Option<&'a SleepChange> {
        self.changes.get(self.report.changes.len()).copied()
    }

    fn engine_of(&self, stack: StackId) -> Option<&'static Engine> {
        self.phases.stack_traits(stack).engine
    }
}

/// Reserved memory, and live memory by engine, during a replay.
#[derive(Default)]
struct LiveMemory {
    reserved: u64,
    by_engine: BTreeMap<Option<&'static Engine>, u64>,
    /// Engine and size of each live block, by address.
    blocks: SeededMap<u64, (Option<&'static Engine>, u64)>,
}

impl LiveMemory {
    fn alloc(&mut self, address: u64, bytes: u64, engine: Option<&'static Engine>) {
        self.free(address); // an entry may contradict the state
        self.blocks.insert(address, (engine, bytes));
        let sum = self.by_engine.entry(engine).or_default();
        *sum = sum.saturating_add(bytes);
    }

    fn free(&mut self, address: u64) {
        if let Some((engine, bytes)) = self.blocks.remove(&address) {
            let sum = self.by_engine.entry(engine).or_default();
            *sum = sum.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_asleep_from_a_change_to_the_next() {
        let changes = [(Some(2), 70), (Some(5), 0), (Some(6), 30)].map(|(event, asleep_bytes)| SleepSwitch {
            call: SleepCall::Sleep,
            event,
            time_us: 0,
            asleep: BTreeMap::new(),
            asleep_bytes,
            on_device_bytes: 0,
            allocated: Vec::new(),
        });
        let report = SleepReport { changes: changes.to_vec(), ..SleepReport::default() };
        assert_eq!([2, 3, 5, 6, 7].map(|event| report.asleep_at(event)), [0, 70, 70, 0, 30]);
    }
}
