//! The first things that somebody types, right or nearly so. Slow: many runs of the program.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;

use crate::support::fixtures;
use crate::support::page::base64_of;
use crate::support::program::{command, refusal, result_of, run};

const FAILED: &str = "fixtures/2.15.0-holes-at-oom.pickle.gz";
const STEPS: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
const OTHER: &str = "fixtures/diff/buffer.pickle.gz";
const SNAPSHOT: &str = "fixtures/2.15.0-holes.pickle.gz";
const LOG: &str = "fixtures/logs/2.15.0-capacity.log";

#[test]
fn a_file_alone_is_analyzed() {
    for options in [&[][..], &["--format", "json"]] {
        let with = |args: &[&str]| result_of(&[args, options].concat());
        assert_eq!(with(&[SNAPSHOT]), with(&["analyze", SNAPSHOT]));
    }
}

#[test]
fn a_word_that_is_neither_a_file_nor_a_command_is_refused() {
    let ran = run(&["no-such-thing"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("unrecognized subcommand"), "{}", ran.err);
    for path in ["snapsot.pickle", "./no/such/directory"] {
        let ran = run(&[path]);
        assert_eq!((ran.code, ran.err), (2, format!("oomscope: {path}: no such file\n")));
    }
}

#[test]
fn a_log_and_a_snapshot_each_name_the_other_command() {
    assert!(refusal(&["analyze", LOG]).contains("`oomscope explain` reads logs"));
    assert!(refusal(&["explain", SNAPSHOT]).contains("`oomscope analyze` reads snapshots"));
}

#[test]
fn a_package_gets_its_manual_page_and_completions() {
    let directory = TempDir::new().unwrap();
    result_of(&["generate", "man", directory.path().to_str().unwrap()]);
    for command in ["analyze", "diff", "check", "explain"] {
        let page = std::fs::read_to_string(directory.path().join(format!("oomscope-{command}.1"))).unwrap();
        assert!(page.contains(&format!("oomscope\\-{command}")) && page.contains("EXTRA"), "{command}");
        let others = ["fit", "plan", "replay"].map(|other| page.contains(&format!("oomscope\\-{other} \\-")));
        assert_eq!(others, [false; 3], "{command} has a page of its own");
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = result_of(&["generate", "completions", shell]);
        assert!(script.contains("max-peak-reserved"), "{shell}");
    }
    // The others complete no values.
    for shell in ["bash", "zsh", "fish"] {
        let script = result_of(&["generate", "completions", shell]);
        assert!(script.contains("rtx4090") && script.contains("failure"), "{shell} knows GPUs and positions");
    }
}

fn words(line: &str) -> Vec<String> {
    let place = |word: &str| word.replace("FILE", FAILED).replace("OTHER", OTHER);
    line.split_whitespace().map(place).collect()
}

/// Whether `arguments`, with FILE and OTHER for snapshots, run as `meant` does.
fn assert_same(arguments: &str, meant: &str) {
    let ran = |line: &str| {
        let words = words(line);
        run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (ran, expected) = (ran(arguments), ran(meant));
    assert_eq!((ran.code, ran.out), (expected.code, expected.out), "{arguments}: {}", ran.err);
}

#[test]
fn another_name_of_a_command_or_an_option_is_that_command_or_option() {
    for (typed, meant) in [
        ("stats FILE", "analyze FILE"),
        ("summary FILE", "analyze FILE"),
        ("leak FILE", "analyze FILE"),
        ("fragmentation FILE", "analyze FILE"),
        ("peak FILE", "analyze --at peak FILE"),
        ("compare FILE OTHER", "diff FILE OTHER"),
        ("FILE --json", "analyze --format json FILE"),
        ("--json FILE", "analyze --format json FILE"),
        ("analyze FILE --md", "analyze --format markdown FILE"),
        ("analyze --format=text FILE", "analyze FILE"),
        ("analyze FILE -n 3", "analyze --top 3 FILE"),
        ("analyze FILE --no-color", "analyze FILE"),
        ("analyze FILE --device cuda:0", "analyze --device 0 FILE"),
        ("analyze FILE --device=gpu0", "analyze --device 0 FILE"),
        ("analyze FILE --start 100 --end 900", "analyze --from 100 --to 900 FILE"),
        ("analyze FILE --at oom", "analyze --at failure FILE"),
        ("analyze FILE --gpu=t4", "analyze --capacity t4 FILE"),
        ("replay --gpu t4 FILE", "replay --capacity t4 FILE"),
        ("whatif --memory 40GiB --set a:1 FILE", "whatif --capacity 40GiB --set a:1 FILE"),
        ("export FILE --folded", "export FILE --format folded"),
        ("export FILE --format collapsed", "export FILE --format folded"),
        ("gate --max-ooms 0 FILE", "check --max-ooms 0 FILE"),
        ("version", "--version"),
        ("completions bash", "generate completions bash"),
        (
            "replay --set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True FILE",
            "replay --set expandable_segments:True FILE",
        ),
    ] {
        assert_same(typed, meant);
    }
}

#[test]
fn a_guess_that_may_mean_several_things_gets_one_line_with_the_right_command() {
    for (typed, right) in [
        ("FILE --html", "`oomscope report FILE -o report.html`"),
        ("analyze FILE --format html", "`oomscope report FILE -o report.html`"),
        ("FILE -o out.html", "`oomscope report SNAPSHOT -o out.html`"),
        ("report FILE -o out.pdf", "print it to PDF"),
        ("flamegraph FILE", "`oomscope export FILE --format folded | "),
        ("view FILE", "`oomscope explore FILE`"),
        ("serve FILE", "`oomscope report FILE -o report.html`"),
        ("plot FILE", "`oomscope report FILE -o report.html`"),
        ("python train.py --lr 1", "`oomscope run -- python train.py --lr 1`"),
        ("record python train.py", "`oomscope run -- python train.py`"),
        ("train.py", "`oomscope run -- python train.py`"),
        ("estimate python train.py", "`oomscope dry-run --gpu h100 -- python train.py`"),
        ("run --gpu t4 python train.py", "`oomscope dry-run --gpu t4 -- python train.py`"),
        ("fit --gpu t4 FILE", "`oomscope whatif --gpu t4 FILE`"),
        ("check --max-memory 3GiB FILE", "`--max-peak-reserved 3GiB`"),
        ("analyze --rank 0 fixtures/gate", "`oomscope analyze ranks/rank0.pickle`"),
        ("analyze --step 5 FILE", "`--at step:5`"),
        ("analyze FILE --csv", "`oomscope export FILE --format csv`"),
        ("export FILE --to svg", "`oomscope report FILE -o report.html`"),
        ("whatif FILE --expandable-segments", "`oomscope whatif --set expandable_segments:True FILE`"),
        ("diff --before FILE --after OTHER", "`oomscope diff FILE OTHER`"),
        ("gpus", "rtx4090"),
        ("man", "`oomscope generate man DIR`"),
        ("snapsht FILE", "`oomscope analyze FILE`"),
        ("analyse FILE", "'analyze'"),
        ("analyze FILE --formt json", "'--format'"),
    ] {
        let arguments = words(typed);
        let ran = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{typed}");
        let right = words(right).join(" ");
        let tips: Vec<&str> = ran.err.lines().filter(|line| line.contains(&right)).collect();
        assert_eq!(tips.len(), 1, "{typed}: {}", ran.err);
        assert!(!ran.err.contains("as a value"), "{typed}: {}", ran.err);
    }
}

/// Words that are hardly alike are not suggested: `record` is no `report`.
#[test]
fn a_suggestion_is_a_typo_away() {
    for word in ["listen", "woman", "planet", "frown"] {
        let ran = run(&[word]);
        assert!(ran.code == 2 && !ran.err.contains("similar"), "{word}: {}", ran.err);
    }
}

#[test]
fn a_file_is_taken_for_what_it_is() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let named = |text: &str, name: &str| text.replace(name, "NAME");
    let expected = named(&result_of(&["analyze", FAILED]), FAILED);
    // The page of memory_viz has the pickle as base64.
    let page = path("trace_plot.html");
    let script =
        format!("<script>x = [{{\"base64\": \"{}\"}}]</script>", base64_of(&fixtures::pickle("2.15.0-holes-at-oom")));
    std::fs::write(&page, format!("<!DOCTYPE html>\n{script}")).unwrap();
    assert_eq!(named(&result_of(&[&page]), &page), expected);
    // Standard input: a snapshot, and a log.
    for (file, command_name) in [(FAILED, "analyze"), (LOG, "explain")] {
        let ran = |args: &[&str]| {
            let file = std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
            command().args(args).stdin(Stdio::from(file)).output().unwrap().stdout
        };
        assert!(!ran(&["-"]).is_empty());
        assert_eq!(ran(&["-"]), ran(&[command_name, "-"]), "{file}");
    }
    // A message, and a directory of logs.
    let message = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    assert!(result_of(&[message]).starts_with("out of memory"));
    assert_eq!(result_of(&[message]), result_of(&["explain", message]));
    std::fs::create_dir(path("logs")).unwrap();
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(LOG), path("logs/rank0.log")).unwrap();
    assert_eq!(result_of(&[&path("logs")]), result_of(&["explain", &path("logs")]));
    // Two files are ranks, or what `diff` compares.
    let ran = run(&[FAILED, OTHER]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains(&format!("oomscope diff {FAILED} {OTHER}")), "{}", ran.err);
    assert_eq!(run(&["--format", "json", FAILED, OTHER]).err, "");
}

#[test]
fn a_size_without_a_unit_is_refused_where_it_cannot_be_meant() {
    for (args, advice) in [
        (&["check", "--max-peak-reserved", "3", FAILED][..], "3GiB"),
        (&["check", "--max-growth", "100", FAILED], "100B"),
        (&["analyze", "--request", "2", FAILED], "2GiB"),
        (&["whatif", "--capacity", "40", FAILED], "GiB"),
    ] {
        let ran = run(args);
        assert!(ran.code == 2 && ran.err.contains(advice), "{args:?}: {}", ran.err);
    }
    assert_eq!(run(&["check", "--max-peak-reserved", "3B", FAILED]).code, 1);
    assert_eq!(run(&["check", "--max-peak-reserved", "90000000000", FAILED]).code, 0);
}

#[test]
fn the_name_of_an_output_shows_its_format() {
    let directory = TempDir::new().unwrap();
    for (name, format) in [("a.json", "json"), ("a.md", "markdown"), ("a.jsonl", "jsonl"), ("a.txt", "human")] {
        let path = directory.path().join(name);
        result_of(&["analyze", FAILED, "-o", path.to_str().unwrap()]);
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written, result_of(&["analyze", FAILED, "--format", format]), "{name}");
    }
}

#[test]
fn a_step_is_a_position() {
    let at = |position: &str| {
        let json = result_of(&["analyze", "--format", "json", "--brief", "--at", position, STEPS]);
        serde_json::from_str::<serde_json::Value>(&json).unwrap()
    };
    let (fifth, sixth) = (at("step:5"), at("step:6"));
    assert_eq!((&fifth["at"], &fifth["step"], &sixth["step"]), (&"entry".into(), &5.into(), &6.into()));
    let next = fifth["event"].as_u64().unwrap() + 1;
    assert_eq!(at(&next.to_string())["step"], 6, "the entry after it begins the next step");
    assert!(refusal(&["analyze", "--at", "step:5000", STEPS]).contains("no trace shows a step 5000"));
}
