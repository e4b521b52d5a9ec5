//! What a program would have gone on to do after its last request failed: what it did after the same request
//! one step before.

use rustc_hash::{FxHashMap, FxHashSet};

use super::program::{ListRange, Operation, OperationKind, Program};
use crate::allocator::conf::Settings;
use crate::base::ids::{StackId, row};

/// A program that goes on for a step after its last request failed.
#[derive(Debug)]
pub struct Prolonged<'a> {
    /// The recorded calls, and after the failed request: that request again, kept this time, then the calls that
    /// followed it one step before, up to the same request once more. The requests after the failed one
    /// have the entries that follow it, one each.
    pub program: Program<'a>,
    /// Of each of its calls, the one that it repeats: of a recorded one that itself.
    pub(crate) repeats: Vec<u32>,
    /// What the program held with this request in each step in a row up to the one in which it failed, in
    /// bytes of blocks of 512.
    pub held: Vec<u64>,
    /// The most that it holds in what follows.
    pub most_after: u64,
    /// What it holds with the same request one step later.
    pub held_after: u64,
    /// Requests that follow the failed one, when that is served.
    pub requests: usize,
}

/// A request by its place in the program: the step, the stack, and the how many-th of that stack in the step.
type Role = (u32, StackId, u32);

/// Which request plays which part, and which call frees it.
struct Roles {
    of_call: Vec<Option<Role>>,
    calls: FxHashMap<Role, usize>,
    /// For a free, the call that made the block; `usize::MAX` for one of before the recording.
    frees: Vec<usize>,
    /// The same for each completed slot, by its place in [`Program::completed`].
    completes: Vec<usize>,
    /// The slots of blocks that are held in the end, by the call that made them.
    live: FxHashMap<usize, u32>,
}

impl Roles {
    fn of(program: &Program<'_>, calls: usize, step_of: &dyn Fn(usize) -> Option<u32>) -> Self {
        const NONE: usize = usize::MAX;
        let mut roles = Self {
            of_call: vec![None; calls],
            calls: FxHashMap::default(),
            frees: vec![NONE; calls],
            completes: vec![NONE; program.completed.len()],
            live: FxHashMap::default(),
        };
        let mut made_by = vec![NONE; program.slots];
        let mut counts: FxHashMap<(u32, StackId), u32> = FxHashMap::default();
        let complete = |completions: ListRange, completes: &mut [usize], made_by: &[usize]| {
            for place in completions.places() {
                completes[place] = made_by[program.completed[place] as usize];
            }
        };
        for (index, operation) in program.operations.iter().take(calls).enumerate() {
            match operation.kind {
                OperationKind::Malloc { context, slot, completions, .. } => {
                    complete(completions, &mut roles.completes, &made_by);
                    if let Some(step) = step_of(operation.at as usize) {
                        let count = counts.entry((step, context)).or_default();
                        let role = (step, context, *count);
                        *count += 1;
                        roles.of_call[index] = Some(role);
                        roles.calls.insert(role, index);
                    }
                    if let Some(slot) = slot {
                        made_by[slot as usize] = index;
                        roles.live.insert(index, slot);
                    }
                }
                OperationKind::Free { slot, .. } => {
                    roles.frees[index] = made_by[slot as usize];
                    roles.live.remove(&made_by[slot as usize]);
                }
                OperationKind::Release { completions, .. } => {
                    complete(completions, &mut roles.completes, &made_by);
                }
                OperationKind::Freeable(_)
                | OperationKind::Snapshot(_)
                | OperationKind::Workspace { .. } => {}
            }
        }
        roles
    }

    /// The call that plays the part of call `index` in the step before its own, or after it.
    fn beside(&self, index: usize, is_after: bool) -> Option<usize> {
        let (step, stack, nth) = (*self.of_call.get(index)?)?;
        let step = if is_after { step.checked_add(1) } else { step.checked_sub(1) };
        self.calls.get(&(step?, stack, nth)).copied()
    }
}

impl<'a> Program<'a> {
    /// What it would have gone on to do after the request of entry `failed`, if that is its last, given the
    /// training step that each entry belongs to. `None` where that request was not made a step before.
    pub fn prolonged(
        &self,
        failed: usize,
        step_of: &dyn Fn(usize) -> Option<u32>,
    ) -> Option<Prolonged<'a>> {
        let is_it = |operation: &Operation| operation.at as usize == failed;
        let last = self.operations.iter().rposition(is_it)?;
        let is_request =
            |operation: &Operation| matches!(operation.kind, OperationKind::Malloc { .. });
        if self.operations.get(last + 1..)?.iter().any(is_request) {
            return None;
        }
        let roles = Roles::of(self, last + 1, step_of);
        let before = roles.beside(last, false)?;
        let mut program =
            Self { operations: self.operations.get(..=last)?.to_vec(), ..self.clone() };
        let mut goes_on = GoesOn {
            roles: &roles,
            from: before,
            at: row(failed),
            slots: FxHashMap::default(),
            gone: FxHashSet::default(),
            repeats: (0..=row(last)).collect(),
            program: &mut program,
        };
        goes_on.request(last, before);
        for index in before + 1..last {
            goes_on.call(index);
        }
        goes_on.request(last, last);
        let repeats = std::mem::take(&mut goes_on.repeats);
        let requests = (goes_on.at as usize - failed).saturating_sub(1);
        let mut same = vec![last];
        while let Some(earlier) = same.last().and_then(|index| roles.beside(*index, false)) {
            same.push(earlier);
        }
        same.reverse();
        let mut places = same.iter().map(|index| program.operations[*index].at as usize).peekable();
        let (mut held, mut most_after, mut held_after) = (Vec::new(), 0, 0);
        program.each_request(&Settings::default(), |at, with_it| {
            if places.next_if_eq(&at).is_some() {
                held.push(with_it);
            }
            if at > failed {
                (most_after, held_after) = (with_it.max(most_after), with_it);
            }
        });
        Some(Prolonged { program, repeats, held, most_after, held_after, requests })
    }
}

/// Adds calls to a program, as they were made a step before.
struct GoesOn<'r, 'a> {
    roles: &'r Roles,
    /// The first of those calls.
    from: usize,
    /// The entry of the last request so far.
    at: u32,
    /// Slots of the blocks made anew, by the call that they repeat.
    slots: FxHashMap<usize, u32>,
    /// Calls whose blocks of this step are freed already.
    gone: FxHashSet<usize>,
    /// See [`Prolonged::repeats`].
    repeats: Vec<u32>,
    program: &'r mut Program<'a>,
}

impl GoesOn<'_, '_> {
    fn push(&mut self, like: usize, kind: OperationKind) {
        self.program.operations.push(Operation { at: self.at, kind });
        self.repeats.push(row(like));
    }

    /// Makes the request of call `like`, whose block plays the part of that of call `part`.
    fn request(&mut self, like: usize, part: usize) {
        let OperationKind::Malloc { size, stream, pool, context, completions, .. } =
            self.program.operations[like].kind
        else {
            return;
        };
        let completions = self.completions(completions);
        let slot = row(self.program.slots);
        self.program.slots += 1;
        self.at = self.at.saturating_add(1);
        self.slots.insert(part, slot);
        let slot = Some(slot);
        let kind = OperationKind::Malloc { size, stream, pool, context, slot, completions };
        self.push(part, kind);
    }

    fn call(&mut self, index: usize) {
        match self.program.operations[index].kind {
            OperationKind::Malloc { slot: Some(_), .. } => self.request(index, index),
            OperationKind::Free { waits, context, .. } => {
                let made = self.roles.frees[index];
                if let Some(slot) = self.slot_of(made).filter(|_| self.gone.insert(made)) {
                    self.push(index, OperationKind::Free { slot, waits, context });
                }
            }
            OperationKind::Release { scope, context, completions } => {
                let completions = self.completions(completions);
                self.push(index, OperationKind::Release { scope, context, completions });
            }
            // Those that failed were not to be had; nothing else holds memory.
            OperationKind::Malloc { .. }
            | OperationKind::Freeable(_)
            | OperationKind::Snapshot(_)
            | OperationKind::Workspace { .. } => {}
        }
    }

    /// The slot of what plays, now, the part of the block that call `made` made.
    fn slot_of(&self, made: usize) -> Option<u32> {
        if made >= self.from {
            return self.slots.get(&made).copied();
        }
        let now = self.roles.beside(made, true)?;
        self.roles.live.get(&now).copied()
    }

    fn completions(&mut self, completions: ListRange) -> ListRange {
        let first = self.program.completed.len();
        for place in completions.places() {
            let made = self.roles.completes.get(place).copied();
            let slot = made.filter(|made| self.gone.contains(made)).and_then(|it| self.slot_of(it));
            self.program.completed.extend(slot);
        }
        ListRange { first: row(first), count: row(self.program.completed.len() - first) }
    }
}
