//! Variables of one owner as one row: the items of a container, the parameters of a model, the state of an optimizer.

use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;

use super::{KeptByVariable, LiveVariables};
use crate::base::units::{escape_name, ratio};
use crate::snapshot::{Snapshot, TensorKind, TensorNames};
use crate::stacks::frames::StackReader;

/// Variables that are summed; the others keep less than any of these.
const MAX_VARIABLES: usize = 200;

/// Owners in a report.
const MAX_KEEPERS: usize = 20;

impl LiveVariables<'_> {
    /// The owners of what the largest variables keep, those of most bytes first. A row describes the owner's largest
    /// variable and has the sums of all.
    pub(super) fn keepers(&self, stacks: &StackReader<'_>) -> Vec<KeptByVariable> {
        let modules = Modules::new(self.snapshot(), self.names());
        let mut indexes: FxHashMap<(String, Option<TensorKind>), usize> = FxHashMap::default();
        let mut rows: Vec<KeptByVariable> = Vec::new();
        for variable in (0..self.count().min(MAX_VARIABLES)).map(|index| self.row(index, stacks)) {
            let Some(name) = owner(&variable, &modules) else {
                rows.push(variable);
                continue;
            };
            let kind = variable.kind.filter(|kind| *kind != TensorKind::Saved && variable.container.is_none());
            if let Some(index) = indexes.get(&(name.clone(), kind)) {
                add(&mut rows[*index], &variable, self.all().bytes);
            } else {
                indexes.insert((name.clone(), kind), rows.len());
                // The items of a container keep theirs, which shows what in an item has the memory.
                let name = if variable.container.is_some() { variable.name } else { Some(name) };
                rows.push(KeptByVariable { name, ..variable });
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes)); // stable
        rows.truncate(MAX_KEEPERS);
        rows
    }
}

fn add(row: &mut KeptByVariable, other: &KeptByVariable, all: u64) {
    row.bytes = row.bytes.saturating_add(other.bytes);
    row.blocks = row.blocks.saturating_add(other.blocks);
    row.graph_bytes = row.graph_bytes.saturating_add(other.graph_bytes);
    row.share_ratio = ratio(row.bytes, all);
}

/// The name of the owner of `variable`.
fn owner(variable: &KeptByVariable, modules: &Modules) -> Option<String> {
    let name = variable.name.as_deref()?;
    if let Some(container) = variable.container.as_ref().filter(|container| container.items > 1) {
        return Some(container.name.clone());
    }
    Some(match variable.kind {
        Some(TensorKind::Buffer) if variable.written.is_some() => name.to_owned(),
        Some(TensorKind::Parameter | TensorKind::Buffer | TensorKind::Gradient) => modules.outermost(name).to_owned(),
        Some(TensorKind::OptimizerState) => name.split(".state[").next().unwrap_or(name).to_owned(),
        Some(TensorKind::Saved | TensorKind::Variable) | None => name.to_owned(),
    })
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
