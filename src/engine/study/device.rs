//! The facts of one device.

use std::ops::{Range, RangeInclusive};
use std::sync::OnceLock;

use super::block_sizes::BlockSizes;
use super::history::{HistoryBuilder, MemoryHistory, Peak};
use super::lost_history::{self, LostHistory};
use super::{Scope, Study};
use crate::allocator::RunFigures;
use crate::allocator::conf::Settings;
use crate::base::ids::StackId;
use crate::python::ProgramText;
use crate::replay::literal::{LiteralReplay, ReplayStep, Tracking, inferred_capacity, inferred_limit};
use crate::replay::model::{Hypothesis, InferredDevice, simulate};
use crate::replay::ops::Program;
use crate::snapshot::{Action, Device, Snapshot};
use crate::stacks::frames::{CodeLocation, StackReader};
use crate::stacks::phases::Phases;
use crate::study::iterations::{Growth, ProgramLoops};
use crate::study::memory::{BlockSums, MemoryReport, report_memory, sum_live_by_stack};
use crate::study::sleep::{SleepReader, SleepReport};
use crate::study::variables::LiveVariables;

/// Longer traces are not continued: every replay of the continuation would take too long.
pub const MAX_CONTINUED_ENTRIES: usize = 2_000_000;

/// The facts of a whole literal replay.
type Replayed = (MemoryHistory, BlockSizes);

/// The facts of one device, each filled in on first use.
#[derive(Debug, Default)]
pub(super) struct DeviceFacts<'a> {
    memory: OnceLock<MemoryReport>,
    live_by_stack: OnceLock<BlockSums<StackId>>,
    variables: OnceLock<Option<LiveVariables<'a>>>,
    phases: OnceLock<Phases>,
    sleep: OnceLock<Option<SleepReport>>,
    history: OnceLock<Replayed>,
    program: OnceLock<Program<'a>>,
    inferred_capacity: OnceLock<Option<u64>>,
    inferred_limit: OnceLock<Option<RangeInclusive<u64>>>,
    figures_from_empty: OnceLock<RunFigures>,
    replay_serves_failure: OnceLock<bool>,
    /// Without the bytes that only a replay knows.
    loop_growth: OnceLock<Option<Growth>>,
    growth: OnceLock<Option<Growth>>,
}

/// A device of a [`Study`]: a handle, free to copy.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStudy<'s, 'a> {
    study: &'s Study<'a>,
    device: Device<'a>,
    facts: &'s DeviceFacts<'a>,
    index: usize,
}

impl<'s, 'a> DeviceStudy<'s, 'a> {
    pub(super) fn new(study: &'s Study<'a>, index: usize) -> Self {
        let (device, facts) = &study.devices[index];
        Self { study, device: *device, facts, index }
    }

    /// Device index as the process numbers it.
    pub fn id(self) -> u64 {
        self.device.id()
    }

    /// The trace and memory in the file.
    pub fn device(self) -> Device<'a> {
        self.device
    }

    /// The snapshot that the device is a part of.
    pub fn snapshot(self) -> &'a Snapshot {
        self.study.snapshot
    }

    /// The scope of the study.
    pub fn scope(self) -> Scope {
        self.study.scope
    }

    /// Total device memory: as given in the scope, else as recorded.
    pub fn capacity(self) -> Option<u64> {
        self.scope().capacity.or_else(|| self.recorded_capacity())
    }

    /// Total device memory as `oomscope run` recorded it.
    pub fn recorded_capacity(self) -> Option<u64> {
        self.snapshot().recorder_info.as_ref()?.total_bytes(self.id())
    }

    /// Whether the program ran on the stub of CUDA, where no other process exists.
    pub fn is_dry_run(self) -> bool {
        self.snapshot().recorder_info.as_ref().is_some_and(|recorder| recorder.dry_run.is_some())
    }

    /// The memory that sleeps; `None` if the recorder saw none put to sleep.
    pub fn sleep(self) -> Option<&'s SleepReport> {
        let sleep = self.facts.sleep.get_or_init(|| {
            let mut reader = SleepReader::new(self.device(), self.stacks(), self.phases())?;
            self.replay(Tracking::Totals, |step| reader.observe(step));
            Some(reader.finish(self.memory().reserved_bytes))
        });
        sleep.as_ref()
    }

    /// See [`Study::stacks`].
    pub fn stacks(self) -> &'s StackReader<'a> {
        self.study.stacks()
    }

    /// The source line of trace entry `entry`.
    pub fn code_location(self, entry: usize) -> CodeLocation {
        self.stacks().location_of(self.device().entry(entry).extended_stack)
    }

    /// See [`Study::text`].
    pub fn text(self) -> &'s ProgramText<'a> {
        self.study.text()
    }

    /// See [`Study::settings`].
    pub fn settings(self) -> &'s Settings {
        self.study.settings()
    }

    /// The entries to study.
    pub fn window(self) -> Range<usize> {
        self.scope().window.range_in(self.device())
    }

    /// The entries of failed requests within the window, in order.
    pub fn failed_requests(self) -> impl DoubleEndedIterator<Item = usize> {
        let window = self.window();
        self.device().failed_requests().filter(move |entry| window.contains(entry))
    }

    /// The memory at the snapshot.
    pub fn memory(self) -> &'s MemoryReport {
        self.facts.memory.get_or_init(|| {
            let (snapshot, own) = (self.snapshot(), self.device().segments());
            report_memory(own, &snapshot.blocks, &snapshot.pools, self.settings())
        })
    }

    /// Live blocks at the snapshot, by the stack that allocated them.
    pub fn live_by_stack(self) -> &'s BlockSums<StackId> {
        self.facts.live_by_stack.get_or_init(|| sum_live_by_stack(self.device().segments(), &self.snapshot().blocks))
    }

    /// The variables that keep the memory at the snapshot; `None` if the recorder did not look for them.
    pub fn variables(self) -> Option<&'s LiveVariables<'a>> {
        self.facts
            .variables
            .get_or_init(|| LiveVariables::new(self.snapshot(), self.device(), self.stacks(), self.text()))
            .as_ref()
    }

    /// Phases and training steps of the trace.
    pub fn phases(self) -> &'s Phases {
        self.facts.phases.get_or_init(|| Phases::from_trace(self.device(), self.stacks()))
    }

    /// Replays the trace literally; calls `observe` for the start and for every entry. Returns `None` without a trace.
    ///
    /// The first replay also fills in [`Self::history`]. If it shows that the settings changed at run time, the replay
    /// starts over with the inferred settings, and `observe` is called for the start again.
    pub fn replay(self, keep: Tracking, mut observe: impl FnMut(&ReplayStep<'_>)) -> Option<&'s MemoryHistory> {
        if self.device().is_empty() {
            return None;
        }
        if let Some((known, _)) = self.facts.history.get() {
            self.literal_replay(known.has_changed_settings).run(keep, observe);
            return Some(known);
        }
        let mut found = self.first_replay(false, keep, &mut observe);
        // A snapshot records only the final settings. If they contradict the trace, others may have applied before.
        if found.0.outcome.is_inconsistent() && !self.inferred().hypothesis.settings_changes.is_empty() {
            found = self.first_replay(true, keep, &mut observe);
        }
        Some(&self.facts.history.get_or_init(|| found).0)
    }

    /// A replay under the recorded settings or, if they have `changed` at run time, under the inferred ones.
    fn literal_replay(self, has_changed: bool) -> LiteralReplay<'s> {
        let device = self.device();
        if !has_changed {
            return LiteralReplay { device, settings: self.settings(), settings_changes: &[] };
        }
        let Hypothesis { settings, settings_changes, .. } = &self.inferred().hypothesis;
        LiteralReplay { device, settings, settings_changes }
    }

    fn first_replay(self, has_changed: bool, keep: Tracking, observe: &mut impl FnMut(&ReplayStep<'_>)) -> Replayed {
        let mut builder = HistoryBuilder::new(self.device(), self.scope().window);
        let mut block_sizes = BlockSizes::default();
        let outcome = self.literal_replay(has_changed).run(keep, |step| {
            builder.add_step(step);
            block_sizes.add_step(step, self.device());
            observe(step);
        });
        (builder.finish(outcome, has_changed), block_sizes)
    }

    /// The totals over the window; `None` without a trace.
    pub fn history(self) -> Option<&'s MemoryHistory> {
        self.facts.history.get().map(|(history, _)| history).or_else(|| self.replay(Tracking::Totals, |_| ()))
    }

    /// The sizes of the blocks in the trace; `None` without a trace.
    pub(crate) fn block_sizes(self) -> Option<&'s BlockSizes> {
        self.history()?;
        self.facts.history.get().map(|(_, block_sizes)| block_sizes)
    }

    /// The sizes of the blocks, if the trace has been replayed and contradicts itself.
    pub(crate) fn contradicted_sizes(self) -> Option<&'s BlockSizes> {
        let (history, block_sizes) = self.facts.history.get()?;
        (history.outcome.contradictions > 0).then_some(block_sizes)
    }

    /// Evidence that entries before the first are lost.
    pub fn lost_history(self) -> Option<LostHistory> {
        LostHistory::from_replay(self.device(), self.history()?.outcome)
    }

    /// Whether the file shows that its first entry is the first recorded one. False without a trace.
    pub fn is_start_shown(self) -> bool {
        self.history().is_some_and(|history| lost_history::is_start_shown(self.device(), history.outcome))
    }

    /// The peaks within the window, including the state at its start; without a trace the totals at the snapshot.
    pub fn peak(self) -> Peak {
        let Some(history) = self.history() else {
            let MemoryReport { allocated_bytes, reserved_bytes, .. } = *self.memory();
            return Peak { allocated_bytes, reserved_bytes, reserved_then: reserved_bytes, ..Peak::default() };
        };
        let mut peak = history.peak;
        // A replay that misses entries may stay below the final state, which was reached for certain.
        if history.entries == history.trace_entries {
            let last = history.trace_entries.checked_sub(1);
            let memory = self.memory();
            if memory.allocated_bytes > peak.allocated_bytes {
                (peak.allocated_bytes, peak.allocated_event) = (memory.allocated_bytes, last);
                peak.reserved_then = memory.reserved_bytes;
            }
            if memory.reserved_bytes > peak.reserved_bytes {
                (peak.reserved_bytes, peak.reserved_event) = (memory.reserved_bytes, last);
            }
        }
        peak
    }

    /// The settings and the release that the model infers for this device, and how far it reproduces the recording.
    pub fn inferred(self) -> &'s InferredDevice<'a> {
        &self.study.inference().devices[self.index]
    }

    /// The trace as calls to the allocator, under the inferred settings.
    pub fn program(self) -> &'s Program<'a> {
        let settings = &self.inferred().hypothesis.settings;
        self.facts.program.get_or_init(|| Program::from_trace(self.device(), settings))
    }

    /// Bytes that were reserved before the first entry, as the model adopts them.
    pub fn reserved_before(self) -> u64 {
        self.inferred().verification.reserved_before
    }

    /// The device memory that was within reach, inferred from failed requests: see [`inferred_capacity`]. Without
    /// failed requests the recorded total memory.
    pub fn inferred_capacity(self) -> Option<u64> {
        *self.facts.inferred_capacity.get_or_init(|| {
            inferred_capacity(self.device(), self.reserved_before()).or_else(|| self.recorded_capacity())
        })
    }

    /// Whether a replay under the recorded settings serves the last failed request; `replay` finds out.
    pub fn replay_serves_failure(self, replay: impl FnOnce() -> bool) -> bool {
        *self.facts.replay_serves_failure.get_or_init(replay)
    }

    /// The bounds of the process's memory limit, if the recording shows one: see [`inferred_limit`].
    pub fn inferred_limit(self) -> Option<RangeInclusive<u64>> {
        let limit = self.facts.inferred_limit.get_or_init(|| {
            let hypothesis = &self.inferred().hypothesis;
            inferred_limit(self.device(), |entry| hypothesis.settings_at(entry), self.reserved_before())
        });
        limit.clone()
    }

    /// Works out what the stacks show: phases, training steps and loops. No replay is needed.
    pub fn read_stacks(self) {
        self.phases();
        self.loop_growth();
    }

    /// The growth from iteration to iteration of the last loop: up to the failed request if one ended the trace, else
    /// up to the last request or the last training step.
    pub fn growth(self) -> Option<&'s Growth> {
        let growth = self.facts.growth.get_or_init(|| {
            let growth = self.loop_growth()?;
            Some(growth.clone().with_allocated(&self.allocated_before(&growth.start_entries)))
        });
        growth.as_ref()
    }

    /// [`Self::growth`] without allocated bytes.
    fn loop_growth(self) -> Option<&'s Growth> {
        let growth = self.facts.loop_growth.get_or_init(|| {
            let is_failed = self.ends_with_failure();
            let end = if is_failed { self.failed_requests().next_back() } else { None };
            let (loops, sites) = ProgramLoops::from_trace(self.device(), self.stacks(), end);
            let growth = self.growth_of(&loops);
            if is_failed || growth.is_some() {
                return growth;
            }
            self.growth_of(&loops.up_to(*self.phases().steps.ends().last()? as usize, &sites)?)
        });
        growth.as_ref()
    }

    fn growth_of(self, loops: &ProgramLoops) -> Option<Growth> {
        loops.growth(&|entry| self.phases().steps.step_at(entry)).filter(|growth| !growth.is_single_request)
    }

    /// Allocated bytes before each of the ascending `entries`.
    fn allocated_before(self, entries: &[usize]) -> Vec<u64> {
        let (mut allocated, mut last) = (Vec::with_capacity(entries.len()), 0);
        self.replay(Tracking::Totals, |step| {
            match step.at {
                None => allocated.clear(), // a replay may start over
                Some((index, _)) => {
                    let passed = entries[allocated.len()..].iter().take_while(|entry| **entry <= index).count();
                    allocated.extend(std::iter::repeat_n(last, passed));
                }
            }
            last = step.tiling.totals().allocated;
        });
        allocated
    }

    /// The figures of a replay from an empty pool on a device of unlimited size; `None` without a trace. Blocks that were
    /// live when the recording started count; what the pool had cached then does not.
    pub fn figures_from_empty(self) -> Option<&'s RunFigures> {
        (!self.device().is_empty()).then(|| {
            self.facts.figures_from_empty.get_or_init(|| {
                let unbounded = Hypothesis { capacity: None, limit: None, ..self.inferred().hypothesis.clone() };
                let program = Program::from_trace(self.device(), &unbounded.settings).with_empty_start();
                simulate(&program, &unbounded, None).figures()
            })
        })
    }

    /// The last failed request of the window, if no allocation follows it.
    pub fn ending_failure(self) -> Option<usize> {
        let trace = self.device();
        let last = self.failed_requests().next_back();
        last.filter(|last| !(*last..trace.len()).any(|entry| trace.action(entry) == Some(Action::Alloc)))
    }

    /// Whether a failed request ended the recording, and the trace is short enough to continue.
    pub fn ends_with_failure(self) -> bool {
        self.device().len() <= MAX_CONTINUED_ENTRIES && self.ending_failure().is_some()
    }
}
