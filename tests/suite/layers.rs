//! The drawing in `src/lib.rs` is true: a room uses only rooms on lower floors, and each keeps to what
//! it may know.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::rust_source::{code_of, has_word, modules_named};

/// Every room and its floor.
const FLOORS: &[(&str, usize)] = &[
    ("base", 0),
    ("allocator", 1),
    ("snapshot", 2),
    ("stacks", 3),
    ("replay", 3),
    ("study", 4),
    ("whatif", 5),
    ("analysis", 6),
    ("compare", 7),
    ("explain", 7),
    ("output", 8),
    ("cli", 9),
];

/// Rooms that know less than all of what is below them.
const KNOWS_ONLY: &[(&str, &[&str])] =
    &[("stacks", &["base", "snapshot"]), ("explain", &["allocator", "base", "stacks"])];

/// Where alone a word may stand in code. Only the command line talks, exits and looks around.
const CONFINED: [(&str, &[&str]); 13] = [
    ("println", &["src/cli/", "src/main.rs"]),
    ("eprintln", &["src/cli/", "src/main.rs"]),
    ("print", &["src/cli/", "src/main.rs"]),
    ("eprint", &["src/cli/", "src/main.rs"]),
    ("dbg", &[]),
    ("stdout", &["src/cli/"]),
    ("stderr", &["src/cli/"]),
    ("env", &["src/cli/", "src/main.rs"]),
    ("exit", &["src/cli/"]),
    ("clap", &["src/cli/"]),
    ("comfy_table", &["src/output/document/terminal/"]),
    ("unsafe", &["src/base/input/mapped.rs", "src/allocator/device/cuda/"]),
    ("unsafe_code", &["src/base/input/mapped.rs", "src/allocator/device/cuda/"]),
];

const MAX_LINES: usize = 500;

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

/// The modules that lead to `path`, such as `["report", "page"]` of `src/report/page.rs`.
fn modules_of(path: &str) -> Vec<&str> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').filter(|name| !matches!(*name, "mod" | "lib" | "main")).collect()
}

/// The rooms that `source`, to stand at `path`, uses besides its own.
fn arrows(path: &str, source: &str) -> BTreeSet<String> {
    let modules = modules_of(path);
    let room = modules.first().copied().unwrap_or_default();
    let named = modules_named(&code_of(source), modules.len());
    named.into_iter().filter(|name| name != room && floor(name).is_some()).collect()
}

/// Everything that is wrong with `source`, were it to stand at `path`.
fn faults(path: &str, source: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let code = code_of(source);
    if let Some(room) = modules_of(path).first().copied() {
        let own = floor(room);
        if own.is_none() {
            faults.push(format!("{path}: the room {room} has no floor"));
        }
        for other in arrows(path, source) {
            if floor(&other) >= own {
                faults.push(format!("{path}: {room} may not use {other}, which is not below it"));
            }
            if let Some((_, known)) = KNOWS_ONLY.iter().find(|(name, _)| *name == room)
                && !known.contains(&other.as_str())
            {
                faults.push(format!("{path}: {room} may not know {other}"));
            }
        }
    }
    for (word, places) in CONFINED {
        if has_word(&code, word) && !places.iter().any(|place| path.starts_with(place)) {
            faults.push(format!("{path}: '{word}' may only stand in {places:?}"));
        }
    }
    if !source.starts_with("//! ") {
        faults.push(format!("{path}: does not begin by saying what it is"));
    }
    let lines = source.lines().count();
    if lines > MAX_LINES {
        faults.push(format!("{path}: {lines} lines, more than {MAX_LINES}"));
    }
    faults
}

/// Every source file: its path from the root of the repository with slashes, and its text.
pub fn sources() -> Vec<(String, String)> {
    fn gather(directory: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gather(&path, files);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    gather(&root.join("src"), &mut files);
    files.sort();
    let relative = |path: &PathBuf| {
        path.strip_prefix(root).unwrap().to_str().unwrap().replace(std::path::MAIN_SEPARATOR, "/")
    };
    files.iter().map(|path| (relative(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_file_keeps_to_its_floor_its_knowledge_and_its_length() {
    let sources = sources();
    assert!(sources.len() > 50, "only {} files found", sources.len());
    let faults: Vec<String> =
        sources.iter().flat_map(|(path, source)| faults(path, source)).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_rooms_with_floors_are_exactly_those_of_the_crate() {
    let (_, lib) = sources().into_iter().find(|(path, _)| path == "src/lib.rs").unwrap();
    let declared: BTreeSet<String> = code_of(&lib)
        .split(';')
        .filter_map(|item| item.trim().rsplit_once("mod ").map(|(_, name)| name.to_owned()))
        .collect();
    assert_eq!(declared, FLOORS.iter().map(|(name, _)| (*name).to_owned()).collect());
    for (name, floor) in FLOORS {
        let (_, own) = lib.split_once(&format!("\n//! {floor}. ")).unwrap();
        let next = format!("\n//! {}. ", floor + 1);
        let own = own.split_once(&next).map_or(own, |(own, _)| own);
        assert!(
            own.contains(&format!("[`{name}`]")),
            "{name} is not on floor {floor} of the drawing"
        );
    }
}

// The checker itself

fn verdict(path: &str, code: &str) -> String {
    faults(path, &format!("//! Planted.\n{code}\n")).join("\n")
}

#[test]
fn a_planted_upward_import_is_found() {
    for (path, code) in [
        ("src/replay/facts/tiling/state.rs", "use crate::study::memory::Memory;"),
        ("src/replay/facts/tiling/state.rs", "use crate::{base, output::report::Style};"),
        ("src/replay/model/mod.rs", "use crate::{\n    base::units::{size, MIB},\n    cli,\n};"),
        ("src/snapshot/decode/mod.rs", "fn f() -> crate::replay::facts::Tiling { todo!() }"),
        ("src/snapshot/decode/mod.rs", "use super::super::replay::facts::Tiling;"),
        ("src/base/units.rs", "use super::super::allocator::conf::Settings;"),
        ("src/base/units.rs", "use crate::snapshot;"),
        ("src/allocator/size.rs", "use crate::snapshot::Block;"),
        ("src/explain/mod.rs", "use crate::snapshot::Snapshot;"),
        ("src/output/report/table.rs", "use crate :: cli :: run;"),
    ] {
        assert!(verdict(path, code).contains("may not"), "{path}: {code}");
    }
}

#[test]
fn what_is_allowed_is_not_found() {
    for (path, code) in [
        (
            "src/replay/facts/tiling/state.rs",
            "use crate::snapshot::TraceEntry; use crate::replay::facts::Totals;",
        ),
        ("src/snapshot/decode/mod.rs", "use super::super::keys; use super::records;"),
        (
            "src/snapshot/mod.rs",
            "/// See [`crate::analysis`].\n// use crate::cli;\n/* crate::cli */",
        ),
        (
            "src/base/units.rs",
            "const A: &str = \"crate::cli \\\" crate::report\"; const B: char = '\"';",
        ),
        ("src/base/units.rs", "const A: &str = r#\"println!(\"crate::cli\")\"#;"),
        ("src/base/units.rs", "fn f<'a>(x: &'a str) -> &'a str { x } // println!"),
        ("src/cli/exit.rs", "use std::io::stderr; use crate::output; use crate::base::input;"),
        ("src/base/input/mapped.rs", "#![allow(unsafe_code)]\nfn f() { unsafe {} }"),
        ("src/allocator/device/cuda/driver.rs", "#![allow(unsafe_code)]\nfn f() { unsafe {} }"),
    ] {
        assert_eq!(verdict(path, code), "", "{path}: {code}");
    }
}

#[test]
fn planted_talk_exits_and_unsafe_code_are_found() {
    for (path, code) in [
        ("src/output/report/page.rs", "fn f() { println!(\"x\"); }"),
        ("src/replay/model/mod.rs", "fn f() { eprintln!(\"x\"); }"),
        ("src/replay/model/mod.rs", "fn f() { std::process::exit(1); }"),
        ("src/analysis/mod.rs", "use std::env;"),
        ("src/analysis/mod.rs", "fn f() { std::env::var(\"X\"); }"),
        ("src/output/report/mod.rs", "use std::io::stdout;"),
        ("src/allocator/conf/mod.rs", "use clap::Parser;"),
        ("src/cli/mod.rs", "fn f() { dbg!(1); }"),
        ("src/snapshot/pickle/machine.rs", "fn f() { unsafe {} }"),
        ("src/snapshot/pickle/machine.rs", "#[allow(unsafe_code)] fn f() {}"),
        ("src/allocator/device/simulated.rs", "fn f() { unsafe {} }"),
    ] {
        assert!(verdict(path, code).contains("may only stand in"), "{path}: {code}");
    }
}

#[test]
fn planted_length_namelessness_and_homelessness_are_found() {
    let long = "//! Planted.\n".repeat(MAX_LINES + 1);
    assert!(faults("src/base/units.rs", &long)[0].contains("501 lines"));
    assert!(faults("src/base/units.rs", "use std::fmt;\n")[0].contains("saying what it is"));
    assert!(verdict("src/attic/mod.rs", "").contains("has no floor"));
}
