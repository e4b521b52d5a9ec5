//! One device of a study.

use std::ops::{Range, RangeInclusive};
use std::sync::OnceLock;

use super::from_empty::{self, PeaksFromEmpty};
use super::lost_history::LostHistory;
use super::history::{HistoryBuilder, MemoryHistory, Peak};
use super::{Scope, Study};
use crate::allocator::conf::Settings;
use crate::base::ids::StackId;
use crate::replay::ops::Program;
use crate::replay::literal::{Tracking, LiteralReplay, ReplayStep, inferred_capacity, inferred_limit};
use crate::replay::model::{Hypothesis, InferredDevice};
use crate::snapshot::{Device, Snapshot};
use crate::stacks::frames::StackReader;
use crate::stacks::phases::Phases;
use crate::study::memory::{Memory, Sums, figures, live_by_stack};

/// What is known of one device so far.
#[derive(Debug)]
pub(super) struct DeviceCache<'a> {
    pub(super) device: Device<'a>,
    memory: OnceLock<Memory>,
    live_by_stack: OnceLock<Sums<StackId>>,
    phases: OnceLock<Phases>,
    history: OnceLock<MemoryHistory>,
    program: OnceLock<Program<'a>>,
    inferred_capacity: OnceLock<Option<u64>>,
    inferred_limit: OnceLock<Option<RangeInclusive<u64>>>,
    peaks_from_empty: OnceLock<PeaksFromEmpty>,
}

impl<'a> DeviceCache<'a> {
    pub(super) fn new(device: Device<'a>) -> Self {
        Self {
            device,
            memory: OnceLock::new(),
            live_by_stack: OnceLock::new(),
            phases: OnceLock::new(),
            history: OnceLock::new(),
            program: OnceLock::new(),
            inferred_capacity: OnceLock::new(),
            inferred_limit: OnceLock::new(),
            peaks_from_empty: OnceLock::new(),
        }
    }
}

/// A device of a [`Study`]: a handle, free to copy.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStudy<'s, 'a> {
    study: &'s Study<'a>,
    cache: &'s DeviceCache<'a>,
    index: usize,
}

impl<'s, 'a> DeviceStudy<'s, 'a> {
    pub(super) fn new(study: &'s Study<'a>, index: usize) -> Self {
        Self { study, cache: &study.devices[index], index }
    }

    /// Its number.
    pub fn id(self) -> u64 {
        self.cache.device.id()
    }

    /// What the file says of it.
    pub fn device(self) -> Device<'a> {
        self.cache.device
    }

    /// The file.
    pub fn snapshot(self) -> &'a Snapshot {
        self.study.snapshot
    }

    /// What is known beside it.
    pub fn scope(self) -> Scope {
        self.study.scope
    }

    /// All memory of the device, where it is known: as given, or as the recorder found it.
    pub fn capacity(self) -> Option<u64> {
        self.scope().capacity.or_else(|| self.recorded_capacity())
    }

    /// As the recorder of `oomscope run` found it.
    pub fn recorded_capacity(self) -> Option<u64> {
        self.snapshot().recorded.as_ref()?.total_bytes(self.id())
    }

    /// See [`Study::stacks`].
    pub fn stacks(self) -> &'s StackReader<'a> {
        self.study.stacks()
    }

    /// See [`Study::settings`].
    pub fn settings(self) -> &'s Settings {
        self.study.settings()
    }

    /// The part of its trace that is looked at.
    pub fn window(self) -> Range<usize> {
        self.scope().window.range_in(self.device())
    }

    /// Which entries in that part are failed requests, in order.
    pub fn failed_requests(self) -> impl DoubleEndedIterator<Item = usize> {
        let window = self.window();
        self.device().failed().filter(move |entry| window.contains(entry))
    }

    /// The figures of its memory at the snapshot.
    pub fn memory(self) -> &'s Memory {
        self.cache.memory.get_or_init(|| {
            let (snapshot, own) = (self.snapshot(), self.device().segments());
            figures(own, &snapshot.blocks, &snapshot.pools, self.settings())
        })
    }

    /// What each stack holds at the snapshot.
    pub fn live_by_stack(self) -> &'s Sums<StackId> {
        let held = || live_by_stack(self.device().segments(), &self.snapshot().blocks);
        self.cache.live_by_stack.get_or_init(held)
    }

    /// What the program was doing at each entry.
    pub fn phases(self) -> &'s Phases {
        self.cache.phases.get_or_init(|| Phases::from_trace(self.device(), self.stacks()))
    }

    /// Replays the trace literally; `observe` sees the start and every entry. Works out on the way what is not known
    /// yet of the memory over time: if that shows that the settings changed as the program ran, the replay begins anew,
    /// with the start. `None` without a trace: then there is nothing to see.
    pub fn replay(self, keep: Tracking, mut observe: impl FnMut(&ReplayStep<'_>)) -> Option<&'s MemoryHistory> {
        if self.device().is_empty() {
            return None;
        }
        let device = self.device();
        let literal = |is_changed| {
            let Some(recorded) = Some(self).filter(|_| is_changed).map(Self::inferred) else {
                return LiteralReplay { device, settings: self.settings(), settings_changes: &[] };
            };
            let Hypothesis { settings, settings_changes: later, .. } = &recorded.hypothesis;
            LiteralReplay { device, settings, settings_changes: later }
        };
        if let Some(known) = self.cache.history.get() {
            literal(known.has_changed_settings).run(keep, observe);
            return Some(known);
        }
        let mut run = |is_changed| {
            let mut gatherer = HistoryBuilder::new(device, self.scope().window);
            let outcome = literal(is_changed).run(keep, |step| {
                gatherer.add_step(step);
                observe(step);
            });
            gatherer.finish(outcome, is_changed)
        };
        let mut history = run(false);
        // A snapshot has the last settings alone: where these do not fit, others may have been in effect before.
        if history.outcome.is_inconsistent() && !self.inferred().hypothesis.settings_changes.is_empty() {
            history = run(true);
        }
        Some(self.cache.history.get_or_init(|| history))
    }

    /// Its memory over the part of the trace that is looked at; `None` without a trace.
    pub fn history(self) -> Option<&'s MemoryHistory> {
        self.cache.history.get().or_else(|| self.replay(Tracking::Totals, |_| ()))
    }

    /// How it shows that entries before the first are lost, if they are.
    pub fn lost_history(self) -> Option<LostHistory> {
        let over_time = self.history()?;
        LostHistory::from_replay(self.device(), over_time.outcome)
    }

    /// The highest totals, of that part and what was live before it; without a trace those at the snapshot.
    pub fn peak(self) -> Peak {
        let Some(over_time) = self.history() else {
            let Memory { allocated_bytes, reserved_bytes, .. } = *self.memory();
            return Peak { allocated_bytes, reserved_bytes, ..Peak::default() };
        };
        let mut peak = over_time.peak;
        // A trace that falls short of its own end state still ends there.
        if over_time.entries == over_time.trace_entries {
            let last = over_time.trace_entries.checked_sub(1);
            let memory = self.memory();
            if memory.allocated_bytes > peak.allocated_bytes {
                (peak.allocated_bytes, peak.allocated_event) = (memory.allocated_bytes, last);
            }
            if memory.reserved_bytes > peak.reserved_bytes {
                (peak.reserved_bytes, peak.reserved_event) = (memory.reserved_bytes, last);
            }
        }
        peak
    }

    /// How its recording came about, as far as can be found out.
    pub fn inferred(self) -> &'s InferredDevice<'a> {
        &self.study.inference().devices[self.index]
    }

    /// Its trace read back as calls, under the settings that were inferred.
    pub fn program(self) -> &'s Program<'a> {
        let settings = &self.inferred().hypothesis.settings;
        self.cache.program.get_or_init(|| Program::from_trace(self.device(), settings))
    }

    /// What was reserved before the first entry, as the model takes it over.
    pub fn reserved_before(self) -> u64 {
        self.inferred().verification.reserved_before
    }

    /// The most device memory that the recording shows to have been within reach: see [`shown_capacity`]. Where no
    /// request failed, the whole device if the recorder told how large it is.
    pub fn inferred_capacity(self) -> Option<u64> {
        let shown = || {
            inferred_capacity(self.device(), self.reserved_before())
                .or_else(|| self.recorded_capacity())
        };
        *self.cache.inferred_capacity.get_or_init(shown)
    }

    /// What the process was allowed to reserve, where the recording shows a limit: see [`shown_limit`].
    pub fn inferred_limit(self) -> Option<RangeInclusive<u64>> {
        let recorded = &self.inferred().hypothesis;
        let settings = |entry| recorded.settings_at(entry);
        let shown = || inferred_limit(self.device(), settings, self.reserved_before());
        self.cache.inferred_limit.get_or_init(shown).clone()
    }

    /// Its peaks replayed from an empty pool; `None` without a trace.
    pub fn peaks_from_empty(self) -> Option<&'s PeaksFromEmpty> {
        let is_traced = !self.device().is_empty();
        is_traced.then(|| {
            self.cache
                .peaks_from_empty
                .get_or_init(|| from_empty::replay_from_empty(self.device(), &self.inferred().hypothesis))
        })
    }
}
