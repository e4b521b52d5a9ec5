//! From trace entries to the calls that caused them.
//!
//! A trace lists effects: one `malloc` may first complete frees, give segments back and take new ones,
//! and writes its own line last. What lies between two lines that name a call belongs to the later one,
//! unless its stack (or, where there is none, the room that the device had) shows that the program gave
//! memory back itself, with `empty_cache()` or by dropping a `MemPool`.

use std::ops::Range;

use super::call::{Boundary, Call};
use crate::base::ids::{PoolId, StackId};
use crate::base::intern::SeededMap;
use crate::replay::facts::{SegmentPools, is_completed_at_once, lacks_completions};
use crate::snapshot::{Action, Device, TraceEntry};

/// Reads one device's trace call by call.
#[derive(Debug, Clone)]
pub(crate) struct Calls<'a> {
    device: Device<'a>,
    pub(crate) pools: SegmentPools,
    next: usize,
    reserved: u64,
    /// The most that was ever reserved: the device holds at least that much.
    most_reserved: u64,
    /// The stack under which memory was taken from the device, by its first address.
    taken_under: SeededMap<u64, StackId>,
    /// No free is seen to wait: see [`lacks_completions`].
    lacks_completions: bool,
}

/// Work of the allocator that belongs to a later entry.
fn is_prelude(action: Action) -> bool {
    action.moves_memory() || action == Action::FreeCompleted
}

impl<'a> Calls<'a> {
    /// The calls of `device`, which holds `reserved` bytes before the first.
    pub(crate) fn new(device: Device<'a>, reserved: u64) -> Self {
        let (mut now, mut most_reserved) = (reserved, reserved);
        for (_, event) in device.entries_where(Action::moves_memory) {
            now = after(now, &event);
            most_reserved = most_reserved.max(now);
        }
        Self {
            device,
            pools: SegmentPools::new(device),
            next: 0,
            reserved,
            most_reserved,
            taken_under: SeededMap::default(),
            lacks_completions: lacks_completions(device),
        }
    }

    /// Index of the entry with which the next call begins.
    pub(crate) fn position(&self) -> usize {
        self.next
    }

    fn action(&self, row: usize) -> Option<Action> {
        self.device.action(row)
    }

    fn event(&self, row: usize) -> TraceEntry {
        self.device.entry(row)
    }

    /// Where the part of `rows` that belongs to its last entry, a request, begins by its stack.
    fn own_part(&self, rows: &Range<usize>) -> usize {
        let last = rows.end - 1;
        let stack_of = |row: usize| self.device.stack(row).unwrap_or_default();
        let own = stack_of(last);
        let is_foreign = |row: &usize| {
            let stack = stack_of(*row);
            if own == StackId::default() {
                // What such a request gives back stands under the stack that took it.
                return stack != own && self.is_asked_for(*row, stack);
            }
            stack != StackId::default() && stack != own
        };
        let Some(foreign) = (rows.start..last).rev().find(is_foreign) else { return rows.start };
        let mut own_rows = foreign + 1..last;
        if self.is_empty_cache(stack_of(foreign)) {
            // Up to 2.2 what it gives back has no stack.
            let is_given_back = |row: &usize| {
                self.action(*row).is_some_and(Action::is_shrinking)
                    && stack_of(*row) == StackId::default()
            };
            own_rows.start = own_rows.find(|row| !is_given_back(row)).unwrap_or(last);
        }
        own_rows.start
    }

    /// Whether entry `row`, under `stack`, is memory that the program asked to be given back.
    fn is_asked_for(&self, row: usize, stack: StackId) -> bool {
        let event = self.event(row);
        event.action.is_shrinking()
            && match self.taken_under.get(&event.addr) {
                Some(taken) if event.action == Action::SegmentFree => *taken != stack,
                _ => self.is_empty_cache(stack),
            }
    }

    /// Whether the innermost Python function of `stack` is `empty_cache`.
    fn is_empty_cache(&self, stack: StackId) -> bool {
        let snapshot = self.device.snapshot();
        let mut frames =
            snapshot.stacks.frames(stack).iter().map(|frame| snapshot.stacks.frame(*frame));
        let python = frames.find(|frame| snapshot.text(frame.file).strip_suffix(".py").is_some());
        python.is_some_and(|frame| snapshot.text(frame.name) == "empty_cache")
    }

    /// Where another call may have ended within `rows`, for lack of stacks.
    fn boundary(&self, rows: &Range<usize>) -> Option<Boundary> {
        let last = rows.end - 1;
        let (mut unknown, mut grown) = (None, 0u64);
        for row in rows.start..last {
            let event = self.event(row);
            if event.action.is_shrinking() && event.stack == StackId::default() {
                unknown = Some(row + 1);
            } else if event.action.is_growth() {
                grown = grown.saturating_add(event.size);
            }
        }
        let served = self.action(last) == Some(Action::Alloc);
        let had_room = self.reserved.saturating_add(grown) <= self.most_reserved;
        unknown.map(|row| Boundary { row, is_likely: served && (grown == 0 || had_room) })
    }

    /// The first call in `rows`, all of it memory given back: as long as it has no two stacks.
    fn release(&mut self, rows: Range<usize>) -> Call {
        let (mut pools, mut completed, mut of_all) = (Vec::new(), Vec::new(), false);
        let mut end = rows.start;
        let mut stack = StackId::default();
        for row in rows {
            let event = self.event(row);
            // Recorded with context='alloc', memory is given back under the stack that took it, if any.
            let is_told = self.taken_under.get(&event.addr) != Some(&event.stack);
            let told = if is_told { event.stack } else { StackId::default() };
            // Up to 2.2 only the completions before it have one.
            if told != StackId::default() {
                if stack != StackId::default() && stack != told {
                    break;
                }
                stack = told;
            }
            end = row + 1;
            let pool = self.pools.of(&event);
            if event.action.is_shrinking() {
                if pool == PoolId::default() {
                    of_all = true;
                } else if !pools.contains(&pool) {
                    pools.push(pool);
                }
            } else if event.action == Action::FreeCompleted && completed.last() != Some(&pool) {
                completed.push(pool);
            }
        }
        // One pool alone waits for its own blocks alone.
        of_all |= self.is_empty_cache(stack)
            || (!pools.is_empty() && completed.iter().any(|pool| !pools.contains(pool)));
        Call::Release { rows: self.next..end.max(self.next + 1), pools, of_all, stack }
    }

    fn pass(&mut self, rows: Range<usize>) {
        for row in rows.clone() {
            if self.action(row).is_some_and(Action::moves_memory) {
                let event = self.event(row);
                self.reserved = after(self.reserved, &event);
                self.pools.apply(row, &event);
                if event.action.is_growth() && event.stack != StackId::default() {
                    self.taken_under.insert(event.addr, event.stack);
                }
            }
        }
        self.next = rows.end;
    }
}

/// What is reserved after `event`, where `reserved` was before.
fn after(reserved: u64, event: &TraceEntry) -> u64 {
    match event.action {
        Action::SegmentAlloc | Action::SegmentMap => reserved.saturating_add(event.size),
        Action::SegmentFree | Action::SegmentUnmap => reserved.saturating_sub(event.size),
        _ => reserved,
    }
}

impl Iterator for Calls<'_> {
    type Item = Call;

    #[inline]
    fn next(&mut self) -> Option<Call> {
        let first = self.next;
        let action = self.action(first)?;
        match action {
            Action::FreeRequested => {
                let follows = is_completed_at_once(self.device, first);
                let rows = first..first + 1 + usize::from(follows);
                self.next = rows.end;
                return Some(Call::Free { rows, waits: !follows && !self.lacks_completions });
            }
            Action::Snapshot | Action::Other => {
                self.next = first + 1;
                return Some(Call::Note { row: first });
            }
            _ => {}
        }
        let mut last = first;
        while self.action(last).is_some_and(is_prelude) {
            last += 1;
        }
        let call = if matches!(self.action(last), Some(Action::Alloc | Action::Oom)) {
            let rows = first..last + 1;
            let own = if first == last { first } else { self.own_part(&rows) };
            if own > first {
                self.release(first..own)
            } else {
                let boundary = if first == last { None } else { self.boundary(&rows) };
                self.pass(first..last);
                let pool = self.pools.of(&self.event(last));
                Call::Malloc { rows, pool, boundary }
            }
        } else {
            self.release(first..last)
        };
        self.pass(call.rows());
        Some(call)
    }
}
