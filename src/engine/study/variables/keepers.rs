//! Variables of one owner as one row: the items of a container, the parameters of a model, the state of an optimizer.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{KeptByVariable, LiveVariables, fold_indexes};
use crate::base::units::{escape_name, ratio};
use crate::snapshot::TensorKind;
use crate::stacks::frames::StackReader;
use crate::study::category::{Category, Classification, ConfidenceBytes};
use crate::study::memory::BlockSum;

/// Only this many of the largest variables can begin a row; smaller ones are added to the rows of their owners.
const MAX_ROWS: usize = 200;

/// Holders have names if at least this share of the memory has one.
const MIN_NAMED_RATIO: f64 = 0.5;

/// Owners in a report.
const MAX_KEEPERS: usize = 20;

impl LiveVariables<'_> {
    /// The owners of the largest variables, most bytes first. A row describes an owner's largest variable and sums up
    /// all of them.
    pub(super) fn keepers(&self, stacks: &StackReader<'_>) -> Vec<KeptByVariable> {
        let (mut rows, _) = self.owners(stacks);
        rows.sort_by_key(|row| Reverse(row.bytes)); // stable
        rows.truncate(MAX_KEEPERS);
        rows
    }

    /// The owners of `blocks`, each with its address, bytes and use, split by category; the `top` rows with most bytes.
    /// Empty unless these are the blocks of the snapshot, and variables lead to most of their bytes.
    pub(crate) fn holders(
        &self,
        stacks: &StackReader<'_>,
        blocks: &[(u64, u64, Classification)],
        top: usize,
    ) -> Vec<KeptByVariable> {
        let is_snapshot = BlockSum::from_sizes(blocks.iter().map(|(_, bytes, _)| *bytes)) == self.all;
        let (owners, owner_of) = self.owners(stacks);
        let named = owners.iter().filter(|row| row.name.is_some()).map(|row| row.bytes).sum();
        if !is_snapshot || ratio(named, self.all.bytes) < MIN_NAMED_RATIO {
            return Vec::new();
        }
        let mut parts: BTreeMap<(usize, Category), Part> = BTreeMap::new();
        for (address, bytes, (category, confidence)) in blocks {
            let Some(variable) = self.of_block(*address) else { return Vec::new() }; // freed before the snapshot
            let Some(owner) = owner_of[variable] else { continue };
            let part = parts.entry((owner, *category)).or_default();
            part.sum = part.sum.plus(BlockSum { bytes: *bytes, blocks: 1 });
            let graph_bytes = if self.is_in_graph(*address) { *bytes } else { 0 };
            part.graph_bytes = part.graph_bytes.saturating_add(graph_bytes);
            part.confidence.add(*confidence, *bytes);
        }
        let rows = parts.into_iter().map(|((owner, category), part)| KeptByVariable {
            bytes: part.sum.bytes,
            blocks: part.sum.blocks,
            share_ratio: ratio(part.sum.bytes, self.all.bytes),
            graph_bytes: part.graph_bytes,
            category: Some(category),
            category_confidence: Some(part.confidence.of_half()),
            ..owners[owner].clone()
        });
        let mut rows: Vec<KeptByVariable> = rows.collect();
        rows.sort_by_key(|row| Reverse(row.bytes)); // stable
        rows.truncate(top);
        rows
    }

    /// The owners of the largest variables, and for each variable the row of its owner.
    fn owners(&self, stacks: &StackReader<'_>) -> (Vec<KeptByVariable>, Vec<Option<usize>>) {
        let names = self.names.modules.iter().map(|module| self.snapshot.text(module.name));
        let modules: FxHashSet<String> = names.map(|name| escape_name(&fold_indexes(name))).collect();
        let mut indexes: FxHashMap<(String, Option<TensorKind>), usize> = FxHashMap::default();
        let mut rows: Vec<KeptByVariable> = Vec::new();
        let mut owner_of = vec![None; self.count()];
        for (index, place) in owner_of.iter_mut().enumerate() {
            let owner = self.owner(index, &modules);
            if let Some(known) = owner.as_ref().and_then(|owner| indexes.get(owner)) {
                let (row, group) = (&mut rows[*known], self.group(index));
                row.bytes = row.bytes.saturating_add(group.sum.bytes);
                row.blocks = row.blocks.saturating_add(group.sum.blocks);
                row.graph_bytes = row.graph_bytes.saturating_add(group.graph_bytes);
                row.unused_bytes = row.unused_bytes.saturating_add(group.unused_bytes);
                row.share_ratio = ratio(row.bytes, self.all.bytes);
                *place = Some(*known);
                continue;
            }
            let Some(mut row) = (index < MAX_ROWS).then(|| self.row(index, stacks)) else { continue };
            if let Some(owner) = owner {
                // Items of a container keep their name, which shows the part of an item that has the memory.
                if row.container.is_none() {
                    row.name = Some(owner.0.clone());
                }
                indexes.insert(owner, rows.len());
            }
            *place = Some(rows.len());
            rows.push(row);
        }
        (rows, owner_of)
    }

    /// The owner of variable `index`, and the kind of tensors that share a row. `modules` has the folded names of
    /// modules.
    fn owner(&self, index: usize, modules: &FxHashSet<String>) -> Option<(String, Option<TensorKind>)> {
        let name = self.name(index).filter(|name| !name.is_empty())?;
        let (kind, container) = (self.group(index).kind(), self.container(index));
        if let Some((container, _)) = container.filter(|(_, found)| found.items > 1) {
            return Some((escape_name(container), None));
        }
        let name = escape_name(name);
        let owner = match kind {
            Some(TensorKind::Buffer) if self.is_written(index) => name.as_str(),
            Some(TensorKind::Parameter | TensorKind::Buffer | TensorKind::Gradient) => outermost(&name, modules),
            Some(TensorKind::OptimizerState) => name.split(".state[").next().unwrap_or(&name),
            Some(TensorKind::Saved | TensorKind::Variable) | None => name.as_str(),
        };
        Some((owner.to_owned(), kind.filter(|kind| *kind != TensorKind::Saved && container.is_none())))
    }
}

/// The blocks of one owner and category.
#[derive(Default)]
struct Part {
    sum: BlockSum,
    graph_bytes: u64,
    confidence: ConfidenceBytes,
}

/// The first module on the way to `name`; `name` if there is none.
fn outermost<'a>(name: &'a str, modules: &FxHashSet<String>) -> &'a str {
    let mut prefixes = name.match_indices(['.', '[']).map(|(at, _)| at).filter_map(|end| name.get(..end));
    prefixes.find(|prefix| modules.contains(*prefix)).unwrap_or(name)
}
