//! Common ids for the frames of two snapshots, and the functions whose file moved: another checkout, another virtual
//! environment, a renamed file.
//!
//! Only a function that occurs in one of the two snapshots can have moved. It matches the function of the same name
//! whose path has the longest common suffix (`/home/a/proj/model.py` and `/builds/1/proj/model.py`). For the rest the
//! file may have been renamed: a file that only one snapshot has matches the one with most function names in common.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::ids::{FrameId, StackId, SymbolId, to_u32};
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
                    to_u32(functions.len() - 1)
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

/// Index of a [`Function`] in the table.
type FunctionId = u32;

/// A function, identified by file and name.
#[derive(Debug, Clone, Copy)]
struct Function {
    file: SymbolId,
    name: SymbolId,
    /// Whether it occurs in the snapshot before, and in the one after.
    is_in: [bool; 2],
}

/// Longest path suffix that is compared, in components.
const MAX_SUFFIX_COMPONENTS: usize = 16;
/// A name shared by more functions than this on one side is no evidence for a renamed file.
const MAX_NAMESAKES: usize = 64;

/// For each function: itself, or the function that it moved from.
fn function_classes(functions: &[Function], symbols: &Symbols) -> Vec<FunctionId> {
    let mut moves = MoveFinder {
        functions,
        symbols,
        classes: (0..functions.len()).map(to_u32).collect(),
        unmatched: one_sided_functions(functions, symbols),
    };
    for depth in (1..=MAX_SUFFIX_COMPONENTS).rev() {
        moves.join_by_path_suffix(depth);
    }
    moves.join_renamed_files();
    moves.classes
}

/// The functions that occur only before, and those that occur only after, sorted by path and name.
fn one_sided_functions(functions: &[Function], symbols: &Symbols) -> [Vec<FunctionId>; 2] {
    [[true, false], [false, true]].map(|side| {
        let one_sided = (0..).zip(functions).filter(|(_, function)| function.is_in == side);
        let mut one_sided: Vec<(FunctionId, &Function)> = one_sided.collect();
        one_sided.sort_by_key(|(_, function)| (symbols.get(function.file), symbols.get(function.name)));
        one_sided.into_iter().map(|(id, _)| id).collect()
    })
}

/// The last `depth` components of `path`; `None` if it has fewer.
fn path_suffix(path: &str, depth: usize) -> Option<&str> {
    let mut slashes = path.rmatch_indices(['/', '\\']).map(|(at, _)| at + 1);
    let end = match slashes.nth(depth - 1) {
        Some(at) => path.get(at..),
        // The first component of a path has no slash before it.
        None if path.matches(['/', '\\']).count() + 1 == depth => Some(path),
        None => None,
    };
    end.filter(|end| !end.is_empty())
}

struct MoveFinder<'a> {
    functions: &'a [Function],
    symbols: &'a Symbols,
    classes: Vec<FunctionId>,
    /// One-sided functions without a match, for each side.
    unmatched: [Vec<FunctionId>; 2],
}

impl MoveFinder<'_> {
    fn function(&self, id: FunctionId) -> Function {
        self.functions[id as usize]
    }

    /// The unmatched functions with a `key`, by that and by side.
    fn group_unmatched<K: Ord>(&self, key: impl Fn(Function) -> Option<K>) -> BTreeMap<K, [Vec<FunctionId>; 2]> {
        let mut groups: BTreeMap<K, [Vec<FunctionId>; 2]> = BTreeMap::new();
        for (side, ids) in self.unmatched.iter().enumerate() {
            for id in ids {
                if let Some(key) = key(self.function(*id)) {
                    groups.entry(key).or_default()[side].push(*id);
                }
            }
        }
        groups
    }

    /// Joins functions of the same name whose paths agree in the last `depth` components.
    fn join_by_path_suffix(&mut self, depth: usize) {
        let groups = self
            .group_unmatched(|function| Some((path_suffix(self.symbols.get(function.file), depth)?, function.name)));
        let pairs: Vec<_> = groups.into_values().flat_map(|[before, after]| before.into_iter().zip(after)).collect();
        self.join(&pairs);
    }

    /// Joins the functions of renamed files.
    fn join_renamed_files(&mut self) {
        let files: [FxHashSet<SymbolId>; 2] = [0, 1].map(|side| {
            self.functions.iter().filter(|function| function.is_in[side]).map(|function| function.file).collect()
        });
        let mut shared: FxHashMap<(SymbolId, SymbolId), Vec<(FunctionId, FunctionId)>> = FxHashMap::default();
        for [before, after] in self.group_unmatched(|function| Some(function.name)).into_values() {
            if before.len().max(after.len()) > MAX_NAMESAKES {
                continue;
            }
            for b in &before {
                for a in &after {
                    let (from, to) = (self.function(*b), self.function(*a));
                    let is_in_both = [from.file, to.file].map(|file| files.iter().all(|files| files.contains(&file)));
                    if is_in_both != [true, true] {
                        shared.entry((from.file, to.file)).or_default().push((*b, *a));
                    }
                }
            }
        }
        let mut ranked: Vec<_> = shared.into_iter().collect();
        // Break ties by the unordered pair of paths, so that the reverse diff joins the same functions.
        ranked.sort_by_cached_key(|((from, to), pairs)| {
            let (from, to) = (self.symbols.get(*from), self.symbols.get(*to));
            (Reverse(pairs.len()), from.min(to).to_owned(), from.max(to).to_owned())
        });
        let mut taken = [FxHashSet::default(), FxHashSet::default()];
        let mut joined = Vec::new();
        for ((from, to), pairs) in ranked {
            if !taken[0].contains(&from) && !taken[1].contains(&to) {
                taken[0].insert(from);
                taken[1].insert(to);
                joined.extend(pairs);
            }
        }
        self.join(&joined);
    }

    fn join(&mut self, pairs: &[(FunctionId, FunctionId)]) {
        let mut joined = FxHashSet::default();
        for (before, after) in pairs {
            self.classes[*after as usize] = *before;
            joined.extend([*before, *after]);
        }
        for ids in &mut self.unmatched {
            ids.retain(|id| !joined.contains(id));
        }
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

    /// The files that functions moved from and to.
    fn moves(before: &[(&str, &str)], after: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut symbols = Symbols::default();
        let mut functions: Vec<Function> = Vec::new();
        for (side, list) in [before, after].into_iter().enumerate() {
            for (file, name) in list {
                let (file, name) = (symbols.intern(file), symbols.intern(name));
                let at = functions.iter().position(|f| (f.file, f.name) == (file, name));
                let at = at.unwrap_or_else(|| {
                    functions.push(Function { file, name, is_in: [false; 2] });
                    functions.len() - 1
                });
                functions[at].is_in[side] = true;
            }
        }
        let classes = function_classes(&functions, &symbols);
        let moved = (0..functions.len()).map(|id| [classes[id] as usize, id]).filter(|[class, id]| class != id);
        let moved = moved.map(|ids| ids.map(|id| symbols.get(functions[id].file).to_owned()));
        let mut moved: Vec<_> = moved.map(|[from, to]| (from, to)).collect();
        moved.sort();
        moved
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn another_checkout_matches_by_the_longest_path_suffix() {
        let before = [("/home/a/p/x/utils.py", "f"), ("/home/a/p/y/utils.py", "f")];
        let after = [("/builds/1/p/y/utils.py", "f"), ("/builds/1/p/x/utils.py", "f")];
        assert_eq!(
            moves(&before, &after),
            [
                pair("/home/a/p/x/utils.py", "/builds/1/p/x/utils.py"),
                pair("/home/a/p/y/utils.py", "/builds/1/p/y/utils.py")
            ]
        );
        assert_eq!(moves(&[("model.py", "f")], &[("src/model.py", "f")]).len(), 1);
    }

    #[test]
    fn a_renamed_file_matches_by_its_functions() {
        let before = [("/p/a.py", "f"), ("/p/a.py", "g"), ("/p/b.py", "f"), ("/p/b.py", "h")];
        let after = [("/p/c.py", "f"), ("/p/c.py", "h"), ("/p/d.py", "f"), ("/p/d.py", "g")];
        let expected = [
            pair("/p/a.py", "/p/d.py"),
            pair("/p/a.py", "/p/d.py"),
            pair("/p/b.py", "/p/c.py"),
            pair("/p/b.py", "/p/c.py"),
        ];
        assert_eq!(moves(&before, &after), expected);
    }

    #[test]
    fn functions_in_both_snapshots_did_not_move() {
        let before = [("/p/a.py", "f"), ("/p/b.py", "g")];
        let after = [("/p/a.py", "g"), ("/p/b.py", "f"), ("/p/a.py", "f"), ("/p/b.py", "g")];
        assert_eq!(moves(&before, &after), []);
        // Both files exist in both snapshots: one lost a function, the other gained one of that name.
        let before = [("/p/a.py", "f"), ("/p/a.py", "k"), ("/p/b.py", "k")];
        let after = [("/p/b.py", "f"), ("/p/a.py", "k"), ("/p/b.py", "k")];
        assert_eq!(moves(&before, &after), []);
    }

    #[test]
    fn path_suffixes_are_whole_components() {
        assert_eq!(path_suffix("/a/b/c.py", 1), Some("c.py"));
        assert_eq!(path_suffix("/a/b/c.py", 3), Some("a/b/c.py"));
        assert_eq!(path_suffix("c.py", 1), Some("c.py"));
        assert_eq!(path_suffix("c.py", 2), None);
        assert_eq!(path_suffix("a/c.py", 2), Some("a/c.py"));
        assert_eq!(path_suffix("", 1), None);
    }
}
