//! No rule is inherited silently: whatever depends on a release asks the list of releases, and that ends with
//! the newest one that was recorded. Slow: the source of both crates is parsed.

use std::path::Path;

use oomscope::allocator::releases::{NEWEST, OLDEST};
use oomscope::base::warning::Code;
use oomscope::study::{Scope, Study};
use oomscope::whatif::verify_study;
use serde_json::{Value, json};

use crate::replay_bad_traces::read;
use crate::support::fixtures;
use crate::support::rust_source::sources;

/// Comparisons of a release with a number, in code that is not the list.
fn open_ended(code: &str) -> Vec<String> {
    let flat: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_number = |text: &str| text.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let mut found = Vec::new();
    for (at, _) in flat.match_indices("minor") {
        let rest = flat[at + "minor".len()..].trim_start();
        let sign = [">=", "<=", "==", "!=", ">", "<"].into_iter().find(|sign| rest.starts_with(sign));
        let is_compared = sign.is_some_and(|sign| is_number(&rest[sign.len()..]));
        if is_compared || (flat[..at].ends_with("match ") && rest.starts_with('{')) {
            found.push(flat[at..].chars().take(40).collect());
        }
    }
    found
}

#[test]
fn only_the_list_of_releases_compares_them() {
    for source in sources() {
        let path = &source.path;
        if path != "src/engine/allocator/releases.rs" && !path.contains("/tests") {
            let found = open_ended(&source.code);
            assert!(found.is_empty(), "{path}: {found:?}: ask crate::allocator::releases");
        }
    }
    for planted in ["minor >= 9", "if self.minor < 4 {", "match minor { ..=9 => 1, 10.. => 2 }"] {
        assert_eq!(open_ended(planted).len(), 1, "{planted}");
    }
    assert!(open_ended("minor <= known.minor && minor >= OLDEST").is_empty());
}

#[test]
fn the_newest_release_listed_is_the_newest_recorded() {
    let minors = fixtures::names()
        .into_iter()
        .map(|name| name.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).expect(&name));
    assert_eq!(minors.max(), Some(NEWEST));
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/conf");
    assert!((OLDEST..=NEWEST).all(|minor| {
        let of_minor = format!("2.{minor}.");
        std::fs::read_dir(&conf).unwrap().any(|file| file.unwrap().file_name().to_string_lossy().starts_with(&of_minor))
    }));
}

#[test]
fn stacks_with_lines_of_pytorch_show_the_release() {
    let mut exact = 0;
    for name in fixtures::names() {
        let snapshot = fixtures::study(&name).snapshot();
        let release = name.split('.').take(2).collect::<Vec<_>>().join(".");
        let told = snapshot.torch.to_string();
        let is_training = ["gpt", "conv", "oom_varlen"].iter().any(|kind| name.contains(kind));
        if is_training && !snapshot.stacks.is_empty() {
            assert_eq!(told, release, "{name}");
            exact += 1;
        }
    }
    assert!(exact >= 10, "{exact}");
}

/// One free block of a file with the keys of 2.9, and a stack with `line` of `_call_impl`.
fn with_line(line: u32) -> Value {
    let frame = json!({"name": "_call_impl", "filename": "/venv/torch/nn/modules/module.py", "line": line});
    let entry = |action: &str, size: u64| {
        json!({"action": action, "addr": 1u64 << 40, "size": size, "stream": 0,
        "time_us": 1, "compile_context": "N/A", "frames": [frame]})
    };
    json!({"segments": [{"device": 0, "address": 1u64 << 40, "total_size": 2 << 20, "stream": 0,
            "segment_type": "small", "segment_pool_id": [0, 0], "is_expandable": false,
            "blocks": [{"address": 1u64 << 40, "size": 512, "requested_size": 512, "state": "active_allocated"},
                {"address": (1u64 << 40) + 512, "size": (2 << 20) - 512, "requested_size": 0, "state": "inactive"}]}],
        "device_traces": [[entry("segment_alloc", 2 << 20), entry("alloc", 512)]], "external_annotations": [],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
            "graph_capture_record_stream_reuse": false}})
}

#[test]
fn lines_never_contradict_the_keys_silently() {
    for (line, warns) in [(1786, false), (1, false), (1750, true)] {
        let snapshot = read(&with_line(line));
        assert_eq!(snapshot.torch.to_string(), "2.9", "{line}");
        let told = verify_study(&Study::new(&snapshot, Scope::default()), "made by hand");
        assert_eq!(told.torch_version, "2.9");
        let unclear = told.warnings.iter().find(|w| w.code == Code::ReleaseUnclear);
        assert_eq!(unclear.is_some(), warns, "{line}");
        assert!(unclear.is_none_or(|w| w.message.contains("those of 2.6")), "{unclear:?}");
    }
}
