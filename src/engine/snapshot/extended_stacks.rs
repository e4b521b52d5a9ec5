//! The context of stacks: what caused an allocation, where its own stack does not show it.
//!
//! An autograd thread is C++ and has no Python stack. The thread that waits for it has one: it allocated in `_make_grads`
//! just before, and its stack is taken as the caller. In anomaly mode an allocation of a backward pass has the stack of the
//! forward operation. Compiled code names its region. Frames of generated code name the line of the original source.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::contents::Snapshot;
use super::stacks::{ExtendedStack, Frame, Stacks};
use super::trace::TraceEntry;
use crate::allocator::trace_action::{Action, BlockState};
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::intern::SeededMap;
use crate::base::pages;

/// The part of PyTorch that starts backward passes, with separators as on Linux.
const AUTOGRAD: &str = "torch/autograd/";
/// Creates the first gradients of a backward pass, on the thread that starts it.
const MAKE_GRADS: &str = "_make_grads";
/// Waits for the autograd engine, since 2.3.
const RUN_BACKWARD: &str = "_engine_run_backward";
/// The outermost functions of Python programs and threads.
const ENTRY_FUNCTIONS: [&str; 3] = ["<module>", "_bootstrap", "_run_module_as_main"];
/// The compile context of code that is not compiled.
const NOT_COMPILED: &str = "N/A";

/// Number of stacks whose last context is remembered. Programs repeat few.
const LAST_STACKS: usize = 4096;

/// File and function of a stack's outermost Python frame. It identifies the thread.
type OutermostFrame = (SymbolId, SymbolId);

/// The kind of thread that a stack belongs to.
#[derive(Debug, Clone, Copy)]
enum Thread {
    /// Starts a backward pass. The stack is that of the call.
    CallsBackward(StackId, OutermostFrame),
    /// Runs other Python code.
    Python { bottom: OutermostFrame, starts_at_entry_function: bool, is_in_backward: bool },
    /// An autograd thread, or any thread if the stack was not recorded.
    NoPython,
    /// Another C++ thread.
    Other,
}

/// Parses tracebacks, with lines such as `File "model.py", line 12, in forward`, into one stack.
fn parse_tracebacks(snapshot: &mut Snapshot, tracebacks: &[SymbolId]) -> StackId {
    let mut frames: Vec<FrameId> = Vec::new();
    for text in tracebacks {
        let text = snapshot.text(*text).to_owned();
        for line in text.lines() {
            let place = line.trim_start().strip_prefix("File \"").and_then(|rest| {
                let (file, rest) = rest.split_once("\", line ")?;
                let (line, name) = rest.split_once(", in ")?;
                Some((file, line.parse().ok()?, name.trim_end()))
            });
            if let Some((file, line, name)) = place {
                let (file, name) = (snapshot.symbols.intern(file), snapshot.symbols.intern(name));
                frames.push(snapshot.stacks.intern_frame(Frame { file, name, line }));
            }
        }
    }
    frames.reverse();
    snapshot.stacks.intern(&frames)
}

/// Parses the tracebacks of frames and entries. Returns the stack of each distinct `forward_frames`.
fn read_tracebacks(snapshot: &mut Snapshot, originals: FxHashMap<FrameId, SymbolId>) -> FxHashMap<StackId, StackId> {
    let mut originals: Vec<(FrameId, SymbolId)> = originals.into_iter().collect();
    originals.sort_unstable();
    for (frame, text) in originals {
        let stack = parse_tracebacks(snapshot, &[text]);
        snapshot.stacks.originals.insert(frame, stack);
    }
    let mut forwards = FxHashMap::default();
    let mut distinct: Vec<StackId> = snapshot.entries.contexts().iter().map(|context| context.forward).collect();
    let mut seen = FxHashSet::default();
    distinct.retain(|forward| *forward != Stacks::EMPTY && seen.insert(*forward));
    for forward in distinct {
        let texts = snapshot.stacks.frames(forward).iter();
        let texts: Vec<SymbolId> = texts.map(|id| snapshot.stacks.frame(id).name).collect();
        forwards.insert(forward, parse_tracebacks(snapshot, &texts));
    }
    forwards
}

/// Sets the extended stack of every entry and active block.
pub(super) fn extend_stacks(snapshot: &mut Snapshot, originals: FxHashMap<FrameId, SymbolId>) {
    let mut contexts = Contexts::new(snapshot, originals);
    let failed_backward_call = failed_backward(snapshot);
    if contexts.is_empty(snapshot) && failed_backward_call.is_none() {
        return;
    }
    let mut extended_ids: Vec<StackId> = Vec::new();
    pages::reserve(&mut extended_ids, snapshot.entries.len());
    let mut live_by_device: Vec<LiveStacks> = Vec::new();
    for rows in snapshot.traces.clone() {
        extended_ids.resize(rows.start, Stacks::EMPTY);
        live_by_device.push(contexts.extend_trace(snapshot, rows, &mut extended_ids));
    }
    if let Some((device, caller)) = failed_backward_call
        && let Some(rows) = snapshot.traces.get(device).cloned()
    {
        set_caller_of_failure(snapshot, caller, rows, &mut extended_ids, live_by_device.get_mut(device));
    }
    snapshot.entries.extended_stacks = extended_ids;
    extend_blocks(snapshot, &live_by_device);
}

/// The extended stack of the live block at each address, unless it is the recorded one.
type LiveStacks = SeededMap<u64, StackId>;

/// The running backward pass of a trace: its call, and the thread that waits for it.
type OpenPass = Option<(StackId, OutermostFrame)>;

/// The facts from which the context of a trace entry follows.
struct Contexts {
    /// The thread of each stack; empty if no stack starts a backward pass.
    threads: Vec<Thread>,
    passes: Vec<BackwardPass>,
    /// The stack of each distinct `forward_frames`.
    forwards: FxHashMap<StackId, StackId>,
    not_compiled: [SymbolId; 2],
    /// For each stack, by its index modulo [`LAST_STACKS`], its last context and the id of both.
    last: Vec<(ExtendedStack, StackId)>,
}

impl Contexts {
    fn new(snapshot: &mut Snapshot, originals: FxHashMap<FrameId, SymbolId>) -> Self {
        let forwards = read_tracebacks(snapshot, originals);
        let threads = classify_threads(snapshot);
        let not_compiled = ["", NOT_COMPILED].map(|context| snapshot.symbols.intern(context));
        let passes = backward_passes(snapshot, &threads);
        let last = vec![(ExtendedStack::from_stack(Stacks::EMPTY), Stacks::EMPTY); LAST_STACKS];
        Self { threads, passes, forwards, not_compiled, last }
    }

    fn is_compiled(&self, context: SymbolId) -> bool {
        !self.not_compiled.contains(&context)
    }

    /// Whether no entry of `snapshot` has a context.
    fn is_empty(&self, snapshot: &Snapshot) -> bool {
        let mut compiled = snapshot.entries.contexts().iter().filter_map(|context| context.compile_context);
        self.threads.is_empty() && self.forwards.is_empty() && !compiled.any(|context| self.is_compiled(context))
    }

    /// Appends the extended stacks of the entries in `rows`, the trace of a device. Returns those of its live blocks.
    fn extend_trace(&mut self, snapshot: &mut Snapshot, rows: Range<usize>, ids: &mut Vec<StackId>) -> LiveStacks {
        let (mut live, mut open) = (LiveStacks::default(), None);
        for row in rows {
            // Rows of a trace are always in range.
            let Some(entry) = snapshot.entries.get(row) else { break };
            let extended = self.extended_stack(&entry, &mut open);
            let id = match self.last.get_mut(entry.stack.index() % LAST_STACKS) {
                Some((known, id)) if *known == extended => *id,
                Some(last) => {
                    *last = (extended, snapshot.stacks.intern_extended(extended));
                    last.1
                }
                None => snapshot.stacks.intern_extended(extended),
            };
            track_live(&mut live, &entry, id);
            ids.push(id);
        }
        live
    }

    /// The stack of `entry` with its context.
    #[inline]
    fn extended_stack(&self, entry: &TraceEntry, open: &mut OpenPass) -> ExtendedStack {
        let thread = self.threads.get(entry.stack.index());
        let caller = match caller_of(thread, open) {
            Stacks::EMPTY if matches!(thread, Some(Thread::NoPython)) => caller_at(&self.passes, entry.time_us),
            caller => caller,
        };
        ExtendedStack {
            stack: entry.stack,
            caller,
            forward: self.forwards.get(&entry.forward).copied().unwrap_or(Stacks::EMPTY),
            compile_context: entry.compile_context.filter(|context| self.is_compiled(*context)),
        }
    }
}

/// Sets the extended stack of active blocks, given those of the live blocks of each device's trace.
fn extend_blocks(snapshot: &mut Snapshot, live_by_device: &[LiveStacks]) {
    for segment in &snapshot.segments {
        let device = usize::try_from(segment.device).ok();
        // Without a trace there is no context for the blocks of this device.
        let Some(live) = device.and_then(|device| live_by_device.get(device)) else { continue };
        let blocks = &mut snapshot.blocks[segment.blocks.clone()];
        for block in blocks.iter_mut().filter(|block| block.state != BlockState::Inactive) {
            let id = live.get(&block.address).copied();
            if let Some(id) = id.filter(|id| snapshot.stacks.recorded_stack(*id) == block.stack) {
                block.extended_stack = id;
            }
        }
    }
}

/// The time range of a backward pass: from the entry that starts it, on any device, to the next entry that shows its
/// calling thread in other code.
struct BackwardPass {
    from: u64,
    until: u64,
    caller: StackId,
}

/// The backward passes of a program that uses several devices: each device has an autograd thread, but only one device
/// records the call. Empty if entries have no times.
fn backward_passes(snapshot: &Snapshot, threads: &[Thread]) -> Vec<BackwardPass> {
    let is_single_device = snapshot.traces.iter().filter(|rows| !rows.is_empty()).count() < 2;
    if threads.is_empty() || is_single_device {
        return Vec::new();
    }
    let sightings = (0..snapshot.entries.len()).filter_map(|row| {
        let thread = threads.get(snapshot.entries.stack(row)?.index())?;
        let is_sighting = matches!(thread, Thread::CallsBackward(..) | Thread::Python { .. });
        Some((snapshot.entries.time_us(row)?, thread)).filter(|_| is_sighting)
    });
    let mut sightings: Vec<(u64, &Thread)> = sightings.collect();
    sightings.sort_by_key(|(time, _)| *time);
    let (mut passes, mut open): (Vec<BackwardPass>, _) = (Vec::new(), None);
    for (time, thread) in sightings {
        caller_of(Some(thread), &mut open);
        if let Some(last) = passes.last_mut().filter(|last| last.until == u64::MAX) {
            if open.is_some() && !matches!(thread, Thread::CallsBackward(..)) {
                continue;
            }
            last.until = time;
        }
        if let Some((caller, _)) = open {
            passes.push(BackwardPass { from: time, until: u64::MAX, caller });
        }
    }
    passes
}

/// The call of the backward pass that was running at `time`.
fn caller_at(passes: &[BackwardPass], time: u64) -> StackId {
    let last = passes.partition_point(|pass| pass.from <= time).checked_sub(1).and_then(|last| passes.get(last));
    last.filter(|pass| time < pass.until).map_or(Stacks::EMPTY, |pass| pass.caller)
}

/// The device on which a request failed, and the backward call that the recorder found on a thread's stack then.
fn failed_backward(snapshot: &mut Snapshot) -> Option<(usize, StackId)> {
    let info = snapshot.recorder_info.as_ref()?;
    let device = usize::try_from(info.oom?.device).ok()?;
    let calls = info.threads.iter().find_map(|thread| {
        let frames: Vec<FrameId> = snapshot.stacks.frames(*thread).iter().collect();
        let at = frames.iter().position(|id| waits_for_backward(snapshot.frame_text(*id)))?;
        // The wrapper of the engine is less informative than its caller.
        let at = at + usize::from(snapshot.frame_text(*frames.get(at)?).1 == RUN_BACKWARD);
        Some(frames.get(at..)?.to_vec())
    })?;
    Some((device, snapshot.stacks.intern(&calls)))
}

/// Sets `caller` for the last failed request among `rows`, and for the entries before it, back to the first one with a
/// Python stack.
fn set_caller_of_failure(
    snapshot: &mut Snapshot,
    caller: StackId,
    rows: Range<usize>,
    extended_ids: &mut [StackId],
    mut live: Option<&mut LiveStacks>,
) {
    // Recording may have been off when the request failed.
    let Some(failed) = snapshot.entries.failed_requests(rows.clone()).last().copied() else { return };
    for row in (rows.start..=failed).rev() {
        let (Some(entry), Some(extended_id)) = (snapshot.entries.get(row), extended_ids.get_mut(row)) else {
            break; // rows of a trace are always in range
        };
        if outermost_python_frame(snapshot, entry.stack).is_some() || *extended_id != entry.stack {
            break;
        }
        let known = ExtendedStack { stack: entry.stack, caller, forward: Stacks::EMPTY, compile_context: None };
        *extended_id = snapshot.stacks.intern_extended(known);
        if let Some(live) = live.as_deref_mut().filter(|_| entry.action == Action::Alloc) {
            // Going backwards: a later block at this address is the live one.
            live.entry(entry.addr).or_insert(*extended_id);
        }
    }
}

/// Tracks the extended stack of the block at each address.
fn track_live(live: &mut LiveStacks, entry: &TraceEntry, extended_id: StackId) {
    if entry.action != Action::Alloc {
        return;
    }
    if extended_id != entry.stack {
        live.insert(entry.addr, extended_id);
    } else if !live.is_empty() {
        live.remove(&entry.addr);
    }
}

/// The backward call that an entry on `thread` belongs to, which may start or end the running pass.
fn caller_of(thread: Option<&Thread>, open: &mut OpenPass) -> StackId {
    match (thread, *open) {
        (Some(Thread::CallsBackward(stack, bottom)), _) => *open = Some((*stack, *bottom)),
        (Some(Thread::Python { bottom, is_in_backward, .. }), Some((_, own))) if *bottom == own => {
            *open = open.filter(|_| *is_in_backward);
        }
        // Python code on an autograd thread is a hook, a custom backward or a checkpoint.
        (Some(Thread::NoPython | Thread::Python { starts_at_entry_function: false, .. }), Some((stack, _))) => {
            return stack;
        }
        _ => {}
    }
    Stacks::EMPTY
}

/// The thread of each stack; empty if no stack starts a backward pass.
fn classify_threads(snapshot: &mut Snapshot) -> Vec<Thread> {
    if !snapshot.stacks.frame_ids().any(|id| snapshot.frame_text(id).1 == MAKE_GRADS) {
        return Vec::new();
    }
    let count = snapshot.stacks.len();
    (0..count).map(|id| classify_thread(snapshot, StackId::from_index(id))).collect()
}

fn outermost_python_frame(snapshot: &Snapshot, stack: StackId) -> Option<FrameId> {
    snapshot.stacks.frames(stack).iter().rev().find(|id| {
        let (file, _) = snapshot.frame_text(*id);
        file.strip_suffix(".py").is_some() || file.starts_with('<') || file.starts_with("Cell In[")
    })
}

fn is_autograd(file: &str) -> bool {
    file.replace('\\', "/").contains(AUTOGRAD)
}

/// Whether a frame, by its file and function, waits for a backward pass.
fn waits_for_backward((file, name): (&str, &str)) -> bool {
    matches!(name, "backward" | "grad" | RUN_BACKWARD) && is_autograd(file)
}

fn classify_thread(snapshot: &mut Snapshot, stack: StackId) -> Thread {
    let frames = snapshot.stacks.frames(stack);
    let Some(outermost) = outermost_python_frame(snapshot, stack) else {
        let is_engine = frames.iter().any(|id| snapshot.frame_text(id).1.contains("torch::autograd::Engine::"));
        return if is_engine || frames.is_empty() { Thread::NoPython } else { Thread::Other };
    };
    let frame = snapshot.stacks.frame(outermost);
    let bottom = (frame.file, frame.name);
    let call = frames.iter().position(|id| {
        let (file, name) = snapshot.frame_text(id);
        name == MAKE_GRADS && is_autograd(file)
    });
    if let Some(at) = call {
        let caller: Vec<FrameId> = frames.iter().skip(at + 1).collect();
        return Thread::CallsBackward(snapshot.stacks.intern(&caller), bottom);
    }
    Thread::Python {
        bottom,
        starts_at_entry_function: ENTRY_FUNCTIONS.contains(&snapshot.frame_text(outermost).1),
        is_in_backward: frames.iter().any(|id| waits_for_backward(snapshot.frame_text(id))),
    }
}
