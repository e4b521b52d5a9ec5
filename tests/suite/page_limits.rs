//! A page stays small enough to open at once, and says what it leaves out.

use oomscope::analysis::{AnalyzeReport, Options, analyze_study};
use oomscope::output::document::markdown;
use oomscope::output::report;
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};
use serde_json::json;

use crate::linear::{BASE, MIB, segment};

#[test]
fn streams_beyond_a_hundred_are_counted() {
    let streams = |n: u64| {
        let segments: Vec<_> = (0..n).map(|i| segment(0, BASE + i * 256 * MIB, i, 0, &[(2 + i) * MIB])).collect();
        let snapshot = Snapshot::read(json!({ "segments": segments }).to_string().as_bytes(), &|_| ()).unwrap();
        let study = Study::new(&snapshot, Scope::default());
        let analysis = analyze_study(&study, "a", 0, Options { top: 10, ..Options::default() });
        markdown(&report::analyze(&AnalyzeReport::new(vec![analysis], Vec::new(), 10)).in_full())
    };
    let all = streams(100);
    assert!(all.contains("| 99 |") && !all.contains("others"), "{all}");
    let most = streams(120);
    assert!(most.contains("and 20 others, which reserve no more than these"), "{most}");
    assert!(most.contains("| 119 |") && !most.contains("| 19 |"), "the largest are listed: {most}");
}
