//! Who made memory, where the stack of its allocation is not all that a file says of it.
//!
//! The C++ threads of a backward pass have no Python stack, but the thread that waits for them has: it called
//! `_make_grads` in an allocation just before. In anomaly mode an allocation of a backward pass names the line
//! of the forward pass; one in compiled code names its region; frames of code that a program wrote name the line
//! that it was written from.

use rustc_hash::FxHashMap;

use super::contents::Snapshot;
use super::stacks::{Frame, Maker, Stacks};
use super::trace::TraceEntry;
use crate::allocator::trace_action::BlockState;
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::intern::SeededMap;

/// The file of PyTorch that calls backward passes, with the separators of Linux.
const AUTOGRAD: &str = "torch/autograd/";
/// The function that makes the first gradients of a backward pass, on the thread that calls it.
const MAKE_GRADS: &str = "_make_grads";
/// The function that waits for the engine, since 2.3.
const RUN_BACKWARD: &str = "_engine_run_backward";
/// Frames that Python programs and threads begin with.
const FIRST: [&str; 3] = ["<module>", "_bootstrap", "_run_module_as_main"];
/// What PyTorch writes where code is not compiled.
const NOT_COMPILED: &str = "N/A";

/// What tells one Python thread's stacks from another's: the file and the function of its outermost frame.
type Bottom = (SymbolId, SymbolId);

/// Which thread a stack is of.
#[derive(Debug, Clone, Copy)]
enum Thread {
    /// One that calls a backward pass, with the frames of that call.
    Calls(StackId, Bottom),
    /// One that runs Python.
    Python { bottom: Bottom, is_from_the_top: bool, is_in_backward: bool },
    /// One of autograd's, or of anything where no stack was recorded.
    Bare,
    /// Another one of C++.
    Other,
}

/// The places that a traceback names, `File "model.py", line 12, in forward`, as frames, innermost first.
fn parsed(snapshot: &mut Snapshot, tracebacks: &[SymbolId]) -> StackId {
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

/// Reads the tracebacks that frames and entries hold as text.
fn read_tracebacks(
    snapshot: &mut Snapshot,
    originals: FxHashMap<FrameId, SymbolId>,
) -> FxHashMap<StackId, StackId> {
    let mut originals: Vec<(FrameId, SymbolId)> = originals.into_iter().collect();
    originals.sort_unstable();
    for (frame, text) in originals {
        let stack = parsed(snapshot, &[text]);
        snapshot.stacks.set_original(frame, stack);
    }
    let mut forwards = FxHashMap::default();
    for row in 0..snapshot.entries.len() {
        let Some(forward) = snapshot.entries.forward(row) else { break };
        if forward != Stacks::EMPTY && !forwards.contains_key(&forward) {
            let texts = snapshot.stacks.frames(forward).iter();
            let texts: Vec<SymbolId> = texts.map(|id| snapshot.stacks.frame(*id).name).collect();
            forwards.insert(forward, parsed(snapshot, &texts));
        }
    }
    forwards
}

/// Finds out who made what every entry and block is about.
pub(super) fn find(snapshot: &mut Snapshot, originals: FxHashMap<FrameId, SymbolId>) {
    let forwards = read_tracebacks(snapshot, originals);
    let threads = threads(snapshot);
    let in_progress = in_progress(snapshot);
    let is_compiled =
        |context: &SymbolId| !matches!(snapshot.symbols.get(*context), "" | NOT_COMPILED);
    let contexts = (0..snapshot.entries.len()).map(|row| snapshot.entries.compile_context(row));
    let has_context = contexts.flatten().any(|context| is_compiled(&context));
    if threads.is_empty() && forwards.is_empty() && !has_context && in_progress.is_none() {
        return;
    }
    let passes = passes(snapshot, &threads);
    let mut makers: Vec<StackId> = Vec::with_capacity(snapshot.entries.len());
    let mut of_blocks: Vec<SeededMap<u64, StackId>> = Vec::new();
    for rows in snapshot.traces.clone() {
        makers.resize(rows.start, Stacks::EMPTY);
        let mut open: Option<(StackId, Bottom)> = None;
        let mut live: SeededMap<u64, StackId> = SeededMap::default();
        for row in rows {
            let Some(entry) = snapshot.entries.get(row) else { break };
            let thread = threads.get(entry.stack.index());
            let caller = match caller(thread, &mut open) {
                Stacks::EMPTY if matches!(thread, Some(Thread::Bare)) => {
                    called_elsewhere(&passes, entry.time_us)
                }
                caller => caller,
            };
            let maker = Maker {
                stack: entry.stack,
                caller,
                forward: forwards.get(&entry.forward).copied().unwrap_or(Stacks::EMPTY),
                compile_context: entry.compile_context.filter(is_compiled),
            };
            let id = snapshot.stacks.intern_maker(maker);
            note(&mut live, &entry, id);
            makers.push(id);
        }
        of_blocks.push(live);
    }
    if let Some((device, caller)) = in_progress
        && let Some(rows) = snapshot.traces.get(device).cloned()
    {
        let live = of_blocks.get_mut(device);
        called_from(snapshot, caller, rows, &mut makers, live);
    }
    snapshot.entries.set_makers(makers);
    let snapshot_stacks = &snapshot.stacks;
    for segment in &snapshot.segments {
        let device = usize::try_from(segment.device).ok();
        let Some(live) = device.and_then(|device| of_blocks.get(device)) else { continue };
        let blocks = snapshot.blocks.get_mut(segment.blocks.clone()).unwrap_or_default();
        for block in blocks.iter_mut().filter(|block| block.state != BlockState::Inactive) {
            let maker = live.get(&block.address).copied();
            if let Some(maker) = maker.filter(|id| snapshot_stacks.recorded(*id) == block.stack) {
                block.made_by = maker;
            }
        }
    }
}

/// A backward pass, by the clock: from the entry that begins it, on whatever device, up to the next one that shows the
/// thread that called it at something else.
struct Pass {
    from: u64,
    until: u64,
    caller: StackId,
}

/// The backward passes of a program that has memory on several devices: each device has a thread of autograd's, but the
/// call shows on one device alone. None where entries have no times.
fn passes(snapshot: &Snapshot, threads: &[Thread]) -> Vec<Pass> {
    let is_alone = snapshot.traces.iter().filter(|rows| !rows.is_empty()).count() < 2;
    if threads.is_empty() || is_alone {
        return Vec::new();
    }
    let told = (0..snapshot.entries.len()).filter_map(|row| {
        let thread = threads.get(snapshot.entries.stack(row)?.index())?;
        let is_told = matches!(thread, Thread::Calls(..) | Thread::Python { .. });
        Some((snapshot.entries.time_us(row)?, thread)).filter(|_| is_told)
    });
    let mut told: Vec<(u64, &Thread)> = told.collect();
    told.sort_by_key(|(time, _)| *time);
    let (mut passes, mut open): (Vec<Pass>, _) = (Vec::new(), None);
    for (time, thread) in told {
        caller(Some(thread), &mut open);
        if let Some(last) = passes.last_mut().filter(|last| last.until == u64::MAX) {
            if open.is_some() && !matches!(thread, Thread::Calls(..)) {
                continue;
            }
            last.until = time;
        }
        if let Some((caller, _)) = open {
            passes.push(Pass { from: time, until: u64::MAX, caller });
        }
    }
    passes
}

/// The call of the backward pass that went on at `time`.
fn called_elsewhere(passes: &[Pass], time: u64) -> StackId {
    let begun = passes.partition_point(|pass| pass.from <= time);
    let last = begun.checked_sub(1).and_then(|last| passes.get(last));
    last.filter(|pass| time < pass.until).map_or(Stacks::EMPTY, |pass| pass.caller)
}

/// The device on which a request failed, and the call of the backward pass that was going on as the recorder saw it.
fn in_progress(snapshot: &mut Snapshot) -> Option<(usize, StackId)> {
    let recorded = snapshot.recorded.as_ref()?;
    let device = usize::try_from(recorded.failed_on?).ok()?;
    let calls = recorded.threads.iter().find_map(|thread| {
        let frames = snapshot.stacks.frames(*thread);
        let text = |id: &FrameId| {
            let frame = snapshot.stacks.frame(*id);
            (snapshot.text(frame.file), snapshot.text(frame.name))
        };
        let at = frames.iter().position(|id| waits_for_backward(text(id)))?;
        // The engine's own wrapper says less than the function that was called.
        let at = if text(frames.get(at)?).1 == RUN_BACKWARD { at + 1 } else { at };
        Some(frames.get(at..)?.to_vec())
    })?;
    Some((device, snapshot.stacks.intern(&calls)))
}

/// Says of the last failed request among `rows`, and of what was asked for just before it, that `caller` waited for
/// them; up to the first entry with a stack of Python.
fn called_from(
    snapshot: &mut Snapshot,
    caller: StackId,
    rows: std::ops::Range<usize>,
    makers: &mut [StackId],
    mut live: Option<&mut SeededMap<u64, StackId>>,
) {
    let is_failure =
        |row: &usize| snapshot.entries.action(*row) == Some(crate::allocator::trace_action::Action::Oom);
    let Some(failed) = rows.clone().rev().find(is_failure) else { return };
    for row in (rows.start..=failed).rev() {
        let (Some(entry), Some(maker)) = (snapshot.entries.get(row), makers.get_mut(row)) else {
            break;
        };
        if outermost_of_python(snapshot, entry.stack).is_some() || *maker != entry.stack {
            break;
        }
        let known =
            Maker { stack: entry.stack, caller, forward: Stacks::EMPTY, compile_context: None };
        *maker = snapshot.stacks.intern_maker(known);
        if let Some(live) =
            live.as_deref_mut().filter(|_| entry.action == crate::allocator::trace_action::Action::Alloc)
        {
            // A later block at the same address is the one that lives.
            live.entry(entry.addr).or_insert(*maker);
        }
    }
}

/// Keeps in mind who made what lives at each address, where that is more than a stack.
fn note(live: &mut SeededMap<u64, StackId>, entry: &TraceEntry, maker: StackId) {
    if entry.action != crate::allocator::trace_action::Action::Alloc {
        return;
    }
    if maker == entry.stack {
        live.remove(&entry.addr);
    } else {
        live.insert(entry.addr, maker);
    }
}

/// The call of the backward pass that an entry on `thread` belongs to; `open` is the one that goes on.
fn caller(thread: Option<&Thread>, open: &mut Option<(StackId, Bottom)>) -> StackId {
    let calling = *open;
    match (thread, calling) {
        (Some(Thread::Calls(stack, bottom)), _) => *open = Some((*stack, *bottom)),
        (Some(Thread::Bare), Some((stack, _))) => return stack,
        (Some(Thread::Python { bottom, is_from_the_top, is_in_backward }), Some((stack, own))) => {
            if *bottom == own {
                if !is_in_backward {
                    *open = None;
                }
            } else if !is_from_the_top {
                // A hook, a function's own backward, a checkpoint: Python that autograd's thread calls.
                return stack;
            }
        }
        _ => {}
    }
    Stacks::EMPTY
}

/// The thread of each stack; none where no stack calls a backward pass.
fn threads(snapshot: &mut Snapshot) -> Vec<Thread> {
    let calls = |id: usize| {
        let frame = snapshot.stacks.frame(FrameId::from_index(id));
        snapshot.text(frame.name) == MAKE_GRADS
    };
    if !(0..snapshot.stacks.frame_count()).any(calls) {
        return Vec::new();
    }
    let count = snapshot.stacks.len();
    (0..count).map(|id| thread(snapshot, StackId::from_index(id))).collect()
}

/// The outermost frame of Python in `stack`.
fn outermost_of_python(snapshot: &Snapshot, stack: StackId) -> Option<FrameId> {
    let is_python = |id: &&FrameId| {
        let file = snapshot.text(snapshot.stacks.frame(**id).file);
        file.strip_suffix(".py").is_some() || file.starts_with('<') || file.starts_with("Cell In[")
    };
    snapshot.stacks.frames(stack).iter().rev().find(is_python).copied()
}

fn is_autograd(file: &str) -> bool {
    file.replace('\\', "/").contains(AUTOGRAD)
}

/// Whether a frame's file and function are those of a call that waits for a backward pass.
fn waits_for_backward((file, name): (&str, &str)) -> bool {
    matches!(name, "backward" | "grad" | RUN_BACKWARD) && is_autograd(file)
}

fn thread(snapshot: &mut Snapshot, stack: StackId) -> Thread {
    let frames = snapshot.stacks.frames(stack);
    let text = |id: &FrameId| {
        let frame = snapshot.stacks.frame(*id);
        (snapshot.text(frame.file), snapshot.text(frame.name))
    };
    let Some(outermost) = outermost_of_python(snapshot, stack) else {
        let is_engine = frames.iter().any(|id| text(id).1.contains("torch::autograd::Engine::"));
        return if is_engine || frames.is_empty() { Thread::Bare } else { Thread::Other };
    };
    let frame = snapshot.stacks.frame(outermost);
    let bottom = (frame.file, frame.name);
    let is_call = |id: &FrameId| text(id).1 == MAKE_GRADS && is_autograd(text(id).0);
    if let Some(at) = frames.iter().position(is_call) {
        let caller = frames.get(at + 1..).unwrap_or_default().to_vec();
        return Thread::Calls(snapshot.stacks.intern(&caller), bottom);
    }
    let is_in_backward = |id: &FrameId| waits_for_backward(text(id));
    Thread::Python {
        bottom,
        is_from_the_top: FIRST.contains(&text(&outermost).1),
        is_in_backward: frames.iter().any(is_in_backward),
    }
}
