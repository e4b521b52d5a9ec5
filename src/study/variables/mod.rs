//! The variables that keep the memory of a snapshot alive, as the recorder named them inside the process.
//!
//! In: the live blocks of a device and [`TensorNames`], which are matched by address.
//! Out: [`KeptReport`], rows of blocks by variable. Storages have the same name if only indexes differ. Names are facts:
//! nothing here is inferred.

mod fold;

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use self::fold::fold_indexes;
use super::DeviceStudy;
use super::memory::{BlockSum, BlockSums, TopRows, sorted_by_bytes};
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::base::units::{escape_name, ratio};
use crate::snapshot::{Author, Block, BlockState, NamedTensor, RootKind, Snapshot, TensorKind, TensorNames};
use crate::stacks::frames::{CodeLocation, FrameReport};

/// The variables that keep the allocated memory alive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeptReport {
    /// Whether the recorder had time to look everywhere.
    pub complete: bool,
    /// The variables that keep the most memory, largest first, `--top` of them.
    #[serde(flatten)]
    pub top: TopRows<KeptByVariable>,
}

/// Live blocks that one variable keeps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeptByVariable {
    /// Bytes in these blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
    /// The part of `bytes` that the variable keeps only through autograd graphs.
    pub graph_bytes: u64,
    /// The name, with `*` for each index: `trainer.history[*]`; for a reference cycle, the type of an object in it; null
    /// if no variable leads to the memory.
    pub name: Option<String>,
    /// Use of the memory: `parameter`, `buffer`, `gradient`, `optimizer-state`, `saved` (for a backward pass) or
    /// `variable`; the kind with most bytes. Null if no tensor of Python uses it.
    pub kind: Option<TensorKind>,
    /// Where the name starts: `frame` (a local variable), `module`, or `exception`. Without a variable: `call` (a value
    /// of a running call), `cycle` (only a reference cycle, which `gc.collect()` frees), `unreached` (the recorder had no
    /// time), or null (no tensor of Python uses the memory).
    pub root: Option<RootKind>,
    /// The author of the code where the name starts: `user`, `library` or `pytorch`.
    pub author: Option<Author>,
    /// The function of a local variable; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<FrameReport>,
    /// The module of a module's variable; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The container whose items these are; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Type of the elements in the largest block, such as `float32`; null if unknown.
    pub dtype: Option<String>,
    /// Shape of the tensor in the largest block; null if unknown.
    pub shape: Option<Vec<u64>>,
    /// The autograd node and argument that saved the largest block, such as `MulBackward0.other`; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The source line that allocated most of these bytes.
    pub allocated_by: CodeLocation,
}

/// A container of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Container {
    /// Its name, such as `trainer.history`.
    pub name: String,
    /// Its type, such as `list`.
    pub r#type: String,
    /// Number of items.
    pub items: u64,
}

/// The end of the name of an item, after its container's name.
pub const ITEM: &str = "[*]";

/// Blocks with one name.
struct Group<'n> {
    /// The largest storage.
    largest: Option<&'n NamedTensor>,
    sum: BlockSum,
    graph_bytes: u64,
    kinds: FxHashMap<TensorKind, u64>,
    stacks: BlockSums<StackId>,
}

/// Live blocks share a row if they have the same name and its start is the same.
type Key = (String, Option<usize>);

impl KeptReport {
    /// The `top` variables; `None` if the recorder did not look for them.
    pub fn from_names(device: DeviceStudy<'_, '_>, top: usize) -> Option<Self> {
        let snapshot = device.snapshot();
        let names = snapshot.tensor_names.as_ref()?;
        let live = device.device().segments().flat_map(|segment| snapshot.blocks_of(segment));
        let live = live.filter(|block| block.state == BlockState::ActiveAllocated);
        let mut groups: SeededMap<Key, Group<'_>> = SeededMap::default();
        let mut all = BlockSum::default();
        let tensors = TensorsByAddress::new(names);
        let roots = merge_roots(names);
        for block in live {
            let tensor = tensors.largest_in(block);
            let name = tensor.and_then(|tensor| tensor.name).map(|name| fold_indexes(snapshot.text(name)));
            let key = (name.unwrap_or_default(), tensor.map(|tensor| roots[tensor.root]));
            groups.entry(key).or_insert_with(Group::new).add(block, tensor);
            all = all.plus(BlockSum { bytes: block.size, blocks: 1 });
        }
        let mut groups: Vec<(Key, Group<'_>)> = groups.into_iter().collect();
        groups.sort_unstable_by(|(a, first), (b, second)| {
            (Reverse(first.sum.bytes), a).cmp(&(Reverse(second.sum.bytes), b))
        });
        groups.truncate(top);
        let rest = groups.iter().fold(all, |rest, (_, group)| rest.minus(group.sum));
        let containers = Containers::new(names, snapshot);
        let rows = groups.into_iter().map(|(key, group)| group.into_row(&key, device, &containers, all.bytes));
        Some(Self { complete: names.is_complete, top: TopRows { rows: rows.collect(), rest } })
    }
}

/// For each root its row, or the row of the first equal one if no variable is there.
fn merge_roots(names: &TensorNames) -> Vec<usize> {
    let mut first: FxHashMap<(RootKind, Author), usize> = FxHashMap::default();
    let is_variable = |kind| matches!(kind, RootKind::Frame | RootKind::Module | RootKind::Exception);
    let roots = names.roots.iter().enumerate();
    roots
        .map(
            |(row, root)| {
                if is_variable(root.kind) { row } else { *first.entry((root.kind, root.author)).or_insert(row) }
            },
        )
        .collect()
}

/// The storages of one block that are compared. PyTorch puts one tensor's storage in each.
const MAX_STORAGES_IN_BLOCK: usize = 64;

/// The storages in order of address.
struct TensorsByAddress<'n>(Vec<&'n NamedTensor>);

impl<'n> TensorsByAddress<'n> {
    fn new(names: &'n TensorNames) -> Self {
        let mut tensors: Vec<&NamedTensor> = names.tensors.iter().collect();
        tensors.sort_by_key(|tensor| tensor.address);
        Self(tensors)
    }

    /// The largest storage that starts in `block`; the first one on a tie.
    fn largest_in(&self, block: &Block) -> Option<&'n NamedTensor> {
        let end = block.address.saturating_add(block.size);
        let first = self.0.partition_point(|tensor| tensor.address < block.address);
        let inside = self.0.get(first..)?.iter().take_while(|tensor| tensor.address < end);
        let inside = inside.take(MAX_STORAGES_IN_BLOCK);
        // `max_by_key` would return the last one on a tie.
        inside.copied().reduce(|largest, tensor| if tensor.bytes > largest.bytes { tensor } else { largest })
    }
}

impl<'n> Group<'n> {
    fn new() -> Self {
        Self {
            largest: None,
            sum: BlockSum::default(),
            graph_bytes: 0,
            kinds: FxHashMap::default(),
            stacks: BlockSums::default(),
        }
    }

    fn add(&mut self, block: &Block, tensor: Option<&'n NamedTensor>) {
        let sum = BlockSum { bytes: block.size, blocks: 1 };
        self.sum = self.sum.plus(sum);
        let of_stack = self.stacks.entry(block.extended_stack).or_default();
        *of_stack = of_stack.plus(sum);
        let Some(tensor) = tensor else { return }; // no tensor of Python uses this block
        let of_kind = self.kinds.entry(tensor.kind).or_default();
        *of_kind = of_kind.saturating_add(block.size);
        if tensor.is_in_graph {
            self.graph_bytes = self.graph_bytes.saturating_add(block.size);
        }
        if self.largest.is_none_or(|largest| largest.bytes < tensor.bytes) {
            self.largest = Some(tensor);
        }
    }

    fn into_row(self, key: &Key, device: DeviceStudy<'_, '_>, containers: &Containers<'_>, all: u64) -> KeptByVariable {
        let names = containers.names;
        let (snapshot, stacks) = (device.snapshot(), device.stacks());
        let text = |id| escape_name(snapshot.text(id));
        let (name, root) = (&key.0, key.1.map(|row| &names.roots[row]));
        let function = root.and_then(|root| root.frame).and_then(|frame| snapshot.stacks.frames(frame).first());
        let largest = self.largest;
        let kind = self.kinds.iter().max_by_key(|(kind, bytes)| (**bytes, Reverse(**kind)));
        let stack = sorted_by_bytes(self.stacks).first().map(|(stack, _)| *stack);
        KeptByVariable {
            bytes: self.sum.bytes,
            blocks: self.sum.blocks,
            share_ratio: ratio(self.sum.bytes, all),
            graph_bytes: self.graph_bytes,
            name: (!name.is_empty()).then(|| escape_name(name)),
            kind: kind.map(|(kind, _)| *kind),
            root: root.map(|root| root.kind),
            author: root.map(|root| root.author),
            function: function.map(|frame| stacks.frame_report(*frame)),
            module: root.and_then(|root| root.module).map(text),
            container: containers.of_item(name),
            dtype: largest.map(|tensor| text(tensor.dtype)),
            shape: largest.and_then(|tensor| tensor.shape).and_then(|shape| names.shapes.get(shape)).cloned(),
            operator: largest.and_then(|tensor| tensor.operator).map(text),
            allocated_by: stacks.code_location(stack.map(|stack| stacks.line_id(stack)).unwrap_or_default()),
        }
    }
}

/// Type and number of items of each container, by folded name; the largest of those with the same name.
struct Containers<'n> {
    names: &'n TensorNames,
    by_name: SeededMap<String, (&'n str, u64)>,
}

impl<'n> Containers<'n> {
    fn new(names: &'n TensorNames, snapshot: &'n Snapshot) -> Self {
        let mut by_name: SeededMap<String, (&str, u64)> = SeededMap::default();
        for container in &names.containers {
            let found = (snapshot.text(container.type_name), container.items);
            let largest = by_name.entry(fold_indexes(snapshot.text(container.name))).or_insert(found);
            if largest.1 < container.items {
                *largest = found;
            }
        }
        Self { names, by_name }
    }

    /// The container with most items on the way to `name`.
    fn of_item(&self, name: &str) -> Option<Container> {
        let holders = name.match_indices(ITEM).filter_map(|(at, _)| name.get(..at));
        let found = holders.filter_map(|holder| Some((holder, *self.by_name.get(holder)?)));
        // The outermost one on a tie.
        let found = found.reduce(|most, other| if other.1.1 > most.1.1 { other } else { most });
        let (name, (r#type, items)) = found?;
        Some(Container { name: escape_name(name), r#type: escape_name(r#type), items })
    }
}
