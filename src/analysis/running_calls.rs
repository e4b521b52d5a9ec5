//! The calls of the program that run at a failed request: their lines, and since when each runs.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::base::ids::StackId;
use crate::python::{Line, ProgramText};
use crate::snapshot::{Action, Device, TraceEntry};
use crate::stacks::frames::Origin;
use crate::study::DeviceStudy;

/// The program at the failing request: its frames, and since when each runs.
pub(super) struct RunningCalls<'s, 'a> {
    pub(super) device: DeviceStudy<'s, 'a>,
    /// The innermost first.
    pub(super) lines: Vec<Line<'a>>,
    /// The entry of the failed request.
    pub(super) failed: usize,
    /// By line, the entry since which its call runs, and since which the line runs.
    pub(super) since: Vec<(usize, usize)>,
}

impl<'s, 'a> RunningCalls<'s, 'a> {
    pub(super) fn new(device: DeviceStudy<'s, 'a>, failed: usize) -> Self {
        let trace = device.device();
        let lines = lines_of(device, trace.entry(failed).extended_stack);
        let mut since = vec![(0, 0); lines.len()];
        // By stack, how many of the outermost lines it shares, and whether the next one is of the same function.
        let mut shared: FxHashMap<StackId, Option<(usize, usize)>> = FxHashMap::default();
        let (mut open_calls, mut open_lines) = (lines.len(), lines.len());
        for index in (0..failed).rev() {
            let entry = trace.entry(index);
            if entry.action != Action::Alloc {
                continue;
            }
            let shared_lines = shared.entry(entry.extended_stack).or_insert_with(|| {
                let other = lines_of(device, entry.extended_stack);
                let mut pairs = other.iter().rev().zip(lines.iter().rev());
                let same_lines =
                    pairs.clone().take_while(|(a, b)| (a.file, a.line, a.function) == (b.file, b.line, b.function));
                let same = same_lines.count();
                let goes_on = pairs.nth(same).is_some_and(|(a, b)| (a.file, a.function) == (b.file, b.function));
                (!other.is_empty()).then_some((same + usize::from(goes_on), same))
            });
            let Some((calls, same)) = *shared_lines else { continue };
            while open_calls > calls {
                since[lines.len() - open_calls].0 = index + 1;
                open_calls -= 1;
            }
            while open_lines > same {
                since[lines.len() - open_lines].1 = index + 1;
                open_lines -= 1;
            }
            if open_calls.max(open_lines) == 0 {
                break;
            }
        }
        begin_at_last_calls(device, failed, &mut since);
        Self { device, lines, failed, since }
    }

    /// The entry that begins the running call at line `at`. A loop of one statement runs it several times.
    pub(super) fn start_of_call(&self, at: usize) -> usize {
        let (trace, since) = (self.device.device(), self.since[at].1);
        let mut entries = (since..self.failed).filter(|index| trace.entry(*index).action == Action::Alloc);
        let first = entries.next().filter(|_| self.device.text().is_repeated(&self.lines[at]));
        let Some(first) = first else { return since };
        let stack = trace.entry(first).extended_stack;
        entries.rfind(|index| trace.entry(*index).extended_stack == stack).unwrap_or(first)
    }
}

/// Moves the start of each call to the last of several calls in a row: to where the first line of the function runs
/// again. `since` has the innermost line first.
fn begin_at_last_calls(device: DeviceStudy<'_, '_>, failed: usize, since: &mut [(usize, usize)]) {
    let trace = device.device();
    let calls = since.iter().rev().map(|(start, _)| CallInTrace { start: *start, ..CallInTrace::default() });
    let mut calls: Vec<CallInTrace> = calls.collect();
    let mut lines_by_stack: FxHashMap<StackId, Vec<Line<'_>>> = FxHashMap::default();
    for index in since.last().map_or(failed, |(start, _)| *start)..failed {
        let entry = trace.entry(index);
        if entry.action != Action::Alloc {
            continue;
        }
        let lines =
            lines_by_stack.entry(entry.extended_stack).or_insert_with(|| lines_of(device, entry.extended_stack));
        for (call, line) in calls.iter_mut().zip(lines.iter().rev()) {
            call.add(index, line, device.text());
        }
    }
    for ((start, _), call) in since.iter_mut().rev().zip(calls) {
        *start = call.start;
    }
}

/// The lines of one function that make requests, in the order of the trace.
#[derive(Default)]
struct CallInTrace {
    /// The entry that begins the last call. Earlier entries are of other calls.
    start: usize,
    first: Option<u32>,
    previous: Option<u32>,
    /// The first line runs several times in one call.
    is_repeated: bool,
}

impl CallInTrace {
    fn add(&mut self, index: usize, line: &Line<'_>, program: &ProgramText<'_>) {
        if index < self.start || self.is_repeated {
            return;
        }
        if self.first.is_none() {
            self.is_repeated = program.is_repeated(line);
            self.first = Some(line.line);
        }
        let is_start = self.first == Some(line.line) && self.previous != Some(line.line);
        if is_start && !self.is_repeated {
            self.start = index;
        }
        self.previous = Some(line.line);
    }
}

/// The bytes of each live block after `entries` that one of them requested, if `is_counted` selects the request.
pub(super) fn live_blocks(
    trace: Device<'_>,
    entries: Range<usize>,
    is_counted: impl Fn(&TraceEntry) -> bool,
) -> Vec<u64> {
    let mut live = FxHashMap::default();
    for entry in entries.map(|index| trace.entry(index)) {
        match entry.action {
            Action::Alloc if is_counted(&entry) => {
                live.insert(entry.addr, entry.size);
            }
            Action::FreeRequested | Action::FreeCompleted => {
                live.remove(&entry.addr);
            }
            _ => {}
        }
    }
    live.into_values().collect()
}

/// The frames of the program in `stack`, with its callers, the innermost first.
pub(super) fn lines_of<'a>(device: DeviceStudy<'_, 'a>, stack: StackId) -> Vec<Line<'a>> {
    let (snapshot, stacks) = (device.snapshot(), device.stacks());
    let mut lines = Vec::new();
    let mut calls_package = false;
    for id in stacks.frames_with_callers(stack) {
        match stacks.origin(id) {
            Origin::User => {
                let frame = snapshot.stacks.frame(id);
                let (file, function) = (snapshot.text(frame.file), snapshot.text(frame.name));
                lines.push(Line { file, line: frame.line, function, calls_package });
                calls_package = false;
            }
            Origin::Package => calls_package = true,
            Origin::Torch | Origin::Plumbing | Origin::Native => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_begins_where_its_first_line_runs_again() {
        let text = "def f(x):\n    a = g(x)\n    b = g(a)\n    for c in b:\n        g(c)\n";
        let program = ProgramText::new([("m.py", text)].into_iter(), true);
        for (since, lines, start, why) in [
            (0, &[2, 3, 3, 2, 2, 3][..], 3, "the first line runs again"),
            (2, &[2, 3, 3, 2, 3, 3], 4, "earlier entries are of other calls"),
            (1, &[2, 5, 2, 5], 1, "a loop runs its line several times in one call"),
        ] {
            let mut call = CallInTrace { start: since, ..CallInTrace::default() };
            for (index, line) in lines.iter().enumerate() {
                let line = Line { file: "m.py", line: *line, function: "f", calls_package: false };
                call.add(index, &line, &program);
            }
            assert_eq!(call.start, start, "{why}");
        }
    }
}
