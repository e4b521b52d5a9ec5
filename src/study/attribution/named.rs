//! The uses of blocks that the recorder found inside the process. They outrank inferred ones.

use super::live_set::{LiveBlock, TracePoint};
use crate::base::intern::SeededMap;
use crate::snapshot::{Author, NamedTensor, RootKind, Snapshot, TensorKind, TensorNames};
use crate::study::category::{Category, Classification, Confidence};

/// The blocks that have a name at the end of the trace, by address.
#[derive(Debug, Default)]
pub(super) struct NamedBlocks(SeededMap<u64, NamedBlock>);

#[derive(Debug, Clone, Copy)]
struct NamedBlock {
    /// The allocation that was live at the end of the trace.
    allocated_at: Option<TracePoint>,
    kind: NamedUse,
}

#[derive(Debug, Clone, Copy)]
enum NamedUse {
    Category(Category),
    /// An item of a container of the user that no autograd graph saved.
    Kept,
}

impl NamedBlocks {
    /// `live` gives address and allocation of each block that is live at the end of the trace.
    pub(super) fn new(snapshot: &Snapshot, live: impl Iterator<Item = (u64, Option<TracePoint>)>) -> Self {
        let Some(names) = &snapshot.tensor_names else { return Self::default() };
        let tensors: SeededMap<u64, &NamedTensor> =
            names.tensors.iter().rev().map(|tensor| (tensor.address, tensor)).collect();
        let named = live.filter_map(|(address, allocated_at)| {
            let kind = use_of(tensors.get(&address)?, names, snapshot)?;
            Some((address, NamedBlock { allocated_at, kind }))
        });
        Self(named.collect())
    }

    fn named(&self, block: &LiveBlock) -> Option<NamedUse> {
        // Another allocation may have had the same address before.
        let named = self.0.get(&block.address).filter(|named| named.allocated_at == block.allocated_at);
        named.map(|named| named.kind)
    }

    pub(super) fn is_optimizer_state(&self, block: &LiveBlock) -> bool {
        matches!(self.named(block), Some(NamedUse::Category(Category::OptimizerState)))
    }

    /// Replaces the categories of `blocks` that are known.
    pub(super) fn correct(&self, blocks: &[LiveBlock], classified: &mut [Classification]) {
        for (block, classification) in blocks.iter().zip(classified) {
            match self.named(block) {
                // A graph saves the input of the first layer, too.
                Some(NamedUse::Category(Category::Activations)) if classification.0 == Category::Inputs => {}
                Some(NamedUse::Category(category)) => *classification = (category, Confidence::Known),
                // A guess by size; the recorder has seen every module.
                Some(NamedUse::Kept)
                    if classification.0 == Category::Activations
                        || *classification == (Category::Parameters, Confidence::Low) =>
                {
                    *classification = (Category::Other, Confidence::Known);
                }
                _ => {}
            }
        }
    }
}

fn use_of(tensor: &NamedTensor, names: &TensorNames, snapshot: &Snapshot) -> Option<NamedUse> {
    let category = match tensor.kind {
        TensorKind::Parameter | TensorKind::Buffer => Category::Parameters,
        TensorKind::Gradient => Category::Gradients,
        TensorKind::OptimizerState => Category::OptimizerState,
        TensorKind::Saved => Category::Activations,
        TensorKind::Variable => return is_kept_item(tensor, names, snapshot).then_some(NamedUse::Kept),
    };
    Some(NamedUse::Category(category))
}

fn is_kept_item(tensor: &NamedTensor, names: &TensorNames, snapshot: &Snapshot) -> bool {
    let root = &names.roots[tensor.root];
    let is_users = root.author == Author::User && matches!(root.kind, RootKind::Frame | RootKind::Module);
    names.is_complete && is_users && tensor.name.is_some_and(|name| snapshot.text(name).contains('['))
}
