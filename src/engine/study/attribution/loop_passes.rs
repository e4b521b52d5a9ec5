//! Counts the passes of the program's own loops, from stacks alone: steps, requests of a server, items of a loop.
//!
//! A function runs its lines from the top, so a request at an earlier line than the last one of the same function, called
//! from the same line, is in another pass of a loop, or in another call. No optimizer is needed.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::live_set::LiveSet;
use crate::base::ids::{FrameId, StackId, SymbolId, to_u32};
use crate::base::intern::SeededMap;
use crate::base::units::ratio;
use crate::snapshot::{Action, Snapshot};
use crate::stacks::frames::{Origin, StackReader};
use crate::study::DeviceStudy;
use crate::study::iterations::GrowingLine;

/// The functions of a stack, from the outermost to the first call that has loops of its own: of a module, an optimizer,
/// a constructor or a backward pass.
#[derive(Debug, Default)]
pub(super) struct CallChain {
    /// Identifies the chain.
    pub(super) id: u32,
    /// The innermost frame of the user's code; without one, of a package.
    pub(super) line: Option<FrameId>,
    /// It ends with the call of a module.
    pub(super) calls_module: bool,
    /// For each function from the outermost on: its node, and the line.
    path: Vec<(usize, u32)>,
}

/// A function, as called from one line of its caller.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    last_line: u32,
    passes: u64,
}

/// A live block, with the calls that made it.
#[derive(Debug, Clone)]
pub(super) struct MadeBy {
    pub(super) chain: Rc<CallChain>,
    /// Increases with each pass of a loop around the request.
    pub(super) pass: u64,
    bytes: u64,
}

/// The free of a block that was made at least two passes earlier.
#[derive(Debug, Clone, Copy)]
struct OldFree {
    /// Live bytes of its chain before the free.
    level: u64,
    bytes: u64,
}

/// A collection is bounded if the program drops items once it has this share of its final bytes.
const BOUNDED_SHARE: f64 = 0.75;

/// The live blocks of a position by address, with the calls that made them.
#[derive(Debug, Default)]
pub(super) struct LoopPasses {
    pub(super) blocks: SeededMap<u64, MadeBy>,
    /// By chain: the frees of blocks of earlier passes.
    old_frees: FxHashMap<u32, Vec<OldFree>>,
    /// The failed requests before the position: their entries and calls.
    pub(super) failed: Vec<(usize, MadeBy)>,
    /// By chain: its growth from iteration to iteration.
    pub(super) growing: FxHashMap<u32, Vec<GrowingLine>>,
    /// By chain.
    live_bytes: FxHashMap<u32, u64>,
    nodes: Vec<Node>,
}

/// Identifies a [`Node`]: the node and the line of its caller, its file and its name.
type NodeKey = (usize, u32, SymbolId, SymbolId);

struct Chains<'a> {
    snapshot: &'a Snapshot,
    stacks: &'a StackReader<'a>,
    by_stack: Vec<Option<Rc<CallChain>>>,
    nodes: Vec<Node>,
    node_ids: FxHashMap<NodeKey, usize>,
    chain_ids: FxHashMap<Vec<(usize, u32)>, u32>,
    last_chain: u32,
    /// By chain: the stack of the last request that followed a request of another chain.
    entered_by: FxHashMap<u32, StackId>,
}

impl LoopPasses {
    /// Reads the trace of `device` up to the position of `live_set`.
    pub(super) fn up_to(device: DeviceStudy<'_, '_>, live_set: &LiveSet) -> Self {
        let (snapshot, trace, stacks) = (device.snapshot(), device.device(), device.stacks());
        let mut chains = Chains {
            snapshot,
            stacks,
            by_stack: vec![None; snapshot.stacks.len()],
            nodes: Vec::new(),
            node_ids: FxHashMap::default(),
            chain_ids: FxHashMap::default(),
            last_chain: u32::MAX,
            entered_by: FxHashMap::default(),
        };
        let growing = device.growth().map(|growth| growth.lines.as_slice()).unwrap_or_default();
        let growing: FxHashMap<usize, &GrowingLine> = growing.iter().map(|line| (line.last_entry, line)).collect();
        let mut passes = Self::default();
        let end = live_set.entry.map_or(0, |entry| entry + 1);
        for (index, entry) in trace.entries().take(end).enumerate() {
            match entry.action {
                Action::Alloc | Action::Oom => {
                    let chain = chains.chain(entry.stack);
                    let made_by = chains.request(chain, entry.stack, entry.size);
                    if let Some(line) = growing.get(&index) {
                        passes.growing.entry(made_by.chain.id).or_default().push(**line);
                    }
                    if entry.action == Action::Alloc {
                        let live = passes.live_bytes.entry(made_by.chain.id).or_default();
                        *live = live.saturating_add(entry.size);
                        passes.blocks.insert(entry.addr, made_by);
                    } else if index + 1 < end {
                        passes.failed.push((index, made_by));
                    }
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some(block) = passes.blocks.remove(&entry.addr) {
                        passes.free(&block, chains.pass(&block.chain));
                    }
                }
                _ => {}
            }
        }
        passes.nodes = chains.nodes;
        passes
    }

    /// Whether the program has gone on to another line or pass since it made the block.
    pub(super) fn is_over(&self, block: &MadeBy) -> bool {
        let mut path = block.chain.path.iter().map(|(node, line)| (self.nodes[*node], *line));
        self.passes_since(block) > 0 || path.any(|(node, line)| node.last_line != line)
    }

    /// Number of passes of the loops around the block that have begun since.
    pub(super) fn passes_since(&self, block: &MadeBy) -> u64 {
        block.chain.path.iter().map(|(node, _)| self.nodes[*node].passes).sum::<u64>().saturating_sub(block.pass)
    }

    /// Whether the program drops old blocks of `chain`, which has `bytes` now, about as fast as it makes new ones:
    /// since the first drop near this size, it has dropped at least as much as the chain has grown.
    pub(super) fn is_bounded(&self, chain: u32, bytes: u64) -> bool {
        let frees = self.old_frees.get(&chain).map_or(&[][..], Vec::as_slice);
        let frees = frees.iter().skip_while(|free| ratio(free.level, bytes) < BOUNDED_SHARE);
        let dropped = frees.clone().fold(0u64, |sum, free| sum.saturating_add(free.bytes));
        frees.clone().next().is_some_and(|first| bytes.saturating_sub(first.level) <= dropped)
    }

    /// Frees `block`, in pass `now` of its chain.
    fn free(&mut self, block: &MadeBy, now: u64) {
        let live = self.live_bytes.entry(block.chain.id).or_default();
        // A value that its successor replaces is no item of a collection.
        if block.pass + 1 < now {
            self.old_frees.entry(block.chain.id).or_default().push(OldFree { level: *live, bytes: block.bytes });
        }
        *live = live.saturating_sub(block.bytes);
    }
}

impl Chains<'_> {
    /// Counts a request of `stack`, which has `chain`, for `bytes`.
    fn request(&mut self, chain: Rc<CallChain>, stack: StackId, bytes: u64) -> MadeBy {
        // A loop of one line, with requests of another thread or line in between.
        if self.last_chain != chain.id
            && !chain.calls_module
            && self.entered_by.insert(chain.id, stack) == Some(stack)
            && let Some((node, line)) = chain.path.last()
            && self.nodes[*node].last_line == *line
        {
            self.nodes[*node].passes += 1;
        }
        self.last_chain = chain.id;
        for (node, line) in &chain.path {
            let node = &mut self.nodes[*node];
            node.passes += u64::from(*line < node.last_line);
            node.last_line = *line;
        }
        MadeBy { pass: self.pass(&chain), chain, bytes }
    }

    fn pass(&self, chain: &CallChain) -> u64 {
        chain.path.iter().map(|(node, _)| self.nodes[*node].passes).sum()
    }

    fn chain(&mut self, stack: StackId) -> Rc<CallChain> {
        let stack = self.snapshot.stacks.recorded_stack(stack);
        if let Some(known) = &self.by_stack[stack.index()] {
            return Rc::clone(known);
        }
        let frames: Vec<FrameId> = self.snapshot.stacks.frames(stack).iter().collect();
        let mut chain = CallChain::default();
        let mut caller = (usize::MAX, 0);
        for id in frames.iter().rev() {
            let (frame, origin) = (self.snapshot.stacks.frame(*id), self.stacks.origin(*id));
            let name = self.snapshot.text(frame.name);
            match origin {
                Origin::User | Origin::Package if name != "__init__" => {}
                Origin::User | Origin::Package => break,
                // The call of a module. Other code of PyTorch is skipped: loaders and decorators call the program.
                Origin::Plumbing if name == "_call_impl" => {
                    chain.calls_module = true;
                    break;
                }
                _ => continue,
            }
            let next = self.nodes.len();
            let node = *self.node_ids.entry((caller.0, caller.1, frame.file, frame.name)).or_insert(next);
            if node == next {
                self.nodes.push(Node::default());
            }
            caller = (node, frame.line);
            chain.path.push(caller);
            let is_user = chain.line.is_some_and(|line| self.stacks.origin(line) == Origin::User);
            if origin == Origin::User || !is_user {
                chain.line = Some(*id);
            }
        }
        let next = to_u32(self.chain_ids.len());
        chain.id = *self.chain_ids.entry(chain.path.clone()).or_insert(next);
        let chain = Rc::new(chain);
        self.by_stack[stack.index()] = Some(Rc::clone(&chain));
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Frame;

    #[test]
    fn only_a_collection_that_drops_what_it_grows_by_is_bounded() {
        for (frees, bytes, is_bounded) in [
            (&[(100, 10), (100, 10), (100, 10)][..], 100, true), // a ring
            (&[(100, 10)], 105, true),                           // a ring that is full since its last pass
            (&[(95, 5), (98, 5)], 110, false),                   // a session that returns now and then
            (&[(10, 5)], 100, false),
            (&[], 100, false),
        ] {
            let frees = frees.iter().map(|&(level, bytes)| OldFree { level, bytes }).collect();
            let passes = LoopPasses { old_frees: [(7, frees)].into_iter().collect(), ..LoopPasses::default() };
            assert_eq!(passes.is_bounded(7, bytes), is_bounded, "{bytes}");
        }
    }

    fn chains<'a>(snapshot: &'a Snapshot, stacks: &'a StackReader<'a>) -> Chains<'a> {
        Chains {
            snapshot,
            stacks,
            by_stack: vec![None; snapshot.stacks.len()],
            nodes: Vec::new(),
            node_ids: FxHashMap::default(),
            chain_ids: FxHashMap::default(),
            last_chain: u32::MAX,
            entered_by: FxHashMap::default(),
        }
    }

    #[test]
    fn a_chain_has_the_innermost_line_of_the_user() {
        let (user, package) = ("/app/train.py", "/venv/lib/python3.11/site-packages/loader/run.py");
        for (frames, line) in [
            (&[(package, 1), (user, 2)][..], Some(2)),
            (&[(user, 1), (package, 2), (user, 3)], Some(1)),
            (&[(package, 1), (package, 2)], Some(1)),
            (&[], None),
        ] {
            let mut snapshot = Snapshot::default();
            let name = snapshot.symbols.intern("step");
            let frames: Vec<FrameId> = frames
                .iter()
                .map(|&(file, line)| {
                    let file = snapshot.symbols.intern(file);
                    snapshot.stacks.intern_frame(Frame { file, name, line })
                })
                .collect();
            let stack = snapshot.stacks.intern(&frames);
            let stacks = StackReader::new(&snapshot);
            let chain = chains(&snapshot, &stacks).chain(stack);
            assert_eq!(chain.line.map(|id| snapshot.stacks.frame(id).line), line);
            assert_eq!(chain.path.len(), frames.len());
        }
    }

    #[test]
    fn a_pass_begins_where_a_function_goes_back() {
        let snapshot = Snapshot::default();
        let stacks = StackReader::new(&snapshot);
        let mut chains = Chains { nodes: vec![Node::default(); 2], ..chains(&snapshot, &stacks) };
        // Line 9 of the outer function calls the inner one.
        let passes = [(0, 7), (1, 3), (1, 5), (1, 5), (1, 3), (0, 8), (1, 3), (0, 7)].map(|(node, line)| {
            let path = if node == 0 { vec![(0, line)] } else { vec![(0, 9), (1, line)] };
            let chain = CallChain { id: node * 10 + line, path, ..CallChain::default() };
            chains.request(Rc::new(chain), StackId(line), 1).pass
        });
        // The loop of one line in the inner function counts as well.
        assert_eq!(passes, [0, 0, 0, 0, 1, 1, 3, 2]);
    }
}
