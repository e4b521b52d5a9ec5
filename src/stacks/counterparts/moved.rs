//! Functions whose file moved: another checkout directory, another virtual environment, a renamed file.
//!
//! Only a function that one of the two snapshots never names, in any stack, can have moved. It moved to the
//! function of the same name whose path ends most alike (`/home/a/proj/model.py` to
//! `/builds/1/proj/model.py`). What is left is a renamed file: the one that has most functions of the same
//! names, where one of the two files is in one snapshot only.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::ids::SymbolId;
use crate::base::intern::Symbols;

/// Row of a (file, function name) in the vocabulary.
pub(super) type FunctionId = u32;

/// A (file, function name), and which of the two snapshots has it anywhere in its stacks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    pub(super) file: SymbolId,
    pub(super) name: SymbolId,
    pub(super) seen: [bool; 2],
}

/// Directories of a path that are looked at, from its end.
const DEPTH: usize = 16;
/// A name that more functions than this have on one side says nothing about a renamed file.
const COMMON: usize = 64;

/// For every function the one that stands for it: itself, or the one that it moved from.
pub(super) fn classes(functions: &[Function], symbols: &Symbols) -> Vec<FunctionId> {
    let mut moves = Moves {
        functions,
        symbols,
        classes: (0..functions.len()).map(crate::base::ids::row).collect(),
        left: one_sided(functions, symbols),
    };
    for depth in (1..=DEPTH).rev() {
        moves.by_ending(depth);
    }
    moves.by_name();
    moves.classes
}

/// The functions that only the one, and only the other, has, by path and name.
fn one_sided(functions: &[Function], symbols: &Symbols) -> [Vec<FunctionId>; 2] {
    [[true, false], [false, true]].map(|seen| {
        let of = |id: &FunctionId| functions.get(*id as usize);
        let mut ids: Vec<FunctionId> = (0..crate::base::ids::row(functions.len()))
            .filter(|id| of(id).is_some_and(|f| f.seen == seen))
            .collect();
        ids.sort_by_key(|id| of(id).map(|f| (symbols.get(f.file), symbols.get(f.name))));
        ids
    })
}

/// The last `depth` components of `path`, if it has as many.
fn ending(path: &str, depth: usize) -> Option<&str> {
    let mut slashes = path.rmatch_indices(['/', '\\']).map(|(at, _)| at + 1);
    let end = match slashes.nth(depth - 1) {
        Some(at) => path.get(at..),
        // The first component of a path has no slash before it.
        None if path.matches(['/', '\\']).count() + 1 == depth => Some(path),
        None => None,
    };
    end.filter(|end| !end.is_empty())
}

struct Moves<'a> {
    functions: &'a [Function],
    symbols: &'a Symbols,
    classes: Vec<FunctionId>,
    /// One-sided functions not yet found on the other side.
    left: [Vec<FunctionId>; 2],
}

impl Moves<'_> {
    fn function(&self, id: FunctionId) -> Option<Function> {
        self.functions.get(id as usize).copied()
    }

    /// Joins functions of one name whose paths have the last `depth` components in common.
    fn by_ending(&mut self, depth: usize) {
        let mut groups: BTreeMap<(&str, SymbolId), [Vec<FunctionId>; 2]> = BTreeMap::new();
        for (side, ids) in self.left.iter().enumerate() {
            for id in ids {
                let Some(function) = self.function(*id) else { continue };
                let Some(end) = ending(self.symbols.get(function.file), depth) else { continue };
                let sides = groups.entry((end, function.name)).or_default();
                if let Some(side) = sides.get_mut(side) {
                    side.push(*id);
                }
            }
        }
        let pairs: Vec<_> = groups
            .into_values()
            .flat_map(|[before, after]| before.into_iter().zip(after))
            .collect();
        self.join(&pairs);
    }

    /// Joins the functions of files that were renamed.
    fn by_name(&mut self) {
        let mut names: BTreeMap<SymbolId, [Vec<FunctionId>; 2]> = BTreeMap::new();
        for (side, ids) in self.left.iter().enumerate() {
            for id in ids {
                let Some(function) = self.function(*id) else { continue };
                if let Some(side) = names.entry(function.name).or_default().get_mut(side) {
                    side.push(*id);
                }
            }
        }
        let mut files: FxHashMap<SymbolId, [bool; 2]> = FxHashMap::default();
        for function in self.functions {
            let seen = files.entry(function.file).or_default();
            *seen = [seen[0] || function.seen[0], seen[1] || function.seen[1]];
        }
        let mut shared: FxHashMap<(SymbolId, SymbolId), Vec<(FunctionId, FunctionId)>> =
            FxHashMap::default();
        for [before, after] in names.into_values() {
            if before.len().max(after.len()) > COMMON {
                continue;
            }
            for b in &before {
                for a in &after {
                    let (Some(from), Some(to)) = (self.function(*b), self.function(*a)) else {
                        continue;
                    };
                    let stays = |file| files.get(&file) == Some(&[true, true]);
                    if !(stays(from.file) && stays(to.file)) {
                        shared.entry((from.file, to.file)).or_default().push((*b, *a));
                    }
                }
            }
        }
        let mut ranked: Vec<_> = shared.into_iter().collect();
        // Ties go by the two paths, whichever is which, so that a diff the other way round joins the same.
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
            if let Some(class) = self.classes.get_mut(*after as usize) {
                *class = *before;
                joined.extend([*before, *after]);
            }
        }
        for ids in &mut self.left {
            ids.retain(|id| !joined.contains(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which (file, name) of the second list each of the first became.
    fn moves(before: &[(&str, &str)], after: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut symbols = Symbols::default();
        let mut functions: Vec<Function> = Vec::new();
        for (side, list) in [before, after].into_iter().enumerate() {
            for (file, name) in list {
                let (file, name) = (symbols.intern(file), symbols.intern(name));
                let at = functions.iter().position(|f| (f.file, f.name) == (file, name));
                let at = at.unwrap_or_else(|| {
                    functions.push(Function { file, name, seen: [false; 2] });
                    functions.len() - 1
                });
                functions[at].seen[side] = true;
            }
        }
        let classes = classes(&functions, &symbols);
        let file = |id: usize| symbols.get(functions[id].file).to_owned();
        let moved = (0..functions.len()).filter(|id| classes[*id] as usize != *id);
        let mut moved: Vec<_> = moved.map(|id| (file(classes[id] as usize), file(id))).collect();
        moved.sort();
        moved
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn another_checkout_is_found_by_the_longest_common_ending() {
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
    fn a_renamed_file_is_found_by_its_functions() {
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
    fn what_both_have_did_not_move() {
        let before = [("/p/a.py", "f"), ("/p/b.py", "g")];
        let after = [("/p/a.py", "g"), ("/p/b.py", "f"), ("/p/a.py", "f"), ("/p/b.py", "g")];
        assert_eq!(moves(&before, &after), []);
        // Both files stay: one lost a function, the other gained one of that name.
        let before = [("/p/a.py", "f"), ("/p/a.py", "k"), ("/p/b.py", "k")];
        let after = [("/p/b.py", "f"), ("/p/a.py", "k"), ("/p/b.py", "k")];
        assert_eq!(moves(&before, &after), []);
    }

    #[test]
    fn endings_are_whole_components() {
        assert_eq!(ending("/a/b/c.py", 1), Some("c.py"));
        assert_eq!(ending("/a/b/c.py", 3), Some("a/b/c.py"));
        assert_eq!(ending("c.py", 1), Some("c.py"));
        assert_eq!(ending("c.py", 2), None);
        assert_eq!(ending("a/c.py", 2), Some("a/c.py"));
        assert_eq!(ending("", 1), None);
    }
}
