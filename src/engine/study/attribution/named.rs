//! The uses of blocks that the recorder found inside the process. They outrank inferred ones.

use super::live_set::{LiveBlock, TracePoint};
use crate::base::intern::SeededMap;
use crate::snapshot::{Author, NamedTensor, RootKind, Snapshot, TensorKind, TensorNames};
use crate::study::category::Category::{
    self, Activations, Gradients, Inputs, OptimizerState, Other, Parameters, Temporaries,
};
use crate::study::category::Classification;
use crate::study::category::Confidence::{High, Known, Low, Medium};

/// The blocks that have a name at the end of the trace, by address.
#[derive(Debug, Default)]
pub(super) struct NamedBlocks {
    /// The allocation that was live at the end of the trace, and its use.
    blocks: SeededMap<u64, (Option<TracePoint>, NamedUse)>,
    /// The recorder saw parameters of modules, so other tensors are no parameters.
    has_parameters: bool,
    /// The recorder has looked everywhere, and no graph exists.
    has_no_graph: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedUse {
    Category(Category),
    /// It belongs to an object that is called an optimizer, and no autograd graph saved it.
    StateOfOptimizer,
    /// An item of a container of the user that no autograd graph saved.
    Kept,
    /// Another variable that no autograd graph saved.
    Variable,
}

impl NamedBlocks {
    /// `live` gives address and allocation of each block that is live at the end of the trace.
    pub(super) fn new(snapshot: &Snapshot, live: impl Iterator<Item = (u64, Option<TracePoint>)>) -> Self {
        let Some(names) = &snapshot.tensor_names else { return Self::default() };
        let tensors: SeededMap<_, _> = names.tensors.iter().rev().map(|tensor| (tensor.address, tensor)).collect();
        let named = live.filter_map(|(address, allocated_at)| {
            Some((address, (allocated_at, use_of(tensors.get(&address)?, names, snapshot)?)))
        });
        Self {
            blocks: named.collect(),
            has_parameters: names.tensors.iter().any(|tensor| tensor.kind == TensorKind::Parameter),
            has_no_graph: names.is_complete && names.tensors.iter().all(|tensor| tensor.kind != TensorKind::Saved),
        }
    }

    fn named(&self, block: &LiveBlock) -> Option<NamedUse> {
        // Another allocation may have had the same address before.
        let named = self.blocks.get(&block.address).filter(|(allocated_at, _)| *allocated_at == block.allocated_at);
        named.map(|(_, kind)| *kind)
    }

    pub(super) fn is_optimizer_state(&self, block: &LiveBlock) -> bool {
        matches!(self.named(block), Some(NamedUse::Category(OptimizerState)))
    }

    /// Replaces the category of each block whose use the recorder saw. `is_last_run`: the blocks are of the phase run
    /// in which the recorder looked.
    pub(super) fn correct(&self, blocks: &[LiveBlock], classified: &mut [Classification], is_last_run: bool) {
        for (block, classification) in blocks.iter().zip(classified) {
            let Some(named) = self.named(block) else { continue }; // the recorder saw no use
            // By size, although the recorder saw every module.
            let is_wrong_guess = self.has_parameters && *classification == (Parameters, Low);
            *classification = match (named, *classification) {
                // A graph also saves inputs and parameters, even those of a model that is gone.
                (NamedUse::Category(Activations), (Inputs, _) | (Parameters, High)) => continue,
                (NamedUse::Category(category), _) => (category, Known),
                (NamedUse::StateOfOptimizer, (_, Low)) => (OptimizerState, Medium),
                // The recorder knows the state of each optimizer.
                (NamedUse::Kept | NamedUse::Variable, (OptimizerState, Low))
                | (NamedUse::Kept, (Activations | Temporaries, _)) => (Other, Known),
                (NamedUse::Kept, _) if is_wrong_guess => (Other, Known),
                // Only in the recorder's phase run: graphs change from pass to pass.
                (NamedUse::Variable, (Activations, _)) if is_last_run && self.has_no_graph => (Other, Low),
                (NamedUse::Variable, _) if is_wrong_guess => (Inputs, Low),
                _ => continue,
            };
        }
    }
}

fn use_of(tensor: &NamedTensor, names: &TensorNames, snapshot: &Snapshot) -> Option<NamedUse> {
    let category = match tensor.kind {
        TensorKind::Parameter | TensorKind::Buffer => Parameters,
        TensorKind::Gradient => Gradients,
        TensorKind::OptimizerState => OptimizerState,
        TensorKind::Saved => Activations,
        TensorKind::Variable if !names.is_complete => return None,
        TensorKind::Variable if belongs_to_optimizer(tensor, snapshot) => return Some(NamedUse::StateOfOptimizer),
        TensorKind::Variable if is_users_item(tensor, names, snapshot) => return Some(NamedUse::Kept),
        TensorKind::Variable => return Some(NamedUse::Variable),
    };
    Some(NamedUse::Category(category))
}

fn belongs_to_optimizer(tensor: &NamedTensor, snapshot: &Snapshot) -> bool {
    let owner = tensor.name.and_then(|name| snapshot.text(name).split_once('.'));
    owner.is_some_and(|(owner, _)| owner == "opt" || ["opt_", "optim"].iter().any(|start| owner.starts_with(start)))
}

fn is_users_item(tensor: &NamedTensor, names: &TensorNames, snapshot: &Snapshot) -> bool {
    let root = &names.roots[tensor.root];
    let is_users = root.author == Author::User && matches!(root.kind, RootKind::Frame | RootKind::Module);
    is_users && tensor.name.is_some_and(|name| snapshot.text(name).contains('['))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::NameRoot;

    #[test]
    fn variables_are_what_their_names_show() {
        let roots = [
            (RootKind::Frame, Author::User),
            (RootKind::Module, Author::User),
            (RootKind::Exception, Author::User),
            (RootKind::Frame, Author::Library),
        ]
        .map(|(kind, author)| NameRoot { kind, author, ..NameRoot::default() });
        let names = TensorNames { roots: roots.to_vec(), is_complete: true, ..TensorNames::default() };
        let incomplete = TensorNames { is_complete: false, ..names.clone() };
        for (name, root, expected) in [
            (Some("opt.moments"), 3, NamedUse::StateOfOptimizer),
            (Some("opt_d.moments"), 0, NamedUse::StateOfOptimizer),
            (Some("optimizer.moments[0]"), 0, NamedUse::StateOfOptimizer),
            (Some("optimizer"), 0, NamedUse::Variable),
            (Some("opts.moments"), 0, NamedUse::Variable),
            (Some("kept[3]"), 0, NamedUse::Kept),
            (Some("kept[3]"), 1, NamedUse::Kept),
            (Some("kept[3]"), 2, NamedUse::Variable),
            (Some("kept[3]"), 3, NamedUse::Variable),
            (Some("kept"), 0, NamedUse::Variable),
            (None, 0, NamedUse::Variable),
        ] {
            let mut snapshot = Snapshot::default();
            let tensor = NamedTensor {
                address: 0,
                bytes: 512,
                kind: TensorKind::Variable,
                name: name.map(|name| snapshot.symbols.intern(name)),
                root,
                operator: None,
                is_in_graph: false,
                dtype: snapshot.symbols.intern("float32"),
                shape: None,
                places: 1,
            };
            assert_eq!(use_of(&tensor, &names, &snapshot), Some(expected), "{name:?} from {root}");
            assert_eq!(use_of(&tensor, &incomplete, &snapshot), None);
        }
    }

    #[test]
    fn names_outrank_inferred_categories() {
        let block = LiveBlock { address: 9, ..LiveBlock::default() };
        for (named, has_parameters, has_no_graph, inferred, corrected) in [
            (NamedUse::Variable, true, true, (Parameters, Low), (Inputs, Low)),
            (NamedUse::Variable, false, true, (Parameters, Low), (Parameters, Low)),
            (NamedUse::Variable, true, true, (Parameters, Medium), (Parameters, Medium)),
            (NamedUse::Variable, true, true, (Activations, Medium), (Other, Low)),
            (NamedUse::Variable, true, false, (Activations, Medium), (Activations, Medium)),
            (NamedUse::Kept, true, false, (Parameters, Low), (Other, Known)),
            (NamedUse::Kept, false, false, (Parameters, Low), (Parameters, Low)),
            (NamedUse::Category(Parameters), false, false, (Other, Low), (Parameters, Known)),
        ] {
            let blocks = [(9, (None, named))].into_iter().collect();
            let mut classified = [inferred];
            NamedBlocks { blocks, has_parameters, has_no_graph }.correct(&[block], &mut classified, true);
            assert_eq!(classified[0], corrected, "{named:?}");
        }
    }
}
