//! The layers of the chart are what each moment asked for by itself says.

use std::collections::BTreeMap;

use crate::support::fixtures;
use oomscope::analysis::{Options, analyze_study};
use oomscope::snapshot::Snapshot;
use oomscope::study::Study;
use oomscope::study::attribution::{Category, categorized_blocks};

/// Moments of each recording that are asked for one by one.
const ASKED: usize = 6;

/// Bytes that the layers of `snapshot` show, and those of another category than the moment itself says.
fn wrong(snapshot: &Snapshot) -> (u64, u64) {
    let options = Options { layers: true, ..Options::default() };
    let study = Study::new(snapshot, options.scope());
    let report = analyze_study(&study, "", 0, options);
    let (mut shown, mut wrong) = (0, 0);
    for (told, device) in report.devices.iter().zip(study.devices()) {
        let Some(over_time) = &told.timeline else { continue };
        let fullest = &over_time.peak_positions;
        let every = fullest.len().div_ceil(ASKED).max(1);
        for (bucket, applied) in fullest.iter().enumerate().skip(every / 2).step_by(every) {
            let Some(entry) = applied.checked_sub(1) else { continue };
            let mut asked: BTreeMap<Category, u64> = BTreeMap::new();
            for block in categorized_blocks(device, entry as usize) {
                *asked.entry(block.category).or_default() += block.bytes;
            }
            let layers: BTreeMap<Category, u64> =
                told.layers.iter().map(|layer| (layer.category, layer.bytes[bucket])).collect();
            let all: u64 = layers.values().sum();
            assert_eq!(all, asked.values().sum::<u64>(), "every block is in one layer");
            assert_eq!(all, over_time.samples.buckets()[bucket].max[1], "where most was allocated");
            let right: u64 =
                asked.iter().map(|(category, n)| (*n).min(layers.get(category).copied().unwrap_or(0))).sum();
            shown += all;
            wrong += all - right;
        }
    }
    (shown, wrong)
}

#[test]
fn a_layer_is_what_its_moment_says() {
    let (mut shown, mut wrong_in_all) = (0, 0);
    let newest = fixtures::names().into_iter().filter(|name| name.starts_with("2.15.0"));
    for name in newest.step_by(4) {
        let (all, wrong) = wrong(&fixtures::snapshot(&name));
        shown += all;
        wrong_in_all += wrong;
    }
    // What several blocks are together is told of those that are there at once.
    assert!(shown > 0 && wrong_in_all * 50 < shown, "{wrong_in_all} of {shown}");
}
