//! The entries that the page of `oomscope report` lists are those of the file, with the stacks that PyTorch recorded.
//! Slow: a browser draws many pages.

use oomscope::snapshot::{Action, Snapshot, Stacks, TraceEntry};
use serde_json::json;

use crate::report_page::KINDS;
use crate::support::browser::Browser;
use crate::support::fixtures;

fn word(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::Snapshot => "snapshot",
        Action::Oom => "oom",
        Action::Other => "other",
    }
}

/// The frames of an entry as the page writes them.
fn frames(snapshot: &Snapshot, entry: &TraceEntry) -> Vec<String> {
    let frame = |id| {
        let frame = snapshot.stacks.frame(id);
        format!("{}:{} {}", snapshot.text(frame.file), frame.line, snapshot.text(frame.name))
    };
    snapshot.stacks.frames(entry.stack).iter().map(frame).collect()
}

/// Compares the entries of the recordings: how many have frames to compare, and how many of those are frees with stacks.
fn compare(names: &[&str]) -> [usize; 2] {
    let (mut frees_with_stacks, mut seen) = (0, 0);
    let Some(mut browser) = Browser::start() else { return [usize::MAX; 2] };
    for name in names {
        let snapshot = fixtures::study(name).snapshot();
        browser.report(&[name], "");
        let rows = browser.value("JSON.parse(document.getElementById('pages').textContent)");
        for (index, row) in rows.as_array().unwrap().iter().enumerate() {
            browser.value(&format!("oomscope.show({{ page: {index} }})"));
            let device = snapshot.device(row["device"].as_u64().unwrap());
            let entries = device.len();
            let step = (entries / 400).max(1);
            let chosen: Vec<usize> = (0..entries).step_by(step).chain(device.failed_requests()).collect();
            let listed = browser.value(&format!("{}.map((at) => oomscope.entry(at + 1))", json!(chosen)));
            let mut allocated_by = std::collections::HashMap::new();
            let mut stack_before = vec![Stacks::EMPTY; entries];
            for (at, entry) in device.entries().enumerate() {
                if entry.action == Action::Alloc {
                    allocated_by.insert(entry.addr, entry.stack);
                }
                stack_before[at] = allocated_by.get(&entry.addr).copied().unwrap_or(Stacks::EMPTY);
            }
            for (at, listed) in chosen.iter().zip(listed.as_array().unwrap()) {
                let entry = device.entry(*at);
                let what = format!("{name}, entry {at}: {listed}");
                assert_eq!(listed["action"], word(entry.action), "{what}");
                if matches!(entry.action, Action::Other | Action::Snapshot) {
                    continue;
                }
                assert_eq!(listed["bytes"], entry.size, "{what}");
                assert_eq!(listed["stream"], entry.stream.to_string(), "{what}");
                if entry.action != Action::Oom {
                    assert_eq!(listed["address"], format!("{:#x}", entry.addr), "{what}");
                }
                let is_free = matches!(entry.action, Action::FreeRequested | Action::FreeCompleted);
                if is_free && (entry.stack == stack_before[*at] || entry.action == Action::FreeCompleted) {
                    continue; // the page has the stack of the free itself, if it is another one
                }
                let wanted = frames(snapshot, &entry);
                let listed: Vec<String> = serde_json::from_value(listed["frames"].clone()).unwrap();
                assert!(listed.starts_with(&wanted), "{what}\n{wanted:?}"); // callers of other threads follow
                seen += 1;
                frees_with_stacks += usize::from(is_free && !wanted.is_empty());
            }
        }
    }
    [seen, frees_with_stacks]
}

#[test]
fn entries_are_those_of_the_file() {
    let [seen, frees_with_stacks] = compare(&KINDS[..4]);
    assert!(frees_with_stacks > 20 && seen > 500, "{frees_with_stacks} frees with stacks, {seen} entries");
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn entries_of_every_other_kind_are_those_of_the_file() {
    let [seen, frees_with_stacks] = compare(&KINDS[4..]);
    assert!(frees_with_stacks > 20 && seen > 500, "{frees_with_stacks} frees with stacks, {seen} entries");
}
