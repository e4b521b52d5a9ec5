//! Calls of closed libraries, whose memory a dry run estimates: workspaces, reserves, and what has no size.

use serde_json::{Value, json};

use super::dry_run::{MIB, recording, report_and_page};

/// A workspace of `mib` at a time, on device 0.
fn workspace(time_us: u64, mib: u64) -> Value {
    json!([time_us, 0, 0, mib * MIB, 0])
}

#[test]
fn workspaces_of_cudnn_make_a_range() {
    let mut convolved = recording(&json!([]), 3, false);
    convolved["oomscope"]["dry_run"]["workspaces"] =
        json!([workspace(500_000, 900), workspace(2_000_000, 300), workspace(2_500_000, 200)]);
    let (report, page) = report_and_page(&convolved);
    let dry_run = &report["dry_run"];
    assert_eq!(dry_run["certainty"], "lower-bound");
    let range = &dry_run["ranges"][0];
    assert_eq!(range["reserved_bytes"], json!({ "least": 100 * MIB, "most": 100 * MIB }));
    let with = &range["with_workspaces"];
    assert_eq!(with["calls"], 3);
    assert_eq!(with["largest_bytes"], 900 * MIB);
    // The largest came before anything was held; the request and the next one are served of what it left.
    assert_eq!(with["allocated_bytes"], 900 * MIB);
    assert_eq!(with["reserved_bytes"], json!({ "least": 900 * MIB, "most": 900 * MIB }));
    assert_eq!(with["failing_placements"], 0);
    assert!(page.contains("would fit on NVIDIA A10 (dry run)"), "{page}");
    assert!(page.contains("(dry run): up to 900 MiB of 21.8 GiB, 20.9 GiB headroom"), "{page}");
    assert!(page.contains("with estimates GPU 0 peaks at 900 MiB reserved, and every request succeeds"), "{page}");
}

#[test]
fn a_refused_workspace_fails_nothing() {
    let mut convolved = recording(&json!([]), 1, false);
    convolved["oomscope"]["dry_run"]["workspaces"] = json!([workspace(2_000_000, 30_000)]);
    let (report, page) = report_and_page(&convolved);
    let with = &report["dry_run"]["ranges"][0]["with_workspaces"];
    assert_eq!((&with["failing_placements"], &with["allocated_bytes"]), (&json!(0), &json!(100 * MIB)));
    assert!(page.contains("would fit on NVIDIA A10 (dry run)"), "{page}");
    // Attention has nothing to fall back on.
    convolved["oomscope"]["dry_run"]["workspaces"][0][4] = json!(1);
    let (report, page) = report_and_page(&convolved);
    let range = &report["dry_run"]["ranges"][0];
    assert_eq!(range["with_workspaces"]["failing_placements"], range["placements"]);
    assert!(page.contains("may fit on NVIDIA A10 (dry run)"), "{page}");
    assert!(page.contains("and a request fails"), "{page}");
}

/// 100 MiB of 1,400 MiB fit beside the context; beside two communicators of 560 MiB, they may.
#[test]
fn nccl_takes_memory_too() {
    for (communicators, verdict, outside_mib, headroom_mib) in [(0, "would-fit", 260, 1_040), (2, "may-fit", 1_380, 0)]
    {
        let mut distributed = recording(&json!([]), 0, false);
        let dry_run = &mut distributed["oomscope"]["dry_run"];
        dry_run["total_bytes"] = json!(1_400 * MIB);
        dry_run["communicators"] = json!(communicators);
        let (report, page) = report_and_page(&distributed);
        let dry_run = &report["dry_run"];
        assert_eq!(dry_run["verdict"], verdict, "{page}");
        assert_eq!(dry_run["nccl_bytes"], communicators * 560 * MIB);
        assert!(page.contains(&format!("{} outside PyTorch", size_of_mib(outside_mib))), "{page}");
        assert!(headroom_mib == 0 || page.contains(&format!("{} headroom", size_of_mib(headroom_mib))), "{page}");
    }
}

fn size_of_mib(mib: u64) -> String {
    if mib < 1_024 { format!("{mib} MiB") } else { format!("{:.2} GiB", mib as f64 / 1_024.0) }
}

#[test]
fn attention_alone_has_estimates() {
    let mut attended = recording(&json!([]), 0, false);
    let dry_run = &mut attended["oomscope"]["dry_run"];
    dry_run["unsized"]["attention"] = json!(1);
    let required = |time_us: u64, mib: u64| json!([[time_us, 0, 0, mib * MIB, 1]]);
    dry_run["workspaces"] = required(2_000_000, 30);
    let (report, _) = report_and_page(&attended);
    let report = report.to_string();
    assert!(report.contains("workspaces (1 call): they are not in these figures, a GPU needs more; with"), "{report}");
    // Memory that is free again serves it.
    attended["oomscope"]["dry_run"]["workspaces"] = required(3_500_000, 30);
    let (report, _) = report_and_page(&attended);
    assert_eq!(report["dry_run"]["certainty"], "lower-bound");
    assert!(report.to_string().contains("peaks at 100 MiB reserved, and every request succeeds"), "{report}");
    // Nothing serves it: PyTorch has no other plan.
    attended["oomscope"]["dry_run"]["workspaces"] = required(2_000_000, 30_000);
    let (_, page) = report_and_page(&attended);
    assert!(page.contains("only cuDNN knows the sizes of its workspaces (1 call)"), "{page}");
    assert!(page.contains("and a request fails"), "{page}");
}

#[test]
fn memory_that_outlives_a_call_is_a_larger_request() {
    let mut recurrent = recording(&json!([]), 1, false);
    let row = |least_mib: u64| json!([[900_000, 0, 0, 150 * MIB, 1, least_mib * MIB]]);
    recurrent["oomscope"]["dry_run"]["workspaces"] = row(100);
    let with = |recording: &Value| report_and_page(recording).0["dry_run"]["ranges"][0]["with_workspaces"].clone();
    assert_eq!(with(&recurrent)["allocated_bytes"], 150 * MIB);
    // No request has that size.
    recurrent["oomscope"]["dry_run"]["workspaces"] = row(99);
    assert_eq!(with(&recurrent)["allocated_bytes"], 100 * MIB);
}

#[test]
fn calls_of_several_libraries_have_estimates() {
    let mut several = recording(&json!([]), 1, false);
    let dry_run = &mut several["oomscope"]["dry_run"];
    dry_run["unsized"]["cufft"] = json!(1);
    dry_run["workspaces"] = json!([workspace(2_000_000, 10), workspace(2_000_001, 300)]);
    let (_, page) = report_and_page(&several);
    assert!(page.contains("would fit on NVIDIA A10 (dry run)"), "{page}");
    assert!(page.contains("(dry run): up to 410 MiB of 21.8 GiB, 21.4 GiB headroom"), "{page}");
    assert!(page.contains("only cuDNN and cuFFT know the sizes of their workspaces (2 calls)"), "{page}");
    several["oomscope"]["dry_run"]["unsized"]["cusparse"] = json!(1);
    let (_, page) = report_and_page(&several);
    assert!(page.contains("may fit on NVIDIA A10 (dry run)"), "{page}");
    assert!(page.contains("the workspaces of the other 1 call are unknown"), "{page}");
}

#[test]
fn calls_of_cudnn_without_a_size_leave_a_bound() {
    let mut mixed = recording(&json!([]), 5, false);
    mixed["oomscope"]["dry_run"]["workspaces"] = json!([workspace(2_000_000, 10), [1, 2], "x"]);
    let (_, page) = report_and_page(&mixed);
    assert!(page.contains("may fit on NVIDIA A10 (dry run)"), "{page}");
    assert!(page.contains("the workspaces of the other 4 calls are unknown"), "{page}");
}
