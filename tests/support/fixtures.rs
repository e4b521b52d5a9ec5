//! The recorded snapshots of `fixtures/`.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use oomscope::analysis::{Options, SnapshotReport, analyze_study};
use oomscope::base::input::Source;
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The names of all recordings, without `.pickle.gz`, sorted.
pub fn names() -> Vec<String> {
    let names: Vec<String> = all_names().into_iter().filter(|name| !name.contains('/')).collect();
    assert!(names.len() >= 60, "only {} fixtures found", names.len());
    names
}

/// The same with those in folders.
pub fn all_names() -> Vec<String> {
    let mut folders = vec![String::new()];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(directory().join(&folder)).unwrap().map(Result::unwrap) {
            let name = folder.clone() + &entry.file_name().into_string().unwrap();
            match name.strip_suffix(".pickle.gz") {
                Some(name) => names.push(name.to_owned()),
                None if entry.path().is_dir() => folders.push(name + "/"),
                None => {}
            }
        }
    }
    names.sort();
    names
}

pub fn path(name: &str) -> PathBuf {
    directory().join(format!("{name}.pickle.gz"))
}

/// The recording, read.
pub fn snapshot(name: &str) -> Snapshot {
    Snapshot::read(&pickle(name), &|_| {}).unwrap_or_else(|e| panic!("{name} {e}"))
}

/// What is computed once for all tests, by name. Only those that need the same name wait for it.
pub struct Shared<T: 'static>(Mutex<BTreeMap<String, &'static OnceLock<T>>>);

impl<T> Shared<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub fn get(&self, name: &str, compute: impl FnOnce() -> T) -> &'static T {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = *cells.entry(name.to_owned()).or_insert_with(|| Box::leak(Box::default()));
        drop(cells);
        cell.get_or_init(compute)
    }
}

/// The recording with its facts.
pub fn study(name: &str) -> &'static Study<'static> {
    static STUDIES: Shared<Study<'static>> = Shared::new();
    STUDIES.get(name, || Study::new(Box::leak(Box::new(snapshot(name))), Scope::default()))
}

/// The analysis of the recording, with its ten largest rows.
pub fn report(name: &str) -> &'static SnapshotReport {
    static REPORTS: Shared<SnapshotReport> = Shared::new();
    REPORTS.get(name, || {
        let options = Options { top: 10, ..Options::default() };
        analyze_study(study(name), &format!("fixtures/{name}.pickle.gz"), 1 << 20, options)
    })
}

/// The pickle itself, decompressed.
pub fn pickle(name: &str) -> Vec<u8> {
    Source::open(&path(name)).unwrap_or_else(|e| panic!("{name} {e}")).to_vec()
}
