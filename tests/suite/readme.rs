//! README's commands, run with the files that they name, by the program of these tests or by that of README's own
//! install command (`OOMSCOPE_README_PROGRAM`, set by `.ci/release`). Slow: many runs of the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::support::program::result_of;
use crate::support::python::has_python;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const OOM: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
/// README names them without a snapshot.
const UNFINISHED: [&str; 4] = ["replay --set expandable_segments:True", "whatif", "whatif --program", "timeline"];
/// They need more than README's build: a PyTorch with CUDA, a terminal, or the feature `cuda`.
const ELSEWHERE: [&str; 4] = ["dry-run", "explore", "fit", "plan"];

/// A directory with the files of README's commands.
fn project() -> TempDir {
    let project = TempDir::new().unwrap();
    let place = |name: &str| project.path().join(name);
    let copy = |from: &str, to: &str| std::fs::copy(Path::new(ROOT).join(from), place(to)).unwrap();
    for directory in ["ranks", "runs"] {
        std::fs::create_dir(place(directory)).unwrap();
    }
    for snapshot in ["snapshot.pickle", "before.pickle", "after.pickle", "ranks/rank0.pickle"] {
        copy(OOM, snapshot);
    }
    copy("fixtures/2.15.0-holes.pickle.gz", "ranks/rank1.pickle");
    copy("fixtures/sizes/2.15.0-dense-4.pickle.gz", "b8");
    copy("fixtures/sizes/2.15.0-dense-8.pickle.gz", "b16");
    copy("fixtures/logs/ranks.log", "train.log");
    std::fs::write(place("train.py"), "import torch\n").unwrap();
    let line = result_of(&["analyze", "--format", "jsonl", OOM]);
    let mut run: serde_json::Value = serde_json::from_str(&line).unwrap();
    let week = (0..14).map(|day| {
        run["time_us"] = json!(1_700_000_000_000_000_u64 + day * 86_400_000_000);
        format!("{run}\n")
    });
    std::fs::write(place("runs/week.jsonl"), week.collect::<String>()).unwrap();
    project
}

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// Each `oomscope ..` in README's sentences and tables, without its name.
fn commands() -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let spans = readme.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.strip_prefix("oomscope ")).map(str::to_owned).collect()
}

#[test]
fn every_command_of_readme_works() {
    let program =
        std::env::var_os("OOMSCOPE_README_PROGRAM").map_or(env!("CARGO_BIN_EXE_oomscope").into(), PathBuf::from);
    let project = project();
    let mut ran = Vec::new();
    for command in commands() {
        let mut args = words(&command);
        let name = args[0].clone();
        let is_alone = args.len() == 1 && !UNFINISHED.contains(&&*command);
        if is_alone || ELSEWHERE.contains(&&*name) || (name == "run" && !has_python()) {
            args = vec![name.clone(), "--help".to_owned()];
        }
        if UNFINISHED.contains(&&*command) {
            args.push("snapshot.pickle".to_owned());
        }
        let args: Vec<&str> = args.iter().map(|arg| if arg == "python" { "python3" } else { arg }).collect();
        let output = Command::new(&program)
            .args(&args)
            .current_dir(project.path())
            .env("PYTHONPATH", Path::new(ROOT).join("tests/python/fake"))
            .output()
            .unwrap();
        // A limit that does not hold ends with 1.
        let accepted = if name == "check" { 0..=1 } else { 0..=0 };
        let code = output.status.code().unwrap_or(-1);
        assert!(accepted.contains(&code), "oomscope {args:?}: {code}: {}", String::from_utf8_lossy(&output.stderr));
        ran.push(name);
    }
    assert!(ran.len() > 12 && ran.iter().any(|name| name == "analyze"), "{ran:?}");
}
