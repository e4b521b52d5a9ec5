//! No circles inside a room: of two files at most one uses the other, directly or by way of others.
//!
//! An arrow goes from a file to the file in which a name that it uses is defined; what a `mod.rs` hands on
//! by `pub use` is no arrow of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::rust_source::{Tree, code_of, paths_of};

/// Two files that are one `impl`, for length, or a thing and the handle to it: their arrows do not count.
const ONE_IMPL: &[(&str, &str)] =
    &[("replay::facts::tiling::free", "replay::facts::tiling::state"), ("study", "study::device")];

/// The modules of the crate, `a::b` each, with what their files use.
struct Modules {
    code: BTreeMap<String, String>,
    /// Of each module what its `use` declarations call what.
    names: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Modules {
    fn of(sources: &[(String, String)]) -> Self {
        let mut modules = Self { code: BTreeMap::new(), names: BTreeMap::new() };
        for (path, source) in sources {
            let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
            let inside = inside.trim_end_matches("/mod");
            if matches!(inside, "lib" | "main") || inside.split('/').any(|name| name == "tests") {
                continue;
            }
            let code = code_of(source);
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            modules.code.insert(inside.replace('/', "::"), code);
        }
        for (module, code) in &modules.code {
            let uses = paths_of(code).into_iter().filter(|tree| tree.declares);
            let names = uses.filter_map(|tree| Some((tree.name()?, modules.rooted(module, &tree))));
            modules.names.insert(module.clone(), names.collect());
        }
        modules
    }

    fn is_module(&self, path: &[String]) -> bool {
        self.code.contains_key(&path.join("::"))
    }

    /// The path from the root of the crate; as it is written where it is of another crate.
    fn rooted(&self, module: &str, tree: &Tree) -> Vec<String> {
        let mut at: Vec<String> = module.split("::").map(str::to_owned).collect();
        let mut path = tree.path.iter();
        let child = |name: &str| [at.as_slice(), &[name.to_owned()]].concat();
        match tree.path[0].as_str() {
            "crate" => {
                at.clear();
                path.next();
            }
            "self" => drop(path.next()),
            "super" => {
                while path.as_slice().first().is_some_and(|name| name == "super") {
                    at.pop();
                    path.next();
                }
            }
            name if self.is_module(&child(name)) => {}
            _ => at = vec!["::".to_owned()],
        }
        at.extend(path.cloned());
        at
    }

    /// The module in which what `path` names is defined.
    fn home(&self, path: &[String], depth: usize) -> Option<String> {
        let known = (1..=path.len()).rev().find(|end| self.is_module(&path[..*end]))?;
        let module = path[..known].join("::");
        let handed_on = path.get(known).and_then(|name| self.names[&module].get(name));
        match handed_on {
            Some(other) if depth < 8 => {
                let whole = [other.as_slice(), &path[known + 1..]].concat();
                self.home(&whole, depth + 1)
            }
            _ => Some(module),
        }
    }

    /// The modules of the same room that `module` uses.
    fn arrows(&self, module: &str) -> BTreeSet<String> {
        let room = |module: &str| module.split("::").next().unwrap().to_owned();
        let trees = paths_of(&self.code[module]).into_iter().filter(|tree| !tree.hands_on);
        let homes = trees.filter_map(|tree| self.home(&self.rooted(module, &tree), 0));
        homes.filter(|home| home != module && room(home) == room(module)).collect()
    }

    /// The rooms with circles, each with the modules that are on one.
    fn circles(&self, apart: &[(&str, &str)]) -> BTreeMap<String, BTreeSet<String>> {
        let counts =
            |from: &str, to: &str| !apart.contains(&(from, to)) && !apart.contains(&(to, from));
        let arrows: BTreeMap<&str, BTreeSet<String>> = self
            .code
            .keys()
            .map(|module| {
                let mut arrows = self.arrows(module);
                arrows.retain(|to| counts(module, to));
                (module.as_str(), arrows)
            })
            .collect();
        let mut circles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for module in self.code.keys() {
            let mut reached = BTreeSet::new();
            let mut open = vec![module.as_str()];
            while let Some(at) = open.pop() {
                for next in &arrows[at] {
                    if reached.insert(next.as_str()) {
                        open.push(next);
                    }
                }
            }
            if reached.contains(module.as_str()) {
                let room = module.split("::").next().unwrap().to_owned();
                circles.entry(room).or_default().insert(module.clone());
            }
        }
        circles
    }
}

#[test]
fn no_room_has_a_circle() {
    let modules = Modules::of(&crate::layers::sources());
    let circles = modules.circles(ONE_IMPL);
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn two_files_that_are_one_impl_use_each_other() {
    let modules = Modules::of(&crate::layers::sources());
    for (one, other) in ONE_IMPL {
        let mutual = modules.arrows(one).contains(*other) && modules.arrows(other).contains(*one);
        assert!(mutual, "{one} and {other}");
    }
}

#[test]
fn planted_circles_are_found_and_what_is_none_is_not() {
    let file = |path: &str, code: &str| (format!("src/{path}.rs"), code.to_owned());
    let circles = |files: &[(String, String)]| {
        Modules::of(files).circles(&[]).into_values().flatten().collect::<Vec<_>>()
    };
    let root = file("a/mod", "mod b; mod c; mod d; pub use b::{B, Other as More}; pub use c::C;");
    let d = file("a/d", "use super::{B, C}; struct D;");
    let one_way = file("a/b", "use super::C; struct B;");
    assert!(
        circles(&[root.clone(), one_way.clone(), file("a/c", "struct C;"), d.clone()]).is_empty()
    );
    for back in [
        "use super::B;",
        "use super::b::B;",
        "use super::{d, More};",
        "use crate::a::{b::{self, x}, d::D};",
        "fn f() -> crate::a::B { super::b::f() }",
        "use super::d::D;",
    ] {
        let (b, c) = (file("a/b", "use super::{C, d};"), file("a/c", back));
        assert!(circles(&[root.clone(), b, c, d.clone()]).contains(&"a::c".to_owned()), "{back}");
    }
    // A file that uses what its own folder defines, and the other way about.
    let up = file("a/b/mod", "mod e; use e::E; struct B;");
    let down = file("a/b/e", "use super::B; struct E;");
    assert_eq!(circles(&[root, up, down.clone()]), ["a::b", "a::b::e"]);
    let written_out = file("a/b/mod", "mod e; struct B; fn f() { e::f(); }");
    assert_eq!(circles(&[written_out, down]), ["a::b", "a::b::e"]);
    let seen = file("a/b/e", "pub(in crate::a::b) struct E;");
    assert!(circles(&[file("a/b/mod", "mod e; use e::E; struct B;"), seen]).is_empty());
    let test =
        file("a/c", "struct C;\n#[cfg(test)]\nmod tests {\nuse super::*; use crate::a::b::B; }");
    assert!(circles(&[one_way, test]).is_empty());
}
