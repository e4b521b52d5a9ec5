//! Where the memory was: held against what recorded programs knew of it.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::pedantic, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use oomscope::analysis::{Category, Confidence, held_blocks};
use oomscope::replay::settings_in_effect;
use oomscope::snapshot::Snapshot;
use serde_json::Value;

fn read(path: &Path) -> Snapshot {
    use std::io::Read;
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_end(&mut bytes)
        .unwrap();
    Snapshot::read(&bytes, &|_| {}).unwrap()
}

#[test]
fn dump() {
    let dir = std::env::var("CATDIR").unwrap();
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.to_str().unwrap().ends_with(".truth.json"))
        .collect();
    names.sort();
    for truth_path in names {
        let stem = truth_path.to_str().unwrap().trim_end_matches(".truth.json").to_owned();
        let s = read(Path::new(&format!("{stem}.pickle.gz")));
        let settings = settings_in_effect(&s, None);
        println!("== {stem}");
        let truth: Value =
            serde_json::from_str(&std::fs::read_to_string(&truth_path).unwrap()).unwrap();
        for m in truth.as_array().unwrap() {
            let entry = m["entry"].as_u64().unwrap() as usize;
            let mut known: BTreeMap<u64, &str> = BTreeMap::new();
            for k in ["parameters", "gradients", "optimizer_state", "inputs", "activations"] {
                for p in m[k].as_array().unwrap() {
                    known.insert(p[0].as_u64().unwrap(), k);
                }
            }
            let mut table: BTreeMap<(Category, Confidence, &str), (u64, u64)> = BTreeMap::new();
            for b in held_blocks(&s, &settings, 0, entry) {
                let t = known.get(&b.address).copied().unwrap_or("-");
                let e = table.entry((b.category, b.confidence, t)).or_default();
                e.0 += b.bytes;
                e.1 += 1;
            }
            println!("  {} {entry}", m["name"]);
            for ((c, conf, t), (bytes, n)) in table {
                let ok = c.word().replace('-', "_") == t
                    || (t == "-" && matches!(c, Category::Temporaries | Category::Other));
                if !ok {
                    println!("      {:?}/{:?} is {t}: {n} blocks {bytes}", c, conf);
                }
            }
        }
    }
}
