//! No circles inside a room: of two files at most one uses the other, directly or by way of others, and likewise of two
//! folders.
//!
//! An arrow leads to the file that defines the name, wherever it is re-exported. A `pub use` is no arrow. Tests do not
//! count: they use whatever they test. Slow: the source of both crates is parsed.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::rust_source::{Source, sources};

/// A type and its handle, in two files: arrows between the two do not count.
const PAIRS: [(&str, &str); 1] = [("study", "study::device")];

type Names = [String];

/// Every module, with that of its file and with what its `use` declarations call what.
#[derive(Default)]
struct Modules<'s>(BTreeMap<&'s Names, (&'s Names, BTreeMap<&'s str, &'s Names>)>);

impl<'s> Modules<'s> {
    fn new(sources: &'s [Source]) -> Self {
        let mut modules = Self::default();
        for source in sources {
            let file = source.module.as_slice();
            modules.0.insert(file, (file, BTreeMap::new()));
            for path in &source.paths {
                let module = modules.0.entry(&path.scope).or_insert((file, BTreeMap::new()));
                if let Some(bound) = &path.bound {
                    module.1.insert(bound, &path.absolute);
                }
            }
        }
        modules
    }

    /// The file that defines what `path` names. Re-exports are followed at most `depth` times.
    fn home(&self, path: &Names, depth: usize) -> Option<&'s Names> {
        let known = (1..=path.len()).rev().find(|end| self.0.contains_key(&path[..*end]))?;
        let (file, names) = &self.0[&path[..known]];
        match path.get(known).and_then(|name| names.get(name.as_str())) {
            Some(other) if depth > 0 => self.home(&[*other, &path[known + 1..]].concat(), depth - 1),
            _ => Some(file),
        }
    }

    /// The files of the same room that `source` uses.
    fn arrows(&self, source: &Source) -> impl Iterator<Item = &'s Names> {
        let paths = source.paths.iter().filter(|path| !path.is_reexport && !path.is_test);
        let inside = paths.filter(|path| path.absolute.first() == source.module.first());
        inside.filter_map(|path| self.home(&path.absolute, 8))
    }
}

/// The files and folders that are on a circle, `pairs` aside.
fn on_circles(sources: &[Source], pairs: &[(&str, &str)]) -> BTreeSet<String> {
    let modules = Modules::new(sources);
    let uses = |source| modules.arrows(source).map(|used| (source.module.as_slice(), used));
    let uses: Vec<(&Names, &Names)> = sources.iter().flat_map(uses).collect();
    let deepest = sources.iter().map(|source| source.module.len()).max().unwrap_or(0);
    let mut found = BTreeSet::new();
    for depth in 2..=deepest {
        let shortened = |module: &Names| module[..depth.min(module.len())].join("::");
        let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (user, used) in &uses {
            let (user, used) = (shortened(user), shortened(used));
            let is_pair = |(a, b): &(&str, &str)| (user == *a && used == *b) || (user == *b && used == *a);
            if user != used && !pairs.iter().any(is_pair) {
                arrows.entry(user).or_default().insert(used);
            }
        }
        // A file that uses none that is left is on no circle.
        loop {
            let left: BTreeSet<String> = arrows.keys().cloned().collect();
            arrows.values_mut().for_each(|used| used.retain(|name| left.contains(name)));
            arrows.retain(|_, used| !used.is_empty());
            if arrows.len() == left.len() {
                break;
            }
        }
        for start in arrows.keys() {
            let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(at) = open.pop() {
                open.extend(arrows.get(at).into_iter().flatten().filter(|next| reached.insert(*next)));
            }
            if reached.contains(start) {
                found.insert(start.clone());
            }
        }
    }
    found
}

#[test]
fn no_room_has_a_circle() {
    assert_eq!(on_circles(sources(), &PAIRS), BTreeSet::new());
    for pair in PAIRS {
        let others: Vec<_> = PAIRS.into_iter().filter(|other| *other != pair).collect();
        assert!(on_circles(sources(), &others).contains(pair.0), "{pair:?} is no circle any more");
    }
}
