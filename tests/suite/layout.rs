//! The memory laid out at a moment of the literal replay is what a snapshot of that moment shows.

use crate::support::fixtures;
use oomscope::replay::literal::{Layout, LiteralReplay, Tracking};
use oomscope::snapshot::{BlockState, Segment, Snapshot};

/// Everything about a segment but the stack that allocated it, which no trace tells in all cases.
fn described(snapshot: &Snapshot, segment: &Segment, blocks: &[oomscope::snapshot::Block]) -> String {
    let blocks: Vec<_> = blocks[segment.blocks.clone()]
        .iter()
        .map(|b| {
            let stale = b.state == BlockState::Inactive;
            (b.address, b.size, if stale { 0 } else { b.requested_size }, b.state)
        })
        .collect();
    format!(
        "{:?}",
        (
            segment.device,
            segment.address,
            segment.total_size,
            segment.stream,
            segment.is_small,
            segment.is_expandable,
            snapshot.pools.get(segment.pool),
            blocks
        )
    )
}

#[test]
fn the_last_moment_is_the_snapshot() {
    let mut compared = 0;
    for name in fixtures::names() {
        let study = fixtures::study(&name);
        let (snapshot, settings) = (study.snapshot(), study.settings());
        for device in snapshot.devices().filter(|device| !device.is_empty()) {
            let (mut last, entries) = (Layout::default(), device.len());
            let literal = LiteralReplay { device, settings, settings_changes: &[] };
            let outcome = literal.run(Tracking::Totals, |step| {
                if step.at.is_none_or(|(index, _)| index + 1 == entries) {
                    last = Layout::from_tiling(step.tiling, device.id());
                }
            });
            assert_eq!((outcome.contradictions, outcome.end_differences), (0, 0), "{name}");
            let mut expected: Vec<&Segment> = device.segments().collect();
            expected.sort_by_key(|segment| segment.address);
            let expected: Vec<String> = expected.iter().map(|s| described(snapshot, s, &snapshot.blocks)).collect();
            let found: Vec<String> = last.segments.iter().map(|s| described(snapshot, s, &last.blocks)).collect();
            assert_eq!(found, expected, "{name}, device {}", device.id());
            compared += 1;
        }
    }
    assert!(compared > 60, "only {compared} traces compared");
}
