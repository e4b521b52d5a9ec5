//! The live blocks of a device by the variable that keeps them.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::{Container, ITEM, KeptByVariable, Written};
use crate::allocator::device::GpuModel;
use crate::base::ids::{FrameId, StackId, to_u32};
use crate::base::intern::SeededMap;
use crate::base::units::{escape_name, ratio};
use crate::python::{Keep, ProgramText};
use crate::snapshot::{
    Author, Block, BlockState, Device, NamedContainer, NamedTensor, RootKind, Snapshot, TensorKind, TensorNames,
    WriteKind,
};
use crate::stacks::frames::StackReader;
use crate::study::memory::{BlockSum, BlockSums, sorted_by_bytes};

/// The variables of a device, by the bytes that they keep, descending.
#[derive(Debug)]
pub struct LiveVariables<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) names: &'a TensorNames,
    variables: Vec<(Holder, Group<'a>)>,
    /// By address of a live block, its index in `variables`, and whether only an autograd graph keeps it.
    of_block: SeededMap<u64, (u32, bool)>,
    /// The sum of all live blocks.
    pub(super) all: BlockSum,
    containers: Containers<'a>,
    /// The statements that fill or assign the largest variables.
    written: Vec<Option<Keep>>,
}

/// Variables whose statements are looked for.
const MAX_WRITTEN: usize = 200;

impl<'a> LiveVariables<'a> {
    /// `None` if the recorder did not look for variables.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        device: Device<'a>,
        stacks: &StackReader<'_>,
        text: &ProgramText<'_>,
    ) -> Option<Self> {
        let names = snapshot.tensor_names.as_ref()?;
        let live = device.segments().flat_map(|segment| snapshot.blocks_of(segment));
        let live = live.filter(|block| block.state == BlockState::ActiveAllocated);
        let mut indexes: SeededMap<Holder, u32> = SeededMap::default();
        let mut variables: Vec<(Holder, Group<'_>)> = Vec::new();
        let mut of_block: SeededMap<u64, (u32, bool)> = SeededMap::default();
        let mut all = BlockSum::default();
        let mut tensors: Vec<&NamedTensor> = names.tensors.iter().collect();
        tensors.sort_by_key(|tensor| tensor.address);
        let roots = merge_roots(names);
        let failed = device.failed_requests().next_back().filter(|entry| entry + 1 == device.len());
        let failed = failed.map(|entry| device.entry(entry).extended_stack);
        for block in live {
            let tensor = largest_in(block, &tensors);
            let holder = match tensor {
                None => holder_without_tensor(block, failed, names.is_complete, stacks),
                Some(NamedTensor { name, root, .. }) => match (name, names.roots[*root].kind) {
                    (None, RootKind::Call) => Holder::Call,
                    (None, RootKind::Unreached) => Holder::Unreached(stacks.python_frame(block.extended_stack)),
                    _ => {
                        let name = name.map(|name| fold_indexes(snapshot.text(name)));
                        Holder::Python(name.unwrap_or_default(), roots[*root])
                    }
                },
            };
            let index = *indexes.entry(holder).or_insert_with_key(|holder| {
                variables.push((holder.clone(), Group::default()));
                to_u32(variables.len() - 1)
            });
            variables[index as usize].1.add(block, tensor, snapshot, names);
            of_block.insert(block.address, (index, tensor.is_some_and(|tensor| tensor.is_in_graph)));
            all = all.plus(BlockSum { bytes: block.size, blocks: 1 });
        }
        let mut sorted: Vec<_> = variables.into_iter().enumerate().collect();
        sorted.sort_by_key(|(_, (_, group))| Reverse(group.sum.bytes)); // stable: ties in order of address
        let mut places = vec![0; sorted.len()];
        for (place, (index, _)) in sorted.iter().enumerate() {
            places[*index] = to_u32(place);
        }
        for (index, _) in of_block.values_mut() {
            *index = places[*index as usize];
        }
        let variables = sorted.into_iter().map(|(_, variable)| variable).collect();
        let (containers, written) = (Containers::new(names, snapshot), Vec::new());
        let mut found = Self { snapshot, names, variables, of_block, all, containers, written };
        found.written = (0..found.count().min(MAX_WRITTEN)).map(|index| found.find_written(index, text)).collect();
        Some(found)
    }

    /// The only statement in `text` that fills the container of variable `index`, or assigns the variable.
    fn find_written(&self, index: usize, text: &ProgramText<'_>) -> Option<Keep> {
        let (Holder::Python(name, root), group) = &self.variables[index] else { return None };
        let root = &self.names.roots[*root];
        let container = self.containers.of_item(name).map(|(container, _)| container);
        let is_variable = matches!(group.kind(), Some(TensorKind::Saved | TensorKind::Variable | TensorKind::Buffer))
            && matches!(root.kind, RootKind::Frame | RootKind::Module);
        let variable = outermost(container.unwrap_or(name));
        if !is_variable && container != Some(variable) {
            return None;
        }
        let [module, file] = [root.module, root.file].map(|id| id.map(|id| self.snapshot.text(id)));
        let function = root.frame.and_then(|frame| self.snapshot.stacks.frames(frame).first());
        let function = function.map(|frame| self.snapshot.frame_text(frame));
        // The name of a variable of another module than `__main__` begins with the module's.
        let module = module.filter(|module| *module != "__main__").unwrap_or_default();
        let own = variable.strip_prefix(module).map_or(variable, |own| own.trim_start_matches('.'));
        match (function, file) {
            (Some((file, name)), _) if !variable.contains('.') => text.written(variable, Some(file), Some(name)),
            (None, file @ Some(_)) if !own.contains('.') => text.written(own, file, None),
            _ => text.written(variable, None, None),
        }
    }

    /// The number of variables.
    pub fn count(&self) -> usize {
        self.variables.len()
    }

    /// The blocks that variable `index` keeps.
    pub(super) fn group(&self, index: usize) -> &Group<'a> {
        &self.variables[index].1
    }

    /// The folded name of variable `index`; empty if it has none, `None` if Python does not keep the memory.
    pub(super) fn name(&self, index: usize) -> Option<&str> {
        if let (Holder::Python(name, _), _) = &self.variables[index] { Some(name) } else { None }
    }

    /// The container that has variable `index` among its items, and its name. If it is in another container that a statement
    /// fills, that one: the inner ones are made with their items.
    pub(super) fn container(&self, index: usize) -> Option<(&str, &'a NamedContainer)> {
        let found = self.containers.of_item(self.name(index)?)?;
        let keep = self.written.get(index).and_then(Option::as_ref);
        let filled = keep.filter(|keep| matches!(keep.kind, WriteKind::Put | WriteKind::Extend | WriteKind::Store));
        let outer = filled.and_then(|_| self.containers.named(outermost(found.0)));
        Some(outer.filter(|(_, outer)| outer.items > 1).unwrap_or(found))
    }

    /// Whether a statement fills or assigns variable `index`.
    pub(super) fn is_written(&self, index: usize) -> bool {
        self.written.get(index).is_some_and(Option::is_some)
    }

    /// The variable that keeps the live block at `address`.
    pub fn of_block(&self, address: u64) -> Option<usize> {
        self.of_block.get(&address).map(|(index, _)| *index as usize)
    }

    /// Whether the live block at `address` is kept only through an autograd graph.
    pub(super) fn is_in_graph(&self, address: u64) -> bool {
        self.of_block.get(&address).is_some_and(|(_, is_in_graph)| *is_in_graph)
    }

    /// Variable `index` as a row of a report.
    pub fn row(&self, index: usize, stacks: &StackReader<'_>) -> KeptByVariable {
        let (holder, group) = &self.variables[index];
        let (snapshot, names) = (self.snapshot, self.names);
        let (name, root, kind) = match holder {
            Holder::Python(name, root) => (&**name, Some(&names.roots[*root]), Some(names.roots[*root].kind)),
            Holder::Call => ("", None, Some(RootKind::Call)),
            Holder::Cpp(_) => ("", None, None),
            Holder::Unreached(_) => ("", None, Some(RootKind::Unreached)),
        };
        let called = if let Holder::Cpp(frame) = holder { *frame } else { None };
        let function =
            called.or_else(|| root.and_then(|root| root.frame).and_then(|frame| snapshot.stacks.frames(frame).first()));
        let container = self.container(index);
        let written = self.written.get(index).and_then(Option::as_ref).map(|keep| Written::new(keep, stacks));
        let largest = group.largest;
        let stack = sorted_by_bytes(group.stacks.clone()).first().map(|(stack, _)| *stack);
        KeptByVariable {
            bytes: group.sum.bytes,
            blocks: group.sum.blocks,
            share_ratio: ratio(group.sum.bytes, self.all.bytes),
            graph_bytes: group.graph_bytes,
            unused_bytes: group.unused_bytes,
            name: (!name.is_empty()).then(|| escape_name(name)),
            kind: group.kind(),
            root: kind,
            author: root.map(|root| root.author),
            function: function.map(|frame| stacks.frame_report(frame)),
            module: root.and_then(|root| root.module).map(|id| escape_name(snapshot.text(id))),
            container: container.map(|(name, found)| Container {
                name: escape_name(name),
                r#type: escape_name(snapshot.text(found.type_name)),
                items: Some(found.items),
                // If the statement makes an empty container, an unknown method fills it elsewhere.
                filled_at: written
                    .as_ref()
                    .filter(|written| !name.ends_with(']') && !written.makes_empty(snapshot.text(found.type_name)))
                    .map(|written| written.at.clone()),
            }),
            written,
            dtype: largest.map(|tensor| escape_name(snapshot.text(tensor.dtype))),
            shape: largest.and_then(|tensor| tensor.shape).and_then(|shape| names.shapes.get(shape)).cloned(),
            places: largest.map(|tensor| tensor.places).filter(|places| *places > 1),
            operator: largest.and_then(|tensor| tensor.operator).map(|id| escape_name(snapshot.text(id))),
            allocated_by: stacks.code_location(stack.map(|stack| stacks.line_id(stack)).unwrap_or_default()),
            ..KeptByVariable::default()
        }
    }
}

/// Blocks with one name.
#[derive(Debug, Default)]
pub(super) struct Group<'n> {
    /// The largest storage.
    largest: Option<&'n NamedTensor>,
    pub(super) sum: BlockSum,
    /// Bytes that the variable keeps only through autograd graphs.
    pub(super) graph_bytes: u64,
    /// Bytes that no known tensor uses.
    pub(super) unused_bytes: u64,
    kinds: FxHashMap<TensorKind, u64>,
    stacks: BlockSums<StackId>,
}

/// Blocks share a row if they have the same holder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    /// A variable: its folded name and the row of its root.
    Python(String, usize),
    /// The call that was running at the snapshot.
    Call,
    /// Code in C++, called by the frame.
    Cpp(Option<FrameId>),
    /// Something that the recorder had no time to reach: a row for each frame that allocated such memory.
    Unreached(Option<FrameId>),
}

/// The holder of a block for which the recorder found no tensor of Python: the call of the request that `failed`, if the
/// snapshot was taken there, or C++, if the recorder has looked everywhere. A thread of the backward pass has no Python
/// frames.
fn holder_without_tensor(
    block: &Block,
    failed: Option<StackId>,
    is_complete: bool,
    stacks: &StackReader<'_>,
) -> Holder {
    let frame = stacks.python_frame(block.extended_stack);
    let is_backward = frame.is_none() && failed.is_some_and(|stack| stacks.python_frame(stack).is_none());
    match () {
        () if is_complete && block.size == GpuModel::CUBLAS_WORKSPACE_BYTES => Holder::Cpp(frame),
        () if failed == Some(block.extended_stack) || is_backward => Holder::Call,
        () if is_complete => Holder::Cpp(frame),
        () => Holder::Unreached(frame),
    }
}

/// For each root its row, or the row of the first equal one if no variable is there.
fn merge_roots(names: &TensorNames) -> Vec<usize> {
    let mut first: FxHashMap<(RootKind, Author), usize> = FxHashMap::default();
    let rows = names.roots.iter().enumerate().map(|(row, root)| match root.kind {
        RootKind::Frame | RootKind::Module | RootKind::Exception => row,
        kind => *first.entry((kind, root.author)).or_insert(row),
    });
    rows.collect()
}

/// The storages of one block that are compared. PyTorch puts one tensor's storage in each.
const MAX_STORAGES_IN_BLOCK: usize = 64;

/// The largest storage that starts in `block`, of `tensors` in order of address; the first one on a tie.
fn largest_in<'n>(block: &Block, tensors: &[&'n NamedTensor]) -> Option<&'n NamedTensor> {
    let end = block.address.saturating_add(block.size);
    let first = tensors.partition_point(|tensor| tensor.address < block.address);
    let inside = tensors[first..].iter().take_while(|tensor| tensor.address < end).take(MAX_STORAGES_IN_BLOCK);
    // `max_by_key` would return the last one on a tie.
    inside.copied().reduce(|largest, tensor| if tensor.bytes > largest.bytes { tensor } else { largest })
}

impl<'n> Group<'n> {
    /// The kind with most bytes.
    pub(super) fn kind(&self) -> Option<TensorKind> {
        self.kinds.iter().max_by_key(|(kind, bytes)| (**bytes, Reverse(**kind))).map(|(kind, _)| *kind)
    }

    fn add(&mut self, block: &Block, tensor: Option<&'n NamedTensor>, snapshot: &Snapshot, names: &TensorNames) {
        let sum = BlockSum { bytes: block.size, blocks: 1 };
        self.sum = self.sum.plus(sum);
        let of_stack = self.stacks.entry(block.extended_stack).or_default();
        *of_stack = of_stack.plus(sum);
        let Some(tensor) = tensor else { return }; // no tensor of Python uses this block
        let of_kind = self.kinds.entry(tensor.kind).or_default();
        *of_kind = of_kind.saturating_add(block.size);
        let unused_bytes = tensor.unused_bytes(snapshot.text(tensor.dtype), &names.shapes);
        self.unused_bytes = self.unused_bytes.saturating_add(unused_bytes);
        if tensor.is_in_graph {
            self.graph_bytes = self.graph_bytes.saturating_add(block.size);
        }
        if self.largest.is_none_or(|largest| largest.bytes < tensor.bytes) {
            self.largest = Some(tensor);
        }
    }
}

/// Entries of a dict that is a collection.
const MIN_ENTRIES: u64 = 10;

/// The containers by folded name; the largest of those with the same name.
#[derive(Debug)]
struct Containers<'n>(SeededMap<String, &'n NamedContainer>);

impl<'n> Containers<'n> {
    fn new(names: &'n TensorNames, snapshot: &'n Snapshot) -> Self {
        let mut by_name: SeededMap<String, &NamedContainer> = SeededMap::default();
        for container in &names.containers {
            let largest = by_name.entry(fold_indexes(snapshot.text(container.name))).or_insert(container);
            if largest.items < container.items {
                *largest = container;
            }
        }
        Self(by_name)
    }

    /// The container called `name`, and its name.
    fn named<'a>(&self, name: &'a str) -> Option<(&'a str, &'n NamedContainer)> {
        Some((name, self.0.get(name)?))
    }

    /// The container with most items on the way to `name`, and its name.
    fn of_item<'a>(&self, name: &'a str) -> Option<(&'a str, &'n NamedContainer)> {
        let holders = name.match_indices(ITEM).filter_map(|(at, _)| Some((name.get(..at)?, 1)));
        // A dict with fewer entries is a record rather than a collection.
        let keyed = name.match_indices("['").filter_map(|(at, _)| Some((name.get(..at)?, MIN_ENTRIES)));
        let found = holders.chain(keyed).filter_map(|(holder, minimum)| {
            Some((holder, *self.0.get(holder).filter(|container| container.items >= minimum)?))
        });
        // The outermost one on a tie.
        found.reduce(|most, other| if other.1.items > most.1.items { other } else { most })
    }
}

/// `history` of `history[*][*]`.
fn outermost(mut name: &str) -> &str {
    while let Some((before, _)) = name.strip_suffix(']').and_then(|name| name.rsplit_once('[')) {
        name = before;
    }
    name
}

/// `name` with `*` for every index: `blocks[*].weight` for `blocks[3].weight`, `state[blocks.*.weight]` for
/// `state[blocks.3.weight]`. Below an index keys are folded, too: `best[*][*]` for `best[3]['head.bias']`.
pub fn fold_indexes(name: &str) -> String {
    let mut rest = fold_numbers(name);
    let Some(first_item) = rest.find("[*]") else { return rest };
    let mut below = rest.split_off(first_item);
    while let Some(start) = below.find("['") {
        let Some(end) = below.get(start..).and_then(|key| key.find("']")) else { break };
        below.replace_range(start..start + end + 2, "[*]");
    }
    rest + &below
}

fn fold_numbers(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for part in name.split_inclusive(['.', '[', ']']) {
        let (word, end) = match part.char_indices().next_back() {
            Some((at, '.' | '[' | ']')) => part.split_at(at),
            _ => (part, ""),
        };
        let is_index = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        folded.push_str(if is_index { "*" } else { word });
        folded.push_str(end);
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::fold_indexes;

    #[test]
    fn only_whole_components_are_indexes() {
        for (name, folded) in [
            ("trainer.history[17]", "trainer.history[*]"),
            ("model.blocks[3].up.weight", "model.blocks[*].up.weight"),
            ("opt.state[blocks.3.up.weight].exp_avg", "opt.state[blocks.*.up.weight].exp_avg"),
            ("opt.state[0.weight].step", "opt.state[*.weight].step"),
            ("a[0][1]", "a[*][*]"),
            ("layer1.conv2", "layer1.conv2"),
            ("cache['k1']", "cache['k1']"),
            ("best[3]['blocks.0.up.weight']", "best[*][*]"),
            ("a[1]['x", "a[*]['x"),
            ("é[1]", "é[*]"),
            ("", ""),
        ] {
            assert_eq!(fold_indexes(name), folded);
        }
    }
}
