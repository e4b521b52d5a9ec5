//! One vocabulary for the frames of both snapshots.

use rustc_hash::FxHashMap;

use super::moved::{Function, FunctionId, classes};
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::intern::Symbols;
use crate::snapshot::Snapshot;

/// A frame in the words of the vocabulary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) function: FunctionId,
    pub(crate) line: u32,
}

/// What code that `torch.compile` wrote is known by. Its file has the hash of its text for a name, in a directory
/// `torchinductor_USER`: another at every size.
const COMPILED: &str = "torchinductor";

/// `file`, or what stands for it in every snapshot.
fn lasting(file: &str) -> &str {
    let mut directories = file.split(['/', '\\']);
    if directories.any(|directory| directory.starts_with(COMPILED)) { COMPILED } else { file }
}

/// The frames of two snapshots, before (0) and after (1), in the same words.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    places: [Vec<Place>; 2],
    /// For every function the one that stands for it and for what it moved to.
    classes: Vec<FunctionId>,
}

impl Vocabulary {
    /// Reads every frame of both.
    pub(crate) fn new(snapshots: [&Snapshot; 2]) -> Self {
        let mut symbols = Symbols::default();
        let mut functions: Vec<Function> = Vec::new();
        let mut known: FxHashMap<(SymbolId, SymbolId), FunctionId> = FxHashMap::default();
        let mut places = [Vec::new(), Vec::new()];
        for (side, (snapshot, places)) in snapshots.into_iter().zip(&mut places).enumerate() {
            let frames = (0..snapshot.stacks.frame_count()).map(FrameId::from_index);
            for frame in frames.map(|id| snapshot.stacks.frame(id)) {
                let file = symbols.intern(lasting(snapshot.text(frame.file)));
                let name = symbols.intern(snapshot.text(frame.name));
                let function = *known.entry((file, name)).or_insert_with(|| {
                    functions.push(Function { file, name, seen: [false; 2] });
                    crate::base::ids::row(functions.len() - 1)
                });
                if let Some(seen) = functions
                    .get_mut(function as usize)
                    .and_then(|function| function.seen.get_mut(side))
                {
                    *seen = true;
                }
                places.push(Place { function, line: frame.line });
            }
        }
        let classes = classes(&functions, &symbols);
        Self { places, classes }
    }

    /// The frame `id` of one side.
    pub(crate) fn place(&self, side: usize, id: FrameId) -> Place {
        let places = self.places.get(side);
        places.and_then(|places| places.get(id.index())).copied().unwrap_or_default()
    }

    /// The frames of `stack`, innermost first, then those of the call that its thread serves.
    pub(crate) fn stack(&self, side: usize, snapshot: &Snapshot, stack: StackId) -> Vec<Place> {
        let maker = snapshot.stacks.maker(stack);
        let stacks = [stack, maker.caller, maker.forward];
        let ids = stacks.iter().flat_map(|stack| snapshot.stacks.frames(*stack));
        ids.map(|id| self.place(side, *id)).collect()
    }

    /// The same for a function and what it moved to.
    pub(crate) fn class(&self, function: FunctionId) -> FunctionId {
        self.classes.get(function as usize).copied().unwrap_or(function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_code_is_one_file_whatever_its_hash() {
        for file in ["/tmp/torchinductor_me/2i/c2iym3.py", "C:\\t\\torchinductor_me\\mg\\cmgqo7.py"]
        {
            assert_eq!(lasting(file), COMPILED);
        }
        for file in ["/app/train.py", "/app/my_torchinductor/x.py", "<string>"] {
            assert_eq!(lasting(file), file);
        }
    }
}
