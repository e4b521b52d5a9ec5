//! CPython's own unpickler is the judge: what `pickle.load` makes of a file is what we read.
//!
//! One `python3` process writes 500 random trees and some chosen ones in every protocol, by the C
//! pickler and by the one in Python, and reads them and the fixtures back; the canonical JSON of
//! both sides must be the same. The small fixtures it writes anew in every protocol, and each must
//! give the same snapshot as the recording.

use crate::support::cases::cases;
use crate::support::{describe, fixtures};
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use crate::support::pickle_tree::Tree;
use crate::support::python::has_python;
use oomscope::snapshot::Snapshot;

const SEED: &str = "20250729";
const TREES: u64 = 500;
/// Longer JSON is not compared: shared stacks are written out each time.
const MOST: usize = 600_000;

struct Oracle(BufReader<ChildStdout>);

impl Oracle {
    fn field(&mut self) -> Vec<u8> {
        let mut length = [0; 8];
        self.0.read_exact(&mut length).expect("the oracle ended early: see its error above");
        let mut field = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
        self.0.read_exact(&mut field).unwrap();
        field
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.field()).unwrap()
    }
}

/// Our JSON of `pickle` and CPython's, which must be equal.
fn compare(name: &str, pickle: &[u8], theirs: &str) {
    let tree = Tree::read(pickle).unwrap_or_else(|error| panic!("{name}: {error}"));
    let ours = tree.to_json(usize::MAX).unwrap();
    if ours != theirs {
        let at = ours.bytes().zip(theirs.bytes()).take_while(|(a, b)| a == b).count();
        let near = |json: &str| {
            let bytes = json.as_bytes();
            let part = bytes.get(at.saturating_sub(60)..bytes.len().min(at + 60));
            String::from_utf8_lossy(part.unwrap_or_default()).into_owned()
        };
        panic!(
            "{name}: they differ from character {at} of {} on\n  ours:    ...{}...\n  CPython: ...{}...",
            theirs.len(),
            near(&ours),
            near(theirs)
        );
    }
}

/// The name of the fixture at `path`.
fn fixture_of(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap();
    name.strip_suffix(".pickle.gz").unwrap()
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn every_tree_and_every_fixture_reads_as_cpython_reads_it() {
    if !has_python() {
        eprintln!("python3 (3.8 or later) is missing: the comparison with CPython was skipped");
        return;
    }
    let support = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support");
    let (names, trees) = (fixtures::names(), cases(TREES));
    let mut child = Command::new("python3")
        .arg("-B")
        .arg(support.join("reader_oracle.py"))
        .args([SEED, &trees.to_string(), &MOST.to_string()])
        .args(names.iter().map(|name| fixtures::path(name)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut oracle = Oracle(BufReader::with_capacity(1 << 20, child.stdout.take().unwrap()));
    let mut compared = BTreeMap::<String, usize>::new();
    let mut last = String::new();
    loop {
        let (name, pickle, json) = (oracle.text(), oracle.field(), oracle.text());
        if name == "end" {
            break;
        }
        if let Some(name) = name.strip_prefix("snapshot ") {
            let (path, way) = name.split_once(' ').unwrap();
            let expected = describe::describe(&describe::read(&fixtures::pickle(fixture_of(path))));
            let snapshot = Snapshot::read(&pickle, &|_| ()).unwrap_or_else(|e| panic!("{name} {e}"));
            assert_eq!(describe::describe(&snapshot), expected, "{name}");
            *compared.entry(format!("snapshot {way}")).or_default() += 1;
            continue;
        }
        if pickle.is_empty() {
            if !json.is_empty() {
                let fixture = fixture_of(&name);
                compare(fixture, &fixtures::pickle(fixture), &json);
                *compared.entry("fixture".to_owned()).or_default() += 1;
            }
            continue;
        }
        if !json.is_empty() {
            last = json;
        }
        compare(&name, &pickle, &last);
        // "tree 17 protocol 4 C pickler"
        let way = name.splitn(3, ' ').nth(2).unwrap();
        *compared.entry(way.to_owned()).or_default() += 1;
    }
    assert!(child.wait().unwrap().success());

    let count = |way: &str| compared.get(way).map_or(0, |count| *count as u64);
    assert!(count("fixture") >= 40, "{compared:?}");
    for protocol in 0..=5 {
        // Bytes and sets need later protocols; large trees are not written in every way.
        let minimum = trees * if protocol < 3 { 7 } else { 8 } / 10;
        for pickler in ["C pickler", "Python pickler"] {
            let way = format!("protocol {protocol} {pickler}");
            assert!(count(&way) >= minimum, "{way}: {compared:?}");
        }
        for pickler in ["optimized", "without memo"] {
            let way = format!("protocol {protocol} {pickler}");
            assert!(count(&way) >= trees / 10, "{way}: {compared:?}");
        }
        for pickler in ["C pickler", "Python pickler", "optimized", "without memo"] {
            let way = format!("snapshot protocol {protocol} {pickler}");
            assert!(count(&way) >= 15, "{way}: {compared:?}");
        }
    }
}
