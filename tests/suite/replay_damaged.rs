//! Recordings that were damaged, and garbage: what is said of them at least adds up.
//! Slow: many damaged traces are replayed.

use std::sync::OnceLock;

use super::replay_bad_traces::{read, verify};
use crate::support::cases::{cases, random};
use crate::support::{garbage, plain_json};
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};
use oomscope::whatif::{Overrides, replay_with, run_model, verify_study};
use proptest::prelude::*;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// Everything that can be asked of a snapshot; what comes out must at least add up.
fn survives(snapshot: &Snapshot, settings: Option<oomscope::allocator::conf::Settings>) {
    let study = Study::new(snapshot, Scope::default());
    let report = verify_study(&study, "mutant");
    for device in &report.devices {
        let matched = device.events.matched.unwrap();
        assert!(matched <= device.events.recorded && matched <= device.events.predicted);
        let is_whole = matched == device.events.recorded && device.first_divergence.is_none();
        // One entry that is reproduced proves nothing.
        let proves = device.events.recorded > 1 || (device.events.recorded == 1 && !is_whole);
        assert_eq!(device.exact, proves.then_some(is_whole));
        if let Some(divergence) = &device.first_divergence {
            assert!(divergence.event <= device.events.recorded && !divergence.why.is_empty());
        }
        assert!(device.figures.peak_allocated_bytes <= device.figures.peak_reserved_bytes);
    }
    assert_eq!(run_model(&study).len(), report.devices.len());
    let overrides = Overrides {
        settings: settings.map(|settings| (settings, String::new())),
        capacity: Some(300 * MIB),
        minor: Some(9),
        gpu: None,
    };
    let (report, _) = replay_with(&study, "mutant", &overrides, true);
    for device in &report.devices {
        assert!(device.exact.is_none() && device.events.matched.is_none());
        // Without any entry, what was held may be too much by itself.
        let last = device.events.recorded.saturating_sub(1);
        assert!(device.ooms.iter().all(|oom| oom.event <= last));
    }
}

/// Recordings small enough to damage often, and the damage: where, what, and a number.
const DAMAGED: [&str; 8] = [
    "2.15.0-holes",
    "2.15.0-holes-expandable",
    "2.15.0-graphs",
    "2.15.0-mempool-expandable",
    "2.15.0-streams-lag",
    "2.1.2-streams-expandable-lag",
    "2.1.2-holes-at-oom",
    "2.15.0-two_devices",
];

fn originals() -> &'static Vec<Value> {
    static ORIGINALS: OnceLock<Vec<Value>> = OnceLock::new();
    ORIGINALS.get_or_init(|| DAMAGED.iter().map(|name| plain(name)).collect())
}

/// A recording as JSON, every stack as its innermost frame.
fn plain(name: &str) -> Value {
    let mut file = plain_json::recording(name);
    for entry in
        file["device_traces"].as_array_mut().unwrap().iter_mut().flat_map(|trace| trace.as_array_mut().unwrap())
    {
        entry["frames"].as_array_mut().into_iter().for_each(|frames| frames.truncate(1));
    }
    file
}

fn damage(file: &mut Value, (device, kind, at, to, number): (usize, u8, usize, usize, u64)) {
    let traces = file["device_traces"].as_array_mut().unwrap();
    let count = traces.len();
    let trace = traces[device % count].as_array_mut().unwrap();
    if trace.is_empty() {
        return;
    }
    let (at, to) = (at % trace.len(), to % trace.len());
    match kind {
        0 => trace.swap(at, to),
        1 => drop(trace.remove(at)),
        2 => {
            let copy = trace[at].clone();
            trace.insert(to, copy);
        }
        3 => trace[at]["size"] = json!(number),
        4 => trace[at]["addr"] = json!(number),
        5 => trace[at]["stream"] = json!(number),
        6 => trace[at]["action"] = trace[to]["action"].clone(),
        7 => trace.rotate_left(at),
        8 => drop(trace.drain(..at)),
        _ => {
            let addr = trace[at]["addr"].as_u64().unwrap_or(0);
            trace[to]["addr"] = json!(addr.wrapping_add(number % MIB));
        }
    }
}

proptest! {
    #![proptest_config(random(150))]

    #[test]
    fn damaged_recordings_are_survived(
        which in any::<prop::sample::Index>(),
        wounds in prop::collection::vec(
            (
                0..2usize,
                0..10u8,
                any::<usize>(),
                any::<usize>(),
                prop_oneof![Just(0), Just(u64::MAX), Just(1u64 << 61), 0..(40 * MIB), any::<u64>()],
            ),
            1..6,
        ),
    ) {
        let mut file = originals()[which.index(DAMAGED.len())].clone();
        wounds.into_iter().for_each(|wound| damage(&mut file, wound));
        survives(&read(&file), None);
    }

    #[test]
    fn garbage_is_survived(file in garbage::snapshot(), settings in garbage::settings()) {
        survives(&read(&file), Some(settings));
    }
}

/// A hole in a recording must show: no entry that matters can be lost unnoticed.
#[test]
fn a_lost_entry_shows() {
    for which in [0, 1] {
        let trace = originals()[which]["device_traces"][0].as_array().unwrap();
        let step = trace.len().div_ceil(cases(trace.len() as u64) as usize);
        for (at, entry) in trace.iter().enumerate().step_by(step) {
            if entry["action"] == "snapshot" {
                continue;
            }
            let mut file = originals()[which].clone();
            if at == 0 {
                assert_eq!(verify(&file).devices[0].exact, Some(true));
            }
            file["device_traces"][0].as_array_mut().unwrap().remove(at);
            let device = &verify(&file).devices[0];
            let is_whole = (device.exact, device.end_state_exact, device.start) == (Some(true), Some(true), "empty");
            assert!(!is_whole, "entry {at} of {} is not missed", DAMAGED[which]);
        }
    }
}
