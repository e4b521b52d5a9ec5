//! The recorded snapshots of `fixtures/`.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::path::PathBuf;

use oomscope::base::input::Source;
use oomscope::snapshot::Snapshot;

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The names of all recordings, without `.pickle.gz`, sorted.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".pickle.gz").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 60, "only {} fixtures found", names.len());
    names
}

pub fn path(name: &str) -> PathBuf {
    directory().join(format!("{name}.pickle.gz"))
}

/// The recording, read.
pub fn snapshot(name: &str) -> Snapshot {
    Snapshot::read(&pickle(name), &|_| {}).unwrap_or_else(|e| panic!("{name} {e}"))
}

/// The pickle itself, decompressed.
pub fn pickle(name: &str) -> Vec<u8> {
    Source::open(&path(name)).unwrap_or_else(|e| panic!("{name} {e}")).to_vec()
}
