//! Where requests come from: the Python frames of their stacks, their stream and pool.

use rustc_hash::FxHashMap;

use crate::base::ids::{FrameId, PoolId, StackId, to_u32};
use crate::base::intern::Slices;
use crate::snapshot::Snapshot;
use crate::stacks::frames::{Origin, StackReader, forward_slashes};

/// Code that calls the same functions many times within one call of the program: modules, optimizers, file loaders,
/// schedules of a pipeline.
const INNER_FILES: [&str; 6] = [
    "torch/nn/modules/module.py",
    "torch/optim/",
    "torch/serialization.py",
    "torch/autograd/",
    "torch/_tensor.py",
    "torch/distributed/pipelining/",
];
const OPTIMIZER_FILES: &str = "torch/optim/";
const MODULE_CALL: &str = "_call_impl";
const THREAD_ENTRIES: [&str; 3] = ["<module>", "_bootstrap", "_run_module_as_main"];

/// The identity of a call site: the id of its Python frames, the stream and the pool.
type CallOrigin = (u32, u64, PoolId);

/// Facts about a frame.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct SiteFrame {
    is_python: bool,
    /// Code of [`INNER_FILES`].
    is_inner: bool,
    /// Code of an optimizer of PyTorch.
    pub is_optimizer: bool,
    /// `Module._call_impl`.
    pub is_module_call: bool,
    /// The entry of a Python thread. Stacks without one are called by the engine of a backward pass.
    is_thread_entry: bool,
    /// Code of PyTorch, or a constructor: it makes parameters.
    pub is_torch_or_constructor: bool,
}

/// Numbers the call sites of one snapshot.
#[derive(Debug, Default)]
pub struct CallSites {
    by_frame: Vec<SiteFrame>,
    /// The Python frames of each distinct stack, innermost first.
    python_frames: Slices<FrameId>,
    /// The last call site of each recorded stack, or `u32::MAX`.
    by_stack: Vec<u32>,
    /// By Python frames, stream and pool.
    by_origin: FxHashMap<CallOrigin, u32>,
    /// By call site.
    origins: Vec<CallOrigin>,
}

impl CallSites {
    pub(crate) fn new(stacks: &StackReader<'_>, snapshot: &Snapshot) -> Self {
        let frames = snapshot.stacks.frame_ids().map(|id| {
            let (origin, (file, name)) = (stacks.origin(id), snapshot.frame_text(id));
            let file = forward_slashes(file);
            SiteFrame {
                is_python: origin != Origin::Native,
                is_inner: INNER_FILES.iter().any(|part| file.contains(part)),
                is_optimizer: file.contains(OPTIMIZER_FILES),
                is_module_call: name == MODULE_CALL,
                is_thread_entry: THREAD_ENTRIES.contains(&name),
                is_torch_or_constructor: name == "__init__" || origin == Origin::Torch,
            }
        });
        Self { by_frame: frames.collect(), by_stack: vec![u32::MAX; snapshot.stacks.len()], ..Self::default() }
    }

    /// The call site of a request for `pool` by `stack` on `stream`.
    pub(super) fn site(&mut self, snapshot: &Snapshot, stack: StackId, stream: u64, pool: PoolId) -> u32 {
        let stack = snapshot.stacks.recorded_stack(stack);
        let last = self.by_stack[stack.index()];
        let frames = match self.origins.get(last as usize) {
            Some((_, known_stream, known_pool)) if (*known_stream, *known_pool) == (stream, pool) => return last,
            Some((frames, ..)) => *frames,
            None => {
                let all = snapshot.stacks.frames(stack).iter();
                let python: Vec<FrameId> = all.filter(|id| self.by_frame[id.index()].is_python).collect();
                self.python_frames.intern(&python)
            }
        };
        let origin = (frames, stream, pool);
        let site = *self.by_origin.entry(origin).or_insert_with(|| {
            self.origins.push(origin);
            to_u32(self.origins.len() - 1)
        });
        self.by_stack[stack.index()] = site;
        site
    }

    /// The Python frames of `site`, innermost first; none in a backward pass, whose threads are C++.
    fn frames(&self, site: u32) -> &[FrameId] {
        self.python_frames.get(self.origins[site as usize].0)
    }

    /// Whether Python code makes the requests of `site`.
    pub fn has_python(&self, site: u32) -> bool {
        !self.frames(site).is_empty()
    }

    /// Whether `is_wanted` holds for a frame of `site`.
    pub fn has_frame(&self, site: u32, is_wanted: fn(&SiteFrame) -> bool) -> bool {
        self.frames(site).iter().any(|id| is_wanted(&self.by_frame[id.index()]))
    }

    fn has_thread_entry(&self, site: u32) -> bool {
        self.has_frame(site, |frame| frame.is_thread_entry)
    }

    /// Whether an optimizer makes the requests of `site`.
    pub fn is_in_optimizer(&self, site: u32) -> bool {
        self.has_frame(site, |frame| frame.is_optimizer)
    }

    /// The length of the shortest suffix of `sites` that is not inside one call of a module, an optimizer or a backward
    /// pass: its stacks share no such frame, and some are those of the program's own threads.
    pub(super) fn shortest_outer_period(&self, sites: &[u32]) -> usize {
        // Some recordings lack the outer frames of all stacks.
        let has_entries = (0..sites.iter().max().map_or(0, |last| last + 1)).any(|site| self.has_thread_entry(site));
        let mut shared: Option<Vec<FrameId>> = None;
        let mut is_known = vec![false; self.origins.len()];
        for (back, site) in sites.iter().rev().enumerate() {
            if std::mem::replace(&mut is_known[*site as usize], true)
                || !self.has_python(*site)
                || has_entries && !self.has_thread_entry(*site)
            {
                continue;
            }
            let outermost_first = self.frames(*site).iter().rev();
            match &mut shared {
                None => shared = Some(outermost_first.copied().collect()),
                Some(shared) => shared.truncate(shared.iter().zip(outermost_first).take_while(|(a, b)| a == b).count()),
            }
            if shared.iter().flatten().all(|id| !self.by_frame[id.index()].is_inner) {
                return back + 1;
            }
        }
        usize::MAX
    }
}
