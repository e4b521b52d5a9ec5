//! What a file names is shown, and nothing that shows it acts on it: a CI runner, a terminal, a page in Markdown.

use crate::support::program::{file, run};
use oomscope::base::units::is_active;
use serde_json::json;
use tempfile::TempDir;

/// Names that mean something to somebody.
const NAMES: [&str; 6] = [
    "  ::error file=a.py::hello",
    "x ##[error]hello ##vso[task.complete]",
    "@octocat https://example.org www.example.org a@example.org",
    "\u{9b}2J\u{85}\u{90}",
    "\u{202e}gpj.\u{2066}x\u{200b}\u{feff}\u{ad}\u{e0041}",
    "a ::set-output name=x::y b",
];

const MIB: u64 = 1 << 20;

/// A snapshot with `names` wherever a file has names, and a failed request.
pub(super) fn snapshot(names: &[&str]) -> Vec<u8> {
    let start = 0x7f00_0000_0000_u64;
    let frames = |name: &str| json!([{"filename": name, "line": 3, "name": name}]);
    let size = 2 * MIB;
    let blocks = names.iter().zip(0..).map(|(name, at)| {
        json!({"address": start + at * size, "size": size, "requested_size": size,
            "state": "active_allocated", "frames": frames(name)})
    });
    let total = names.len() as u64 * size;
    let mut trace = vec![json!({"action": "segment_alloc", "addr": start, "size": total,
        "stream": 0, "time_us": 1, "frames": frames(names[0])})];
    trace.extend(names.iter().zip(0..).map(|(name, at)| {
        json!({"action": "alloc", "addr": start + at * size, "size": size, "stream": 0,
            "time_us": 2 + at, "frames": frames(name)})
    }));
    trace.push(json!({"action": "oom", "device_free": 0, "size": 9 * MIB, "stream": 0,
        "time_us": 99, "frames": frames(names[0]), "user_metadata": names[0]}));
    let annotations = names.iter().map(|name| json!({"device": 0, "stage": "START", "name": name, "time_us": 1}));
    let snapshot = json!({
        "segments": [{"device": 0, "address": start, "total_size": total, "stream": 0,
            "segment_type": "large", "is_expandable": false, "segment_pool_id": [0, 0],
            "frames": frames(names[0]), "blocks": blocks.collect::<Vec<_>>()}],
        "device_traces": [trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": names.join(" ")},
        "external_annotations": annotations.collect::<Vec<_>>(),
    });
    snapshot.to_string().into_bytes()
}

/// Every format of every command on `snapshot` and an empty one.
fn outputs(snapshot: &[u8]) -> Vec<(Vec<&'static str>, String)> {
    let directory = TempDir::new().unwrap();
    let hostile = file(&directory, "a.json", snapshot);
    let empty = json!({"segments": [], "device_traces": []}).to_string();
    let empty = file(&directory, "b.json", empty.as_bytes());
    let gate = ["check", "--max-gap-ratio", "0", "--max-ooms", "0", "--max-peak-allocated", "1B"];
    let mut all: Vec<(Vec<&'static str>, Vec<&str>)> = Vec::new();
    for format in ["human", "json", "markdown"] {
        for command in ["analyze", "replay", "whatif", "timeline"] {
            all.push((vec![command, "--format", format], vec![&hostile]));
        }
        all.push((vec!["diff", "--format", format], vec![&empty, &hostile]));
    }
    for format in ["human", "json", "markdown", "github", "junit", "sarif"] {
        all.push(([&gate[..], &["--format", format]].concat(), vec![&hostile]));
    }
    let broken = file(&directory, "`\n# a\u{1b}[2J.json", b"no snapshot");
    for format in ["human", "markdown"] {
        all.push((vec!["analyze", "--format", format], vec![&hostile, &broken]));
        all.push(([&gate[..], &["--format", format]].concat(), vec![&hostile, &broken]));
    }
    let said = |(args, files): (Vec<&'static str>, Vec<&str>)| {
        let ran = run(&[&args[..], &files].concat());
        assert!(!ran.out.is_empty(), "{args:?}: {}", ran.err);
        (args, format!("{}\n{}", ran.out, ran.err))
    };
    all.into_iter().map(said).collect()
}

#[test]
fn no_text_of_a_file_is_obeyed_in_any_format() {
    let is_ours = |line: &str| line.starts_with("::error ") && line.contains("title=");
    for (args, said) in outputs(&snapshot(&NAMES)) {
        for line in said.lines() {
            assert!(!line.trim().starts_with("::") || is_ours(line), "{args:?}: {line}");
            assert!(!line.starts_with("# a"), "{args:?}: {line}");
            for (at, _) in line.match_indices("##") {
                let rest = line[at + 2..].trim_start_matches(char::is_alphanumeric);
                assert!(!rest.starts_with('['), "{args:?}: {line}");
            }
            assert!(!line.chars().any(is_active), "{args:?}: {}", line.escape_unicode());
        }
        if args.contains(&"markdown") {
            let (mut is_code, mut fence) = (String::new(), false);
            for line in said.lines() {
                if line.starts_with("```") {
                    fence = !fence;
                } else if !fence {
                    // Every other piece between backquotes is code.
                    is_code.extend(line.split('`').step_by(2));
                }
            }
            for live in ["@octocat", "https://example", "www.example"] {
                assert!(!is_code.contains(live), "{args:?}: {is_code}");
            }
        }
    }
}

#[test]
fn long_names_are_cut_in_no_time() {
    let long: String = format!("/{}train.py", "very_long_directory/".repeat(20_000));
    for (args, said) in outputs(&snapshot(&[&long, "short", "::x"])) {
        let most = if args.contains(&"json") { 450_000 } else { 60_000 };
        assert!(said.len() < most, "{args:?}: {} bytes", said.len());
        // A page cuts what a line of its tables has no room for.
        let is_named = args[0] == "check" && !args.contains(&"human");
        assert!(!is_named || said.contains("(400,009"), "{args:?}: {said:.1500}");
    }
}
