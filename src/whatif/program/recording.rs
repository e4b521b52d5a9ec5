//! The program of one device, with what is known of each of its calls.

use std::borrow::Cow;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::allocator::conf::Settings;
use crate::allocator::round_size;
use crate::base::ids::{StackId, row};
use crate::replay::ops::{ScriptBlock, OperationKind, Program, Script, ScriptOpKind};
use crate::stacks::frames::{CodeLocation, LineId};
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::held::{Allocation, Category, categories};

/// What cuBLASLt is given by default (`at::cuda::getCUDABlasLtWorkspace`): 1 MiB, and 32 from Hopper on.
const SCRATCH: [u64; 2] = [1 << 20, 32 << 20];

/// The calls of a device's program, and of the step after the failure that ended it, where that is known.
pub(crate) struct Recording<'s, 'a> {
    pub(crate) device: DeviceStudy<'s, 'a>,
    pub(crate) program: Cow<'s, Program<'a>>,
    /// Its calls, as they are.
    pub(crate) script: Script,
    /// Of each call, the entry of the trace that says what the program was doing: of a repeated one that of the first.
    entries: Vec<u32>,
    /// How many calls are recorded; those after them repeat others.
    recorded: usize,
    pub(crate) peak: Peak,
    purposes: OnceLock<Vec<Category>>,
}

/// The moment at which a program holds most.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peak {
    /// What it holds then, as blocks of the script.
    pub(crate) blocks: Vec<u32>,
    /// Their bytes, rounded.
    pub(crate) bytes: u64,
}

impl<'s, 'a> Recording<'s, 'a> {
    /// Of `device`, which has a trace.
    pub(crate) fn of(device: DeviceStudy<'s, 'a>) -> Self {
        let goes_on = device.goes_on();
        let (program, repeats) = match goes_on {
            Some(goes_on) => (Cow::Owned(goes_on.program), goes_on.sources),
            None => (Cow::Borrowed(device.program()), Vec::new()),
        };
        let entry_of = |call: usize| {
            let call = repeats.get(call).map_or(call, |call| *call as usize);
            program.operations[call].entry_index
        };
        let entries = (0..program.operations.len()).map(entry_of).collect();
        let script = Script::from_program(&program);
        let peak = Peak::of(&script, &device.inferred().hypothesis.settings);
        let calls = program.operations.len();
        let is_own = |call: &usize| repeats.get(*call).is_none_or(|like| *like as usize == *call);
        let recorded = (0..calls).find(|call| !is_own(call)).unwrap_or(calls);
        Self { device, program, script, entries, recorded, peak, purposes: OnceLock::new() }
    }

    /// Who asked for `block`, with what is known beside the stack.
    pub(crate) fn maker(&self, block: u32) -> StackId {
        let block = &self.script.blocks[block as usize];
        match block.allocated_at {
            Some(call) => self.device.device().entry(self.entry_of(call)).made_by,
            None => block.stack,
        }
    }

    /// The entry of the trace that says what the program was doing at `call`.
    pub(crate) fn entry_of(&self, call: u32) -> usize {
        self.entries[call as usize] as usize
    }

    /// Whether it goes on beyond the trace.
    pub(crate) fn goes_on(&self) -> bool {
        self.recorded < self.entries.len()
    }

    /// The training step of `call`; a step that goes on beyond the trace repeats the one before it.
    pub(crate) fn step_of(&self, call: u32) -> Option<u32> {
        let step = self.device.phases().step_of(self.entry_of(call))?;
        Some(step + u32::from(call as usize >= self.recorded))
    }

    /// Whether training steps can be told apart.
    pub(crate) fn has_steps(&self) -> bool {
        self.device.phases().steps_from().is_some()
    }

    /// What each block was for.
    pub(crate) fn purposes(&self) -> &[Category] {
        self.purposes.get_or_init(|| self.judged())
    }

    fn judged(&self) -> Vec<Category> {
        let (trace, at) = (self.device.device(), |call: u32| self.entries[call as usize]);
        let is_recorded = |call: &u32| (*call as usize) < self.recorded;
        let mut rows: FxHashMap<u32, usize> = FxHashMap::default();
        let mut allocations = Vec::new();
        for (number, block) in self.script.blocks.iter().enumerate() {
            let freed = block.freed_at.filter(is_recorded).map(|call| at(call).saturating_add(1));
            let bytes = self.rounded(row(number));
            let of_held = self.program.initial_blocks.get(number).map(|it| (it.addr, block.stack));
            let asked = block.allocated_at.filter(is_recorded).filter(|_| !block.is_failed).map(at);
            let of_asked = asked.map(|entry| {
                let entry = trace.entry(entry as usize);
                (entry.addr, entry.made_by)
            });
            let Some((address, made_by)) = of_held.or(of_asked) else { continue };
            if let Some(born) = asked {
                rows.insert(born, allocations.len());
            }
            allocations.push(Allocation {
                address,
                bytes,
                requested: block.bytes,
                made_by,
                born: asked,
                freed,
            });
        }
        let judged = categories(self.device, &allocations);
        let of_block = |(number, block): (usize, &ScriptBlock)| match block.allocated_at {
            None => judged.get(number).map_or(Category::Other, |(category, _)| *category),
            Some(call) => match rows.get(&at(call)) {
                Some(row) => judged[*row].0,
                // One that failed is for what others are that are made then.
                None => match self.phase_of(call) {
                    Phase::Forward => Category::Activations,
                    Phase::Backward | Phase::Optimizer => Category::Temporaries,
                    _ => Category::Other,
                },
            },
        };
        self.script.blocks.iter().enumerate().map(of_block).collect()
    }

    /// What the program was doing at `call`.
    pub(crate) fn phase_of(&self, call: u32) -> Phase {
        self.device.phases().phase_of(self.entry_of(call))
    }

    /// Whether nothing of another phase is asked for between two calls.
    pub(crate) fn is_one_run(&self, asked: u32, freed: u32) -> bool {
        let runs = self.device.phases().runs();
        let run = |call: u32| runs.partition_point(|run| run.start as usize <= self.entry_of(call));
        run(asked) == run(freed)
    }

    /// Whether `block` is scratch memory of cuBLAS, the same at any batch and of any numbers: handed back at once, of
    /// the sizes that PyTorch asks for.
    pub(crate) fn is_scratch(&self, block: u32) -> bool {
        let one = &self.script.blocks[block as usize];
        let is_next = one.allocated_at.zip(one.freed_at).is_some_and(|(asked, freed)| freed == asked + 1);
        is_next && SCRATCH.contains(&one.bytes)
    }

    /// The bytes of `block` as the allocator rounds them.
    pub(crate) fn rounded(&self, block: u32) -> u64 {
        let bytes = self.script.blocks[block as usize].bytes;
        round_size(bytes, &self.device.inferred().hypothesis.settings)
    }

    /// The bytes of `blocks` that are there at the peak.
    pub(crate) fn bytes_at_peak(&self, is_one: impl Fn(u32) -> bool) -> u64 {
        let blocks = self.peak.blocks.iter().filter(|block| is_one(**block));
        blocks.fold(0, |sum, block| sum.saturating_add(self.rounded(*block)))
    }

    /// The line that `blocks` are of for the most part, by bytes.
    pub(crate) fn main_line(&self, blocks: impl Iterator<Item = u32>) -> Option<LineId> {
        let mut lines: FxHashMap<LineId, u64> = FxHashMap::default();
        let mut of_stack: FxHashMap<StackId, LineId> = FxHashMap::default();
        for block in blocks {
            let maker = self.maker(block);
            let line = of_stack.entry(maker).or_insert_with(|| self.device.stacks().line(maker));
            let bytes = lines.entry(*line).or_default();
            *bytes = bytes.saturating_add(self.rounded(block));
        }
        let most = lines.into_iter().max_by_key(|(line, bytes)| (*bytes, std::cmp::Reverse(*line)));
        most.map(|(line, _)| line)
    }

    pub(crate) fn code_location(&self, line: Option<LineId>) -> CodeLocation {
        line.map(|line| self.device.stacks().code_location(line)).unwrap_or_default()
    }

    /// How many requests come between the recorded call of entry `from` and that of entry `to`.
    pub(crate) fn requests_between(&self, from: usize, to: usize) -> u64 {
        let asks = self.program.operations.iter().filter(|operation| {
            (from + 1..to).contains(&(operation.entry_index as usize))
                && matches!(operation.kind, OperationKind::Alloc { .. })
        });
        asks.count() as u64
    }
}

impl Peak {
    /// Of `script`, each request rounded as under `settings`.
    fn of(script: &Script, settings: &Settings) -> Self {
        let rounded = |block: u32| round_size(script.blocks[block as usize].bytes, settings);
        let held: Vec<u32> = (0..row(script.initial_count)).collect();
        let mut now = held.iter().fold(0u64, |sum, block| sum.saturating_add(rounded(*block)));
        let (mut most, mut acts) = (now, 0);
        for (place, act) in script.ops.iter().enumerate() {
            match act.kind {
                ScriptOpKind::Alloc(block) => {
                    let with_it = now.saturating_add(rounded(block));
                    if with_it > most {
                        (most, acts) = (with_it, place + 1);
                    }
                    if !script.blocks[block as usize].is_failed {
                        now = with_it;
                    }
                }
                ScriptOpKind::Free { block, .. } => now = now.saturating_sub(rounded(block)),
                ScriptOpKind::Other => {}
            }
        }
        let mut is_held = vec![false; script.blocks.len()];
        is_held[..script.initial_count].fill(true);
        for (place, act) in script.ops[..acts].iter().enumerate() {
            match act.kind {
                ScriptOpKind::Alloc(block) => {
                    let is_failed = script.blocks[block as usize].is_failed;
                    is_held[block as usize] = !is_failed || place + 1 == acts;
                }
                ScriptOpKind::Free { block, .. } => is_held[block as usize] = false,
                ScriptOpKind::Other => {}
            }
        }
        let blocks = (0..row(script.blocks.len())).filter(|block| is_held[*block as usize]);
        Self { blocks: blocks.collect(), bytes: most }
    }
}
