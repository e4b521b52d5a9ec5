//! `oomscope diff`: what it finds in programs whose changes are known.

use crate::support::fixtures;
use crate::support::made::{self, frames};
use crate::support::program::{file, json_of, refusal, result_of};
use oomscope::compare::diff::{
    ComparedMoment, DeviceDiff, DiffOptions, DiffReport, Figures, File, MatchedBy, Status, diff,
};
use oomscope::snapshot::Snapshot;
use oomscope::study::figures::Figure;
use serde_json::{Value, json};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn recorded(version: &str) -> String {
    format!("fixtures/diff/{version}.pickle.gz")
}

fn compared(before: &str, after: &str, args: &[&str]) -> Value {
    json_of(&[&["diff"], args, &[&recorded(before), &recorded(after)]].concat())
}

fn in_memory(before: &Value, after: &Value) -> DiffReport {
    let read = |value: &Value| Snapshot::read(value.to_string().as_bytes(), &|_| {}).unwrap();
    let (before, after) = (read(before), read(after));
    let named = |snapshot, path| File { snapshot, path };
    let options = DiffOptions { at: ComparedMoment::Snapshot, top: usize::MAX, ..DiffOptions::default() };
    diff(named(&before, "before"), named(&after, "after"), options)
}

/// A snapshot of blocks: device, MiB, frames. Addresses begin anew on each device.
fn snapshot(blocks: &[(u64, u64, Value)]) -> Value {
    let segment = |(index, (device, mib, frames)): (usize, &(u64, u64, Value))| {
        made::segment(*device, &[made::live((index as u64 + 1) << 32, mib * MIB, frames)])
    };
    let mut segments = Vec::new();
    for device in 0..4 {
        segments.extend(blocks.iter().filter(|(d, ..)| *d == device).enumerate().map(segment));
    }
    made::snapshot(&segments, &[])
}

#[test]
fn two_ranks_of_a_job_are_compared_by_the_device_that_each_uses() {
    let here = frames(&[("/app/train.py", 3, "train")]);
    let report = in_memory(&snapshot(&[(0, 100, here.clone())]), &snapshot(&[(1, 300, here.clone())]));
    let device = only(&report);
    assert_eq!((device.device, device.delta.change(Figure::Allocated)), (1, 200 << 20));
    // With more than one left it is not known which is which.
    let report = in_memory(&snapshot(&[(0, 100, here.clone())]), &snapshot(&[(1, 1, here.clone()), (2, 1, here)]));
    assert_eq!(report.devices.len(), 3);
}

fn only(report: &DiffReport) -> &DeviceDiff {
    assert_eq!(report.devices.len(), 1);
    &report.devices[0]
}

/// What became of the stacks, with MiB before and after.
fn changes(device: &DeviceDiff) -> Vec<(Status, u64, u64)> {
    let of = |s: &oomscope::compare::diff::StackChange| (s.status, s.held.before_bytes / MIB, s.held.after_bytes / MIB);
    device.stacks.iter().map(of).collect()
}

// Recorded programs

#[test]
fn a_buffer_is_found_at_its_line() {
    for at in ["peak", "end"] {
        let report = compared("base", "buffer", &["--at", at]);
        let device = &report["devices"][0];
        assert_eq!(device["delta"]["allocated_bytes"], 64 * MIB);
        assert_eq!(device["delta"]["peak_allocated_bytes"], 64 * MIB);
        assert_eq!(device["stacks"].as_array().unwrap().len(), 1);
        let line = &device["lines"][0];
        assert_eq!((&line["status"], &line["delta_bytes"]), (&json!("new"), &json!(64 * MIB)));
        let place = json!({"file": "/home/me/proj/model.py", "line": 20, "name": "__init__"});
        assert_eq!(line["frame"], place);
        assert_eq!(device["other_lines"]["delta_bytes"], 0);
        let said = report["summary"]["answer"].as_str().unwrap();
        assert!(said.contains("64 MiB (+") && said.contains("model.py:20 in __init__"), "{said}");
    }
}

/// One step more is no growth, neither at the peak nor at the end.
#[test]
fn a_step_more_is_no_growth() {
    for (before, after) in [("base", "later"), ("later", "base")] {
        for at in ["peak", "end"] {
            let report = compared(before, after, &["--at", at]);
            let device = &report["devices"][0];
            assert_eq!(device["steps"]["compared_steps"], 3);
            assert_eq!(device["delta"]["allocated_bytes"], 0, "{at}");
            assert_eq!(device["delta"]["peak_allocated_bytes"], 0, "{at}");
            assert_eq!(device["stacks"], json!([]));
        }
    }
    // The leak grows by 8 MiB a step, and so it does beside a recording that is a step longer.
    for before in ["base", "later"] {
        let report = compared(before, "leak", &[]);
        let device = &report["devices"][0];
        assert_eq!(device["delta"]["peak_allocated_bytes"], 24 * MIB);
    }
}

#[test]
fn moved_lines_are_no_change() {
    let report = compared("base", "moved", &[]);
    let device = &report["devices"][0];
    assert_eq!((&device["stacks"], &device["lines"]), (&json!([]), &json!([])));
    assert_eq!(device["other_stacks"]["count"], 9);
}

// Made-up programs

#[test]
fn growth_of_the_same_stack_is_growth() {
    let stack = frames(&[("/p/model.py", 88, "forward"), ("/p/train.py", 3, "<module>")]);
    let before = snapshot(&[(0, 4, stack.clone())]);
    let after = snapshot(&[(0, 4, stack.clone()), (0, 6, stack)]);
    let report = in_memory(&before, &after);
    let device = only(&report);
    assert_eq!(changes(device), [(Status::Grown, 4, 10)]);
    assert_eq!(device.stacks[0].matched_by, Some(MatchedBy::Content));
    assert_eq!((device.stacks[0].held.before_blocks, device.stacks[0].held.after_blocks), (1, 2));
    assert_eq!(
        report.summary().answer,
        "allocated at the snapshot grew 6 MiB (+150%) to 10 MiB, all of it from p/model.py:88 in forward"
    );
}

#[test]
fn devices_that_share_addresses_are_kept_apart() {
    let stack = |line| frames(&[("/p/model.py", line, "forward")]);
    let before = snapshot(&[(0, 4, stack(1)), (1, 8, stack(2))]);
    let after = snapshot(&[(0, 8, stack(1)), (1, 4, stack(2)), (2, 1, stack(1))]);
    let report = in_memory(&before, &after);
    let found: Vec<_> = report.devices.iter().map(changes).collect();
    assert_eq!(found, [[(Status::Grown, 4, 8)], [(Status::Shrunk, 8, 4)], [(Status::New, 0, 1)]]);
    assert!(report.devices[2].before.is_none());
    assert!(report.summary().answer.starts_with("GPU 0: "), "{:?}", report.summary());
    assert!(report.devices[2].summary.starts_with("only in the snapshot after"));
}

/// Of several stacks of the same functions each finds its own, and none is lost.
#[test]
fn stacks_of_the_same_functions_are_paired_in_order() {
    let stack = |line| frames(&[("/p/model.py", line, "forward"), ("/p/train.py", 9, "main")]);
    let before = snapshot(&[(0, 1, stack(10)), (0, 2, stack(11)), (0, 3, stack(12))]);
    let after = snapshot(&[(0, 1, stack(11)), (0, 2, stack(12)), (0, 7, stack(13)), (0, 3, stack(14))]);
    let report = in_memory(&before, &after);
    let device = only(&report);
    assert_eq!(changes(device), [(Status::New, 0, 7)]);
    assert_eq!(device.stacks[0].frames[0].line, 13);
    assert_eq!(device.lines.len(), 1);
    assert_eq!(device.other_lines.held.delta_bytes, 0);
}

#[test]
fn another_checkout_and_another_python_are_no_change() {
    let stack = |root: &str, python: &str, line| {
        frames(&[
            (&format!("{root}/venv/lib/{python}/site-packages/torch/nn/functional.py"), 20, "relu"),
            (&format!("{root}/proj/net/model.py"), line, "forward"),
            (&format!("{root}/proj/old/model.py"), 5, "forward"),
            (&format!("/usr/lib/{python}/contextlib.py"), 81, "inner"),
        ])
    };
    let before = snapshot(&[(0, 4, stack("/home/a", "python3.11", 7))]);
    let after = snapshot(&[(0, 5, stack("/builds/1", "python3.12", 9))]);
    let report = in_memory(&before, &after);
    let device = only(&report);
    assert_eq!(changes(device), [(Status::Grown, 4, 5)]);
    assert_eq!(device.stacks[0].matched_by, Some(MatchedBy::FileMoved));
    assert_eq!(device.stacks[0].moved_from.as_ref().unwrap()[1].line, 7);
    let line = &device.lines[0];
    assert_eq!(line.location.frame.as_ref().unwrap().file, "/builds/1/proj/net/model.py");
    assert_eq!(line.location.moved_from.as_ref().unwrap().file, "/home/a/proj/net/model.py");
}

/// Another function of the same name in a file that both programs have is another stack.
#[test]
fn lines_in_another_file_are_new_and_gone() {
    let stack = |file, name| frames(&[(file, 7, name), ("/p/train.py", 9, "main")]);
    let both = [(0, 1, stack("/p/a.py", "keep")), (0, 1, stack("/p/b.py", "keep"))];
    let before = snapshot(&[&both[..], &[(0, 8, stack("/p/a.py", "forward"))]].concat());
    let after = snapshot(&[&both[..], &[(0, 9, stack("/p/b.py", "forward"))]].concat());
    let report = in_memory(&before, &after);
    assert_eq!(changes(only(&report)), [(Status::New, 0, 9), (Status::Gone, 8, 0)]);
    // Not so where the other file is a new one: the function moved there.
    let after = snapshot(&[&both[..], &[(0, 9, stack("/p/c.py", "forward"))]].concat());
    let report = in_memory(&before, &after);
    assert_eq!(changes(only(&report)), [(Status::Grown, 8, 9)]);
}

/// Lines that cancel each other are both named: the net change is the difference.
#[test]
fn changes_larger_than_the_net_change_are_named_with_what_offsets_them() {
    let stack = |name: &str| frames(&[("/p/model.py", 7, name)]);
    let before = snapshot(&[(0, 100, stack("old")), (0, 5, stack("both"))]);
    let after = snapshot(&[(0, 122, stack("new")), (0, 5, stack("both"))]);
    let summary = only(&in_memory(&before, &after)).summary.clone();
    assert!(summary.contains("with +122 MiB at p/model.py:7 in new, -100 MiB at p/model.py:7 in old"), "{summary}");
    let after = snapshot(&[(0, 60, stack("new")), (0, 40, stack("other")), (0, 5, stack("both"))]);
    let summary = only(&in_memory(&before, &after)).summary.clone();
    assert!(summary.ends_with("is the same, 105 MiB, though 2 lines of code hold more and 1 less"), "{summary}");
}

/// Two releases that go other ways through PyTorch to the same line of the user's: the line tells.
#[test]
fn a_line_is_the_same_though_pytorch_below_it_is_not() {
    let torch = "/venv/site-packages/torch";
    let stack = |inner: &str| frames(&[(&format!("{torch}/nn/{inner}.py"), 1, inner), ("/p/model.py", 7, "forward")]);
    let before = snapshot(&[(0, 4, stack("linear"))]);
    let after = snapshot(&[(0, 5, stack("registry"))]);
    let report = in_memory(&before, &after);
    let device = only(&report);
    assert_eq!(changes(device), [(Status::New, 0, 5), (Status::Gone, 4, 0)]);
    assert_eq!(device.lines.len(), 1);
    assert_eq!((device.lines[0].status, device.lines[0].held.delta_bytes), (Status::Grown, MIB as i64));
}

/// A file without a trace has no peak: beside one that has, the snapshots are compared.
#[test]
fn a_peak_is_compared_only_with_a_peak() {
    let (without, with) = ("2.15.0-gpt_varlen-no-history", "2.15.0-gpt_varlen-late");
    let paths = [without, with].map(|name| format!("fixtures/{name}.pickle.gz"));
    let report = json_of(&["diff", &paths[0], &paths[1]]);
    let device = &report["devices"][0];
    assert_eq!((&report["at"], &device["at"]), (&json!("peak"), &json!("snapshot")));
    assert_eq!(device["before"]["allocated_bytes"], 0);
    assert_eq!(device["delta"]["allocated_bytes"], 0, "both end with nothing");
    let codes: Vec<_> = report["warnings"].as_array().unwrap().iter().map(|w| &w["code"]).collect();
    assert!(codes.contains(&&json!("no-peak")), "{codes:?}");
    let page = result_of(&["diff", &paths[0], &paths[1]]);
    let first = page.lines().next().unwrap();
    assert!(first.starts_with("allocated 0 B → 0 B (same)") && first.ends_with("at the snapshot"), "{page}");
    assert!(!page.contains("peak allocated"), "{page}");
}

// The command line

#[test]
fn changed_settings_are_listed() {
    let settings =
        json_of(&["diff", "fixtures/2.9.1-holes-at-oom.pickle.gz", "fixtures/2.15.0-holes-expandable.pickle.gz"]);
    let changed = settings["settings_changed"].as_array().unwrap();
    let keys: Vec<&str> = changed.iter().map(|change| change["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["torch_version", "settings_string", "expandable_segments"]);
    assert_eq!((&changed[2]["before"], &changed[2]["after"]), (&json!(false), &json!(true)));
}

#[test]
fn incomparable_files_are_refused_in_one_sentence() {
    let (base, directory) = (recorded("base"), TempDir::new().unwrap());
    let said = refusal(&["diff", &base, "no/such/file.pickle"]);
    assert!(said.contains("no/such/file.pickle"), "{said}");
    let said = refusal(&["diff", "no/such/file.pickle", &base]);
    assert!(said.contains("no/such/file.pickle"), "{said}");
    let said = refusal(&["diff", &base, "fixtures"]);
    assert!(said.contains("fixtures: holds several snapshots"), "{said}");
    let said = refusal(&["diff", "-", "-"]);
    assert!(said.contains("standard input"), "{said}");
    let said = refusal(&["diff", "--device", "7", &base, &base]);
    assert!(said.contains("GPU 7"), "{said}");
    let broken = file(&directory, "broken.pickle", b"\x80\x04}q");
    let said = refusal(&["diff", &base, &broken]);
    assert!(said.contains("broken.pickle"), "{said}");
    let named = file(&directory, "named.pickle", &fixtures::pickle("2.15.0-holes"));
    let said = refusal(&["diff", &base, &named, "-o", &named]);
    assert!(said.contains("would overwrite"), "{said}");
}

#[test]
fn the_documentation_lists_every_figure_as_the_catalogue_has_it() {
    let page = std::fs::read_to_string("docs/diff.md").unwrap();
    for (place, figure) in Figures::json_paths() {
        let row = format!("\n| `{place}` | {} |\n", figure.meaning());
        assert!(page.contains(&row), "docs/diff.md lacks {row}");
    }
}
