//! The rooms of both crates: which uses which, and what each file keeps to. Slow: the source of both crates is parsed.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::rust_source::{Source, sources};

/// Every room, after the rooms that it may use, with those that it does use.
const ROOMS: &str = "
    base:
    allocator: base
    snapshot:  base allocator
    python:    snapshot
    stacks:    base snapshot
    replay:    base allocator snapshot
    study:     base allocator snapshot python stacks replay
    whatif:    base allocator snapshot stacks replay study
    analysis:  base allocator snapshot python stacks replay study whatif
    compare:   base snapshot stacks replay study whatif analysis
    explain:   base allocator stacks
    output:    base allocator snapshot stacks replay study whatif analysis compare explain
    viewer:    base snapshot study analysis output
    explore:   base snapshot stacks study analysis output
    cli:       base allocator snapshot python stacks replay study whatif analysis compare explain output explore
";

/// The memory map, advice about pages, the driver, and what a browser calls.
const UNSAFE: &[&str] = &[
    "src/engine/base/input/mapped.rs",
    "src/engine/base/pages.rs",
    "src/engine/allocator/device/cuda/",
    "src/viewer/exports.rs",
];

/// The only places in which a word may appear in code: only the command line prints, exits and reads the environment.
const CONFINED: [(&str, &[&str]); 15] = [
    ("println", &["src/cli/", "src/main.rs"]),
    ("eprintln", &["src/cli/", "src/main.rs"]),
    ("print", &["src/cli/", "src/main.rs"]),
    ("eprint", &["src/cli/", "src/main.rs"]),
    ("dbg", &[]),
    ("stdout", &["src/cli/"]),
    ("stderr", &["src/cli/"]),
    ("env", &["src/cli/", "src/main.rs", "src/viewer/exports.rs"]),
    ("exit", &["src/cli/"]),
    ("clap", &["src/cli/"]),
    ("crossterm", &["src/cli/explore/"]),
    ("ratatui_core", &["src/explore/", "src/cli/explore/"]),
    ("comfy_table", &["src/output/document/terminal/"]),
    ("unsafe", UNSAFE),
    ("unsafe_code", UNSAFE),
];

const MAX_LINES: usize = 500;

fn rooms() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let rows = ROOMS.lines().filter_map(|row| row.trim().split_once(':'));
    rows.map(|(room, used)| (room, used.split_whitespace().collect()))
}

fn used_by(room: &str) -> Option<Vec<&'static str>> {
    rooms().find(|(name, _)| *name == room).map(|(_, used)| used)
}

/// The rooms and other items of the crate's root that `source` names, its own room aside.
fn arrows(source: &Source) -> BTreeSet<&str> {
    let roots = source.paths.iter().filter_map(|path| path.absolute.first());
    roots.filter(|root| source.module.first() != Some(root)).map(String::as_str).collect()
}

fn faults(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(room) = source.module.first() {
        match used_by(room) {
            None => faults.push(format!("the room {room} is not in the table")),
            Some(used) => faults.extend(
                arrows(source)
                    .into_iter()
                    .filter(|other| !used.contains(other))
                    .map(|other| format!("{room} may not use {other}")),
            ),
        }
    }
    for (word, places) in CONFINED {
        let is_confined = !places.iter().any(|place| source.path.starts_with(place));
        if is_confined && source.words().any(|(_, other)| other == word) {
            faults.push(format!("'{word}' may only appear in {places:?}"));
        }
    }
    if !source.text.starts_with("//! ") {
        faults.push("does not begin with a comment that describes it".to_owned());
    }
    let lines = source.text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!("{lines} lines, more than {MAX_LINES}"));
    }
    faults.iter().map(|fault| format!("{}: {fault}", source.path)).collect()
}

#[test]
fn every_file_keeps_to_its_room() {
    assert!(sources().len() > 50, "only {} files found", sources().len());
    let faults: Vec<String> = sources().iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_table_has_exactly_the_arrows_of_the_code() {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources() {
        if let Some(room) = source.module.first() {
            found.entry(room).or_default().extend(arrows(source));
        }
    }
    let mut above = Vec::new();
    for (room, used) in rooms() {
        let found = found.remove(room).unwrap_or_default();
        let found: Vec<&str> = above.iter().copied().filter(|other| found.contains(other)).collect();
        assert_eq!(found, used, "what {room} uses");
        above.push(room);
    }
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn the_drawings_in_lib_rs_and_in_docs_are_the_table() {
    let file = |path: &str| sources().iter().find(|source| source.path == path).unwrap();
    let (lib, engine) = (file("src/lib.rs"), file("src/engine/lib.rs"));
    let items = lib.code.split(';').chain(engine.code.split(';'));
    let declared: BTreeSet<&str> = items.filter_map(|item| item.split("mod ").nth(1)).collect();
    assert_eq!(declared, rooms().map(|(name, _)| name).collect());
    let mut drawn = BTreeMap::new();
    let mut number = 0;
    for line in lib.text.lines().map_while(|line| line.strip_prefix("//!")) {
        if line.trim_start().starts_with(&format!("{number}. ")) {
            number += 1;
        }
        let links = line.split("[`").skip(1).filter_map(|link| link.split_once("`]"));
        drawn.extend(links.map(|(room, _)| (room, number - 1)));
    }
    assert_eq!(drawn.len(), rooms().count(), "{drawn:?}");
    for (room, used) in rooms() {
        assert!(used.iter().all(|other| drawn[other] < drawn[room]), "{room} is drawn too low");
    }
    // | 0 | `base` | ..
    let page = std::fs::read_to_string("docs/architecture.md").unwrap();
    let cells = page.lines().map(|row| row.split('|').skip(1).map(str::trim).collect::<Vec<_>>());
    let rows = cells.filter_map(|cells| Some((cells.get(1)?.trim_matches('`'), cells[0].parse().ok()?)));
    assert_eq!(rows.collect::<BTreeMap<&str, i32>>(), drawn);
}

fn faults_of(path: &str, code: &str) -> String {
    faults(&Source::parse(path, &format!("//! Planted.\n{code}\n"))).join("\n")
}

#[test]
fn planted_faults_are_found() {
    let prints = "may only appear in";
    for (path, code, fault) in [
        ("src/engine/replay/mod.rs", "use crate::{base::units::{size, MIB}, cli};", "replay may not use cli"),
        ("src/engine/base/units.rs", "fn f() { println_to!(\"{}\", [crate::cli::run()]); }", "may not use cli"),
        ("src/engine/base/units.rs", "#[cfg(test)] mod tests { use crate::stacks::Stack; }", "may not use stacks"),
        ("src/attic/mod.rs", "", "not in the table"),
        ("src/analysis/mod.rs", "use std::env;", prints),
        ("src/engine/allocator/device/simulated.rs", "fn f() { unsafe {} }", prints),
    ] {
        assert!(faults_of(path, code).contains(fault), "{path}: {code}");
    }
    for (path, code) in [
        ("src/engine/replay/literal/mod.rs", "use crate::snapshot::TraceEntry; use crate::replay::Totals;"),
        ("src/engine/snapshot/mod.rs", "/// See [`crate::analysis`].\n// use crate::cli;\n/* crate::cli */ struct S;"),
        ("src/engine/base/units.rs", "const A: &str = r#\"println!(\"crate::cli\")\"#; const B: char = '\"';"),
        ("src/engine/base/units.rs", "pub(in crate::cli) struct S;"),
        ("src/engine/base/input/mapped.rs", "#![allow(unsafe_code)]\nfn f() { unsafe {} }"),
    ] {
        assert_eq!(faults_of(path, code), "", "{path}: {code}");
    }
}
