//! Modules that are called several times in a forward pass, such as the layers of a network.
//!
//! The frames outside a `forward` identify its call site. Requests of one call site belong to the next call when their
//! stacks start over. If the recorder saw the modules, the items of one container share a call site, whatever their
//! classes, and their number shows how many calls there are: a [`ModuleTree`] has them by the code of their `forward`.

use std::collections::BTreeSet;
use std::ops::Range;

use itertools::Itertools as _;
use rustc_hash::FxHashMap;

use super::recorded_program::{Pass, RecordedProgram, forward_pass_of};
use crate::base::ids::{FrameId, StackId, SymbolId, to_u32};
use crate::base::intern::SeededMap;
use crate::replay::ops::ScriptOpKind;
use crate::snapshot::Snapshot;
use crate::stacks::frames::Origin;
use crate::study::variables::{ITEM, fold_indexes};

/// A module that one call site calls several times in a forward pass.
#[derive(Debug, Clone)]
pub(super) struct RepeatedModule {
    /// The innermost frame outside PyTorch that encloses the call.
    pub(super) line: Option<FrameId>,
    /// The modules, if the recorder saw them as the items of one container.
    pub(super) items: Option<ModuleItems>,
    /// The calls in each pass that has more than one, in order.
    pub(super) passes: Vec<(usize, Vec<Box<ModuleCall>>)>,
}

impl RepeatedModule {
    /// The blocks that its calls request.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.passes.iter().flat_map(|(_, calls)| calls).flatten().copied()
    }

    /// Whether `caller` only seems to be repeated because it calls these modules in a loop.
    fn is_loop_of(&self, caller: &Self) -> bool {
        let has_same_starts = self.passes.len() == caller.passes.len()
            && self.passes.iter().zip(&caller.passes).all(|((pass, calls), (other_pass, others))| {
                pass == other_pass
                    && calls.len() == others.len()
                    && calls.iter().zip(others).all(|(own, other)| own.first() == other.first())
            });
        let is_known = self.items.is_some() && caller.items.is_none();
        has_same_starts && (is_known || caller.ends_with_more() && !self.ends_with_more())
    }

    /// Whether in each pass the last call requests more blocks than the others, which request equally many.
    fn ends_with_more(&self) -> bool {
        self.passes.iter().all(|(_, calls)| match calls.as_slice() {
            [first, middle @ .., last] => {
                middle.iter().all(|call| call.len() == first.len()) && last.len() > first.len()
            }
            _ => false,
        })
    }
}

/// The blocks that one call of a module requests, in order.
pub(super) type ModuleCall = [u32];

/// A call of a `forward` function from certain outer frames, a node of [`CallSites::node_ids`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CallSite {
    outer_frames: u32,
    callee: Callee,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Callee {
    /// File and name.
    Function(SymbolId, SymbolId),
    /// The items of a container of [`ModuleTree`].
    Items(u32),
}

/// The stack of a request, and the class whose call it belongs to, if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallRequest {
    stack: StackId,
    class: Option<u32>,
}

/// The frames of stacks as a tree, outermost first, and the call sites in it.
#[derive(Default)]
struct CallSites {
    tree: ModuleTree,
    node_ids: FxHashMap<(u32, FrameId), u32>,
    site_ids: FxHashMap<CallSite, u32>,
    /// The line and the container of each call site.
    sites: Vec<(Option<FrameId>, Option<u32>)>,
    /// The call sites of each stack that was read, outermost first, each with the class that is called there.
    by_stack: FxHashMap<StackId, Vec<(u32, Option<u32>)>>,
}

impl CallSites {
    fn sites_of(&mut self, recording: &RecordedProgram<'_, '_>, stack: StackId) -> &[(u32, Option<u32>)] {
        if !self.by_stack.contains_key(&stack) {
            let sites = self.find_sites(recording, stack);
            self.by_stack.insert(stack, sites);
        }
        &self.by_stack[&stack]
    }

    fn find_sites(&mut self, recording: &RecordedProgram<'_, '_>, stack: StackId) -> Vec<(u32, Option<u32>)> {
        let (snapshot, reader) = (recording.device.snapshot(), recording.device.stacks());
        let (mut outside, mut line, mut found) = (0, None, Vec::new());
        for id in snapshot.stacks.frames(stack).iter().rev() {
            let origin = reader.origin(id);
            if origin == Origin::Native {
                continue;
            }
            let frame = snapshot.stacks.frame(id);
            if snapshot.text(frame.name) == "forward" {
                let item = self.tree.method_at(frame.file, u64::from(frame.line));
                let function = Callee::Function(frame.file, frame.name);
                let callee = item.map_or(function, |item| Callee::Items(item.container));
                let site = CallSite { outer_frames: outside, callee };
                let next = to_u32(self.sites.len());
                let number = *self.site_ids.entry(site).or_insert(next);
                if number == next {
                    self.sites.push((line, item.map(|item| item.container)));
                }
                found.push((number, item.map(|item| item.class)));
            }
            if matches!(origin, Origin::User | Origin::Package) {
                line = Some(id);
            }
            let next = to_u32(self.node_ids.len()) + 1;
            outside = *self.node_ids.entry((outside, id)).or_insert(next);
        }
        found
    }
}

/// The modules that are called several times in one of the `passes`.
pub(super) fn find_repeated(recording: &RecordedProgram<'_, '_>, passes: &[Pass]) -> Vec<RepeatedModule> {
    let tree = ModuleTree::from_snapshot(recording.device.snapshot());
    let mut sites = CallSites { tree, ..CallSites::default() };
    // The blocks requested by each call site in each pass, with their requests.
    let mut blocks_by_site: FxHashMap<(u32, usize), Vec<(u32, CallRequest)>> = FxHashMap::default();
    for op in &recording.script.ops {
        let ScriptOpKind::Alloc(block) = op.kind else { continue }; // not a request
        let Some(pass) = forward_pass_of(passes, op.source) else { continue }; // outside of every forward pass
        // A block that outlives the pass is a workspace or a cache, not an activation of the module.
        let Pass { backward, is_truncated, .. } = &passes[pass];
        let script_block = &recording.script.blocks[block as usize];
        if !is_truncated && script_block.freed_at.is_none_or(|freed| freed >= backward.end) {
            continue;
        }
        for (site, class) in sites.sites_of(recording, script_block.stack) {
            let request = CallRequest { stack: script_block.stack, class: *class };
            blocks_by_site.entry((*site, pass)).or_default().push((block, request));
        }
    }
    let mut modules: Vec<(u32, RepeatedModule)> = Vec::new();
    for ((site, pass), blocks) in blocks_by_site.into_iter().sorted_unstable_by_key(|(index, _)| *index) {
        let (blocks, requests): (Vec<u32>, Vec<CallRequest>) = blocks.into_iter().unzip();
        let (line, container) = sites.sites[site as usize];
        let items = container.map(|container| &sites.tree.containers[container as usize]);
        let calls = split_into_calls(&requests, items.map(|items| items.count));
        if calls.len() < 2 {
            continue;
        }
        if modules.last().is_none_or(|(last, _)| *last != site) {
            modules.push((site, RepeatedModule { line, items: items.cloned(), passes: Vec::new() }));
        }
        if let Some((_, module)) = modules.last_mut() {
            module.passes.push((pass, calls.into_iter().map(|rows| blocks[rows].into()).collect()));
        }
    }
    // Outer sites have smaller numbers than those within them.
    drop_callers_of_loops(modules.into_iter().map(|(_, module)| module).collect())
}

/// Drops modules that are called once and begin with a loop over others: their requests repeat as well, but the last of
/// the apparent calls has what follows the loop. `modules` has outer ones before those within them.
fn drop_callers_of_loops(mut modules: Vec<RepeatedModule>) -> Vec<RepeatedModule> {
    let first_blocks = modules.iter().enumerate().filter_map(|(index, module)| Some((module.blocks().next()?, index)));
    let by_first_block = first_blocks.into_group_map();
    let are_callers = (0..modules.len()).map(|outer| {
        let same_start = modules[outer].blocks().next().and_then(|block| by_first_block.get(&block));
        same_start.into_iter().flatten().any(|inner| *inner > outer && modules[*inner].is_loop_of(&modules[outer]))
    });
    let mut are_callers = are_callers.collect::<Vec<bool>>().into_iter();
    modules.retain(|_| !are_callers.next().unwrap_or(false));
    modules
}

/// Splits the `requests` of one call site into calls: a call starts where the class changes, and where the first stack
/// comes again. If there are a multiple of `module_count` parts, or if they repeat with a longer period, that many are
/// one call.
fn split_into_calls(requests: &[CallRequest], module_count: Option<usize>) -> Vec<Range<usize>> {
    let Some(mut first) = requests.first().copied() else { return Vec::new() }; // no requests, no calls
    let mut starts: Vec<usize> = vec![0];
    for (index, pair) in requests.windows(2).enumerate() {
        if pair[1].class != pair[0].class || (pair[1] == first && pair[0] != first) {
            first = pair[1];
            starts.push(index + 1);
        }
    }
    let part_count = starts.len();
    starts.push(requests.len());
    // The number of requests of one stack may vary: kernels need workspaces at some sizes only.
    let parts = starts.windows(2).map(|two| requests[two[0]..two[1]].iter().dedup().collect());
    let parts: Vec<Vec<&CallRequest>> = parts.collect();
    let period = match module_count {
        Some(count) if part_count <= count => 1, // fewer if the recording ends before the others are called
        Some(count) if part_count.is_multiple_of(count) => part_count / count,
        // Without a longer period each part is a call.
        _ => {
            let mut periods = (1..=part_count / 2).filter(|period| part_count.is_multiple_of(*period));
            periods.find(|period| repeats(&parts, *period)).unwrap_or(1)
        }
    };
    let is_irregular = period == 1 && !repeats(&parts, 1) && module_count != Some(part_count);
    if is_irregular && let Some(ends) = find_call_ends(requests, module_count, part_count) {
        return std::iter::once(0).chain(ends).tuple_windows().map(|(start, end)| start..end).collect();
    }
    starts.into_iter().step_by(period).tuple_windows().map(|(start, end)| start..end).collect()
}

fn repeats<T: PartialEq>(items: &[T], period: usize) -> bool {
    items.iter().zip(&items[period..]).all(|(item, later)| item == later)
}

/// The ends of calls if each ends with the last of `requests`, as residual blocks end with a sum: for calls whose first
/// request comes again within them, of which there are fewer than `part_count`. `None` if that request does not come
/// once in each of `module_count` calls.
fn find_call_ends(requests: &[CallRequest], module_count: Option<usize>, part_count: usize) -> Option<Vec<usize>> {
    let last = requests.last()?;
    let ends = (0..requests.len()).filter(|index| requests[*index] == *last && requests.get(index + 1) != Some(last));
    let ends: Vec<usize> = ends.map(|index| index + 1).collect();
    let is_count = module_count.is_none_or(|count| ends.len() == count);
    (is_count && (2..part_count).contains(&ends.len())).then_some(ends)
}

/// The items of the containers of modules, such as `model.blocks[*]`.
#[derive(Debug, Default)]
struct ModuleTree {
    /// The methods `forward` of each file, in order of their lines.
    methods: FxHashMap<SymbolId, Vec<Method>>,
    containers: Vec<ModuleItems>,
}

/// The items of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleItems {
    /// Such as `model.blocks[*]`.
    pub(super) name: String,
    count: usize,
}

/// The `forward` of one class, all of whose items are in one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Method {
    first_line: u64,
    last_line: u64,
    container: u32,
    /// A number for the class.
    class: u32,
}

impl ModuleTree {
    fn from_snapshot(snapshot: &Snapshot) -> Self {
        let modules = snapshot.tensor_names.iter().flat_map(|names| &names.modules);
        let mut containers: Vec<ModuleItems> = Vec::new();
        let mut container_ids: SeededMap<String, u32> = SeededMap::default();
        let mut classes: FxHashMap<(SymbolId, u64, u64), BTreeSet<u32>> = FxHashMap::default();
        for module in modules {
            let name = fold_indexes(snapshot.text(module.name));
            let Some(frame) = snapshot.stacks.frames(module.forward).first() else { continue };
            let frame = snapshot.stacks.frame(frame);
            if !name.ends_with(ITEM) {
                continue;
            }
            let id = *container_ids.entry(name).or_insert_with_key(|name| {
                containers.push(ModuleItems { name: name.clone(), count: 0 });
                to_u32(containers.len() - 1)
            });
            containers[id as usize].count += 1;
            classes.entry((frame.file, u64::from(frame.line), module.last_line)).or_default().insert(id);
        }
        let classes = classes.into_iter().sorted_unstable_by_key(|(place, _)| *place);
        let mut methods: FxHashMap<SymbolId, Vec<Method>> = FxHashMap::default();
        for (class, ((file, first_line, last_line), of_class)) in classes.enumerate() {
            // Calls of a class with items in several containers could be of any of these.
            if let (Some(container), 1) = (of_class.first(), of_class.len()) {
                let (container, class) = (*container, to_u32(class));
                methods.entry(file).or_default().push(Method { first_line, last_line, container, class });
            }
        }
        Self { methods, containers }
    }

    /// The `forward` that has this line.
    fn method_at(&self, file: SymbolId, line: u64) -> Option<Method> {
        let methods = self.methods.get(&file)?;
        let after = methods.partition_point(|method| method.first_line <= line);
        methods[..after].last().filter(|method| line <= method.last_line).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(class: Option<u32>, stack: u32) -> CallRequest {
        CallRequest { stack: StackId(stack), class }
    }

    fn ranges(stacks: &[u32]) -> Vec<Range<usize>> {
        split_into_calls(&stacks.iter().map(|stack| request(None, *stack)).collect::<Vec<_>>(), None)
    }

    /// The number of blocks of each module that is kept.
    fn kept_blocks(modules: &[&[&[u32]]]) -> Vec<usize> {
        let modules = modules.iter().map(|calls| RepeatedModule {
            line: None,
            items: None,
            passes: vec![(0, calls.iter().map(|blocks| (*blocks).into()).collect())],
        });
        drop_callers_of_loops(modules.collect()).iter().map(|module| module.blocks().count()).collect()
    }

    #[test]
    fn classes_and_the_number_of_modules_show_the_calls() {
        let [a, b] = [(0, [1, 2]), (1, [3, 4])].map(|(class, stacks)| stacks.map(|stack| request(Some(class), stack)));
        let alternating = [a, b, a, b].concat();
        assert_eq!(split_into_calls(&alternating, Some(4)), [0..2, 2..4, 4..6, 6..8]);
        assert_eq!(split_into_calls(&alternating, Some(6)), [0..2, 2..4, 4..6, 6..8], "the rest was not called");
        assert_eq!(split_into_calls(&[a, b, b, a].concat(), Some(4)), [0..2, 2..4, 4..6, 6..8]);
        let twice = [1, 2, 1, 3].map(|stack| request(Some(0), stack));
        assert_eq!(split_into_calls(&[twice, twice].concat(), Some(2)), [0..4, 4..8], "the same line again");
    }

    #[test]
    fn the_caller_of_a_loop_is_not_repeated() {
        let blocks: &[&[u32]] = &[&[0, 1], &[2, 3], &[4, 5]];
        assert_eq!(kept_blocks(&[&[&[0, 1], &[2, 3], &[4, 5, 6]], blocks]), [6], "6 is the head of the caller");
        let attention: &[&[u32]] = &[&[0], &[2], &[4]];
        assert_eq!(kept_blocks(&[blocks, attention]), [6, 3], "each block begins with its attention");
        assert_eq!(kept_blocks(&[blocks, &[&[1], &[3], &[5]]]), [6, 3]);
    }

    #[test]
    fn a_call_starts_where_stacks_repeat() {
        assert_eq!(ranges(&[1, 2, 3, 1, 2, 3, 1, 2, 3]), [0..3, 3..6, 6..9]);
        assert_eq!(ranges(&[1, 1, 2, 1, 1, 2]), [0..3, 3..6], "twice from one line");
        assert_eq!(ranges(&[1, 2, 1, 3, 1, 2, 1, 3]), [0..4, 4..8], "the same line again");
        assert_eq!(ranges(&[1, 2, 1, 3, 1, 2, 1, 3, 3]), [0..4, 4..9], "a workspace at this size");
        assert_eq!(ranges(&[1, 2, 3]).len(), 1);
        assert_eq!(ranges(&[1, 2, 1, 2, 4]), [0..2, 2..5], "one does more");
        assert_eq!(ranges(&[1, 2, 1, 1, 3, 1, 2, 1, 3]), [0..5, 5..9], "each ends with a sum, the first does more");
        assert!(ranges(&[]).is_empty());
    }
}
