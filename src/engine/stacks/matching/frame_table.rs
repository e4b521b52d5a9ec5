//! Common ids for the frames of two snapshots.

use rustc_hash::FxHashMap;

use super::moved_functions::{Function, FunctionId, function_classes};
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::intern::Symbols;
use crate::snapshot::Snapshot;

/// A frame, comparable across the two snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKey {
    pub function: FunctionId,
    pub line: u32,
}

/// Stands for all files that `torch.compile` generates, in a directory `torchinductor_USER`. Their names are hashes of
/// their content, which changes with every tensor size.
const INDUCTOR_DIR: &str = "torchinductor";

/// `file`, or [`INDUCTOR_DIR`] for generated code.
fn stable_file(file: &str) -> &str {
    let mut directories = file.split(['/', '\\']);
    if directories.any(|directory| directory.starts_with(INDUCTOR_DIR)) { INDUCTOR_DIR } else { file }
}

/// The frames of two snapshots, before (0) and after (1), with common ids.
#[derive(Debug)]
pub struct FrameTable {
    keys: [Vec<FrameKey>; 2],
    /// By function: the id that it shares with the function that it moved to.
    classes: Vec<FunctionId>,
}

impl FrameTable {
    pub fn new(snapshots: [&Snapshot; 2]) -> Self {
        let mut symbols = Symbols::default();
        let mut functions: Vec<Function> = Vec::new();
        let mut known: FxHashMap<(SymbolId, SymbolId), FunctionId> = FxHashMap::default();
        let mut keys = [Vec::new(), Vec::new()];
        for (side, (snapshot, keys)) in snapshots.into_iter().zip(&mut keys).enumerate() {
            for frame in snapshot.stacks.all_frames() {
                let file = symbols.intern(stable_file(snapshot.text(frame.file)));
                let name = symbols.intern(snapshot.text(frame.name));
                let function = *known.entry((file, name)).or_insert_with(|| {
                    functions.push(Function { file, name, is_in: [false; 2] });
                    crate::base::ids::to_u32(functions.len() - 1)
                });
                functions[function as usize].is_in[side] = true;
                keys.push(FrameKey { function, line: frame.line });
            }
        }
        let classes = function_classes(&functions, &symbols);
        Self { keys, classes }
    }

    pub fn frame_key(&self, side: usize, id: FrameId) -> FrameKey {
        self.keys[side][id.index()]
    }

    /// The frames of `stack`, innermost first, then those of its caller and its forward line.
    pub fn stack_keys(&self, side: usize, snapshot: &Snapshot, stack: StackId) -> Vec<FrameKey> {
        let maker = snapshot.stacks.extended(stack);
        let stacks = [stack, maker.caller, maker.forward];
        let ids = stacks.iter().flat_map(|stack| snapshot.stacks.frames(*stack).iter());
        ids.map(|id| self.frame_key(side, id)).collect()
    }

    /// Equal for a function and the function that it moved to.
    pub fn function_class(&self, function: FunctionId) -> FunctionId {
        self.classes[function as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_code_counts_as_one_file() {
        for file in ["/tmp/torchinductor_me/2i/c2iym3.py", "C:\\t\\torchinductor_me\\mg\\cmgqo7.py"] {
            assert_eq!(stable_file(file), INDUCTOR_DIR);
        }
        for file in ["/app/train.py", "/app/my_torchinductor/x.py", "<string>"] {
            assert_eq!(stable_file(file), file);
        }
    }
}
