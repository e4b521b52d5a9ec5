//! Variables of one owner as one row: the items of a container, the parameters of a model, the state of an optimizer.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{KeptByVariable, LiveVariables};
use crate::base::units::{escape_name, ratio};
use crate::snapshot::{Snapshot, TensorKind, TensorNames};
use crate::stacks::frames::StackReader;
use crate::study::category::{Category, Classification, Confidence, ConfidenceBytes};
use crate::study::memory::BlockSum;

/// Variables that may begin a row. The others, which keep less than any of these, are added to the rows of their owners.
const MAX_ROWS: usize = 200;

/// Holders have names if at least this share of the memory has one.
const MIN_NAMED_RATIO: f64 = 0.5;

/// Owners in a report.
const MAX_KEEPERS: usize = 20;

impl LiveVariables<'_> {
    /// The owners of what the largest variables keep, those of most bytes first. A row describes the owner's largest
    /// variable and has the sums of all.
    pub(super) fn keepers(&self, stacks: &StackReader<'_>) -> Vec<KeptByVariable> {
        let mut rows: Vec<KeptByVariable> = self.owners(stacks).into_iter().map(|(row, _)| row).collect();
        rows.sort_by_key(|row| Reverse(row.bytes)); // stable
        rows.truncate(MAX_KEEPERS);
        rows
    }

    /// The owners of `blocks`, each with its address, bytes and use, split by category; the `top` rows with most bytes.
    /// Empty unless the blocks are those of the snapshot, at most bytes of which a variable leads.
    pub(crate) fn holders(
        &self,
        stacks: &StackReader<'_>,
        blocks: &[(u64, u64, Classification)],
        top: usize,
    ) -> Vec<KeptByVariable> {
        let mut parts: FxHashMap<(usize, Category), Part> = FxHashMap::default();
        for (address, bytes, (category, confidence)) in blocks {
            let Some(variable) = self.of_block(*address) else { return Vec::new() }; // freed before the snapshot
            let graph_bytes = if self.is_in_graph(*address) { *bytes } else { 0 };
            parts.entry((variable, *category)).or_default().add(*bytes, graph_bytes, *confidence);
        }
        let is_snapshot = BlockSum::from_sizes(blocks.iter().map(|(_, bytes, _)| *bytes)) == self.all;
        let owners = self.owners(stacks);
        let named = owners.iter().filter(|(row, _)| row.name.is_some()).map(|(row, _)| row.bytes).sum();
        if !is_snapshot || ratio(named, self.all.bytes) < MIN_NAMED_RATIO {
            return Vec::new();
        }
        let mut rows = Vec::new();
        for (owner, variables) in owners {
            for category in Category::ALL {
                let mut part = Part::default();
                variables.iter().filter_map(|index| parts.get(&(*index, *category))).for_each(|one| part.merge(one));
                if part.sum.blocks > 0 {
                    rows.push(KeptByVariable {
                        bytes: part.sum.bytes,
                        blocks: part.sum.blocks,
                        share_ratio: ratio(part.sum.bytes, self.all.bytes),
                        graph_bytes: part.graph_bytes,
                        category: Some(*category),
                        category_confidence: Some(part.confidence.of_half()),
                        ..owner.clone()
                    });
                }
            }
        }
        rows.sort_by_key(|row| Reverse(row.bytes)); // stable
        rows.truncate(top);
        rows
    }

    /// The owners of the largest variables, with the indexes of all that they own.
    fn owners(&self, stacks: &StackReader<'_>) -> Vec<(KeptByVariable, Vec<usize>)> {
        let modules = Modules::new(self.snapshot, self.names);
        let mut indexes: FxHashMap<(String, Option<TensorKind>), usize> = FxHashMap::default();
        let mut rows: Vec<(KeptByVariable, Vec<usize>)> = Vec::new();
        for index in 0..self.count() {
            let owner = self.owner(index, &modules);
            if let Some(row) = owner.as_ref().and_then(|owner| indexes.get(owner)) {
                self.add(&mut rows[*row], index);
            } else if index < MAX_ROWS {
                let mut row = self.row(index, stacks);
                if let Some(owner) = owner {
                    // The items of a container keep theirs, which shows what in an item has the memory.
                    if row.container.is_none() {
                        row.name = Some(owner.0.clone());
                    }
                    indexes.insert(owner, rows.len());
                }
                rows.push((row, vec![index]));
            }
        }
        rows
    }

    /// The name of the owner of variable `index`, and the kind of its tensors that are one row.
    fn owner(&self, index: usize, modules: &Modules) -> Option<(String, Option<TensorKind>)> {
        let name = self.name(index).filter(|name| !name.is_empty())?;
        let (kind, container) = (self.kind(index), self.container(index));
        if let Some((container, _)) = container.filter(|(_, found)| found.items > 1) {
            return Some((escape_name(container), None));
        }
        let name = escape_name(name);
        let owner = match kind {
            Some(TensorKind::Buffer) if self.is_written(index) => name,
            Some(TensorKind::Parameter | TensorKind::Buffer | TensorKind::Gradient) => {
                modules.outermost(&name).to_owned()
            }
            Some(TensorKind::OptimizerState) => name.split(".state[").next().unwrap_or(&name).to_owned(),
            Some(TensorKind::Saved | TensorKind::Variable) | None => name,
        };
        Some((owner, kind.filter(|kind| *kind != TensorKind::Saved && container.is_none())))
    }

    /// Adds the blocks of variable `index` to those of its owner.
    fn add(&self, (row, variables): &mut (KeptByVariable, Vec<usize>), index: usize) {
        let BlockSum { bytes, blocks } = self.sum(index);
        row.bytes = row.bytes.saturating_add(bytes);
        row.blocks = row.blocks.saturating_add(blocks);
        row.graph_bytes = row.graph_bytes.saturating_add(self.graph_bytes(index));
        row.share_ratio = ratio(row.bytes, self.all.bytes);
        variables.push(index);
    }
}

/// The blocks of one variable and category.
#[derive(Default)]
struct Part {
    sum: BlockSum,
    graph_bytes: u64,
    confidence: ConfidenceBytes,
}

impl Part {
    fn add(&mut self, bytes: u64, graph_bytes: u64, confidence: Confidence) {
        self.sum = self.sum.plus(BlockSum { bytes, blocks: 1 });
        self.graph_bytes = self.graph_bytes.saturating_add(graph_bytes);
        self.confidence.add(confidence, bytes);
    }

    fn merge(&mut self, other: &Self) {
        self.sum = self.sum.plus(other.sum);
        self.graph_bytes = self.graph_bytes.saturating_add(other.graph_bytes);
        self.confidence.merge(other.confidence);
    }
}

/// The names of modules, with their indexes folded.
struct Modules(FxHashSet<String>);

impl Modules {
    fn new(snapshot: &Snapshot, names: &TensorNames) -> Self {
        let name =
            |module: &crate::snapshot::NamedModule| escape_name(&super::fold_indexes(snapshot.text(module.name)));
        Self(names.modules.iter().map(name).collect())
    }

    /// The first module on the way to `name`; `name` if there is none.
    fn outermost<'a>(&self, name: &'a str) -> &'a str {
        let ends = name.match_indices(['.', '[']).map(|(at, _)| at);
        let mut prefixes = ends.filter_map(|end| name.get(..end));
        prefixes.find(|prefix| self.0.contains(*prefix)).unwrap_or(name)
    }
}
