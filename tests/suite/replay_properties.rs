//! The literal replay is exact where it can be, and bounded where it cannot.
//!
//! Random programs run on a reference allocator; what it records is replayed and held against what it
//! counted. Then random entries that no allocator would record. Slow: random traces are replayed.

use crate::support::cases::random;
use crate::support::describe::read;
use crate::support::reference::{Reference, Step, program, snapshot_bytes};
use crate::support::{garbage, reference, window};
use oomscope::allocator::conf::Settings;
use oomscope::analysis::{AnalyzeReport, Options, analyze};
use oomscope::output::document::{Style, markdown, terminal};
use oomscope::output::formats;
use oomscope::output::report;
use oomscope::replay::literal::{LiteralOutcome, LiteralReplay, Tiling, Totals, Tracking, recorded_settings};
use oomscope::snapshot::Snapshot;
use oomscope::study::{SERIES_ALLOCATED, SERIES_RESERVED, Scope, Window};
use proptest::prelude::*;
use serde_json::json;

const MIB: u64 = 1 << 20;

fn window() -> impl Strategy<Value = Window> {
    prop_oneof![
        Just(Window::default()),
        (0..50u64).prop_map(window::last),
        (0..10u32).prop_map(window::around_failure),
        any::<[Option<u8>; 2]>()
            .prop_map(|ends| ends.map(|end| end.map(u64::from)))
            .prop_map(|[from, to]| window::between(from, to)),
    ]
}

/// The sums that hold whatever the file says.
fn is_sound(tiling: &Tiling) -> Result<(), String> {
    let Totals { reserved, allocated, active, .. } = tiling.totals();
    let sum = |of: fn(&oomscope::replay::literal::StreamPool) -> u64| tiling.stream_pools().iter().map(of).sum::<u64>();
    if !(allocated <= active && active <= reserved) {
        return Err(format!("{:?}", tiling.totals()));
    }
    if (sum(|h| h.free), sum(|h| h.pending)) != (reserved - active, active - allocated) {
        return Err(format!("{:?} in {:?}", tiling.stream_pools(), tiling.totals()));
    }
    Ok(())
}

/// The totals at the start and after every entry, and what the replay came to.
fn replay(snapshot: &Snapshot, device: u64, settings: &Settings) -> (Vec<Totals>, LiteralOutcome) {
    let mut totals = Vec::new();
    let mut unsound = None;
    let outcome = LiteralReplay { device: snapshot.device(device), settings, settings_changes: &[] }.run(
        Tracking::Totals,
        |step| {
            totals.push(step.tiling.totals());
            if let Err(what) = is_sound(step.tiling) {
                unsound.get_or_insert((step.at.map(|(index, _)| index), what));
            }
        },
    );
    assert_eq!(unsound, None, "at an entry the sums are unsound");
    (totals, outcome)
}

/// Replays what `program` records from entry `cut` on: the totals at the start, and the outcome.
fn rebuilt(program: &[Step], cut: usize) -> (Totals, LiteralOutcome) {
    let reference = Reference::run(program);
    let snapshot = read(&snapshot_bytes(&[(&reference, cut)]));
    let (totals, outcome) = replay(&snapshot, 0, &recorded_settings(&snapshot));
    assert_eq!(totals.last(), reference.after.last());
    (totals[0], outcome)
}

const fn alloc(bytes: u64) -> Step {
    Step::Alloc { bytes, side_stream: false }
}

#[test]
fn a_block_that_pends_at_the_end_has_its_final_size_from_the_start_on() {
    // Free space of 2 MiB is given whole to a request for 1.5 MiB; then nothing stands behind it.
    let program = [
        alloc(2 * MIB),
        alloc(2 * MIB),
        Step::Free { which: 0 },
        alloc(3 * MIB / 2),
        Step::Free { which: 1 },
        Step::FreeWhileUsed { which: 0 },
    ];
    let events = Reference::run(&program).events.len();
    let (start, outcome) = rebuilt(&program, events - 1);
    assert_eq!((start.allocated, outcome.end_differences), (2 * MIB, 0));
}

#[test]
fn an_allocation_behind_a_pending_block_shows_its_size() {
    // Free space of 2.5 MiB is given whole to a request for 1.5 MiB: the rest is no more than 1 MiB.
    let program = [
        alloc(5 * MIB / 2),
        alloc(2 * MIB),
        Step::Free { which: 0 },
        alloc(3 * MIB / 2),
        Step::Free { which: 1 },
        Step::FreeWhileUsed { which: 0 },
        alloc(5 * MIB / 4),
        Step::Complete { which: 0 },
    ];
    let (start, outcome) = rebuilt(&program, 8);
    assert_eq!((start.allocated, outcome.contradictions), (5 * MIB / 2, 0));
}

#[test]
fn an_adjoining_segment_shows_nothing_of_the_block_before_it() {
    let program = [
        alloc(MIB),
        alloc(MIB),
        Step::Free { which: 1 },
        Step::Alloc { bytes: 2000, side_stream: true },
        Step::Free { which: 0 },
    ];
    let (start, outcome) = rebuilt(&program, 5);
    assert_eq!((start.allocated, outcome.contradictions), (MIB, 0));
}

#[test]
fn memory_at_address_0_and_more_memory_than_there_are_addresses_do_no_harm() {
    let half = u64::MAX / 2 + 1;
    for trace in [
        json!([{"action": "segment_map", "addr": 0, "size": MIB, "stream": 0}]),
        json!([
            {"action": "segment_alloc", "addr": 0, "size": half, "stream": 0},
            {"action": "segment_alloc", "addr": 1, "size": half, "stream": 0},
            {"action": "alloc", "addr": 0, "size": half, "stream": 0},
            {"action": "alloc", "addr": 1, "size": half, "stream": 0},
            {"action": "free_completed", "addr": 0, "size": half, "stream": 0},
            {"action": "segment_free", "addr": 0, "size": half, "stream": 0},
        ]),
        json!([{"action": "free_completed", "addr": u64::MAX, "size": 1, "stream": 0},
            {"action": "segment_free", "addr": u64::MAX, "size": MIB, "stream": 0}]),
    ] {
        let file = json!({"segments": [], "device_traces": [trace]});
        let snapshot = read(&serde_json::to_vec(&file).unwrap());
        replay(&snapshot, 0, &Settings::default());
        assert_eq!(analyze(&snapshot, "", 0, Options { top: 1, ..Options::default() }).devices.len(), 1);
    }
}

proptest! {
    #![proptest_config(random(150))]

    /// Two devices, whose addresses are the same.
    #[test]
    fn a_whole_trace_is_replayed_exactly(programs in [program(150), program(150)]) {
        let devices = programs.map(|program| Reference::run(&program));
        let snapshot = read(&snapshot_bytes(&[(&devices[0], 0), (&devices[1], 0)]));
        for (device, reference) in (0..).zip(&devices) {
            let (totals, outcome) = replay(&snapshot, device, &recorded_settings(&snapshot));
            prop_assert_eq!(&totals[1..], &reference.after[..]);
            prop_assert_eq!(outcome, LiteralOutcome {
                initial_totals: Totals::default(),
                contradictions: 0,
                first_contradiction: None,
                end_differences: 0,
                lacks_completions: false,
            });
        }
    }

    /// The ring buffer wrapped, or recording began late.
    #[test]
    fn a_trace_without_its_beginning_is_rebuilt(program in program(150), cut in any::<prop::sample::Index>()) {
        let reference = Reference::run(&program);
        prop_assume!(!reference.events.is_empty());
        let cut = cut.index(reference.events.len());
        let snapshot = read(&snapshot_bytes(&[(&reference, cut)]));
        let (totals, outcome) = replay(&snapshot, 0, &recorded_settings(&snapshot));
        let nothing = (Totals::default(), Vec::new());
        let (before, held) = match cut.checked_sub(1) {
            Some(last) => (reference.after[last], reference.held[last].clone()),
            None => nothing,
        };
        let truth: Vec<Totals> =
            std::iter::once(before).chain(reference.after[cut..].iter().copied()).collect();

        // What the device gave is known throughout, and what was asked for.
        for (ours, theirs) in totals.iter().zip(&truth) {
            prop_assert_eq!((ours.reserved, ours.requested), (theirs.reserved, theirs.requested));
        }
        prop_assert_eq!(totals.len(), truth.len());
        prop_assert_eq!((outcome.contradictions, outcome.end_differences), (0, 0));

        // The sizes of blocks that were freed later are not. Small ones follow from the request; large
        // ones may have been given up to 1 MiB more.
        let still_held = |address: u64, from: usize| {
            (cut..from).all(|i| {
                let event = &reference.events[i];
                event["action"] != "free_completed" || event["addr"] != address
            })
        };
        for (i, (ours, theirs)) in totals.iter().zip(&truth).enumerate() {
            let unknown = |h: &&reference::Held| {
                !h.is_small
                    && still_held(h.address, cut + i)
                    && !still_held(h.address, reference.events.len())
            };
            let doubt = held.iter().filter(unknown).count() as u64 * MIB;
            prop_assert!(ours.allocated.abs_diff(theirs.allocated) <= doubt, "{i}: {ours:?} {theirs:?}");
            prop_assert!(ours.active.abs_diff(theirs.active) <= doubt, "{i}: {ours:?} {theirs:?}");
        }
    }
}

proptest! {
    #![proptest_config(random(100))]

    #[test]
    fn a_part_of_a_trace_peaks_where_its_entries_do(
        program in program(150),
        ends in any::<[prop::sample::Index; 2]>(),
    ) {
        let reference = Reference::run(&program);
        let len = reference.events.len();
        prop_assume!(len > 0);
        let ends = ends.map(|end| end.index(len + 1));
        let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let snapshot = read(&snapshot_bytes(&[(&reference, 0)]));
        let part = |window| {
            let report = analyze(&snapshot, "", 0, Options { scope: Scope { window, ..Scope::default() }, ..Options::default() });
            let device = &report.devices[0];
            (device.peak.allocated_bytes, device.peak.reserved_bytes, device.oom_count)
        };

        // What came before counts as the state in which the part begins.
        let before = from.checked_sub(1).map(|last| reference.after[last]).unwrap_or_default();
        let within: Vec<Totals> =
            std::iter::once(before).chain(reference.after[from..to].iter().copied()).collect();
        let highest = |of: fn(&Totals) -> u64| within.iter().map(of).max().unwrap();
        let ooms = reference.events[from..to].iter().filter(|e| e["action"] == "oom").count() as u64;
        let expected = (highest(|t| t.allocated), highest(|t| t.reserved), ooms);
        prop_assert_eq!(part(window::between(Some(from as u64), Some(to as u64))), expected);

        // A chart shows no more than that, even where the trace itself begins with more.
        let cut = from / 2;
        let cut_snapshot = read(&snapshot_bytes(&[(&reference, cut)]));
        let window = window::between(Some((from - cut) as u64), Some((to - cut) as u64));
        let report = analyze(&cut_snapshot, "", 0, Options { scope: Scope { window, ..Scope::default() }, ..Options::default() });
        for device in &report.devices {
            for bucket in device.timeline.iter().flat_map(|timeline| timeline.samples.buckets()) {
                prop_assert!(bucket.max[SERIES_ALLOCATED] <= device.peak.allocated_bytes);
                prop_assert!(bucket.max[SERIES_RESERVED] <= device.peak.reserved_bytes);
            }
        }

        let last = part(window::last((len - from) as u64));
        prop_assert_eq!(last, part(window::between(Some(from as u64), None)));
        if let Some(oom) = reference.events.iter().rposition(|e| e["action"] == "oom") {
            let (from, to) = (oom.saturating_sub(3), oom + 4);
            let around = part(window::around_failure(3));
            prop_assert_eq!(around, part(window::between(Some(from as u64), Some(to as u64))));
        }
    }
}

proptest! {
    #![proptest_config(random(400))]

    #[test]
    fn no_entries_whatever_break_the_sums(file in garbage::snapshot(), settings in garbage::settings()) {
        let snapshot = read(&serde_json::to_vec(&file).unwrap());
        for device in 0..3 {
            replay(&snapshot, device, &recorded_settings(&snapshot));
            replay(&snapshot, device, &settings);
        }
    }

    #[test]
    fn no_entries_whatever_keep_a_page_from_being_laid_out(
        file in garbage::snapshot(),
        window in window(),
        capacity in any::<Option<u64>>(),
    ) {
        let snapshot = read(&serde_json::to_vec(&file).unwrap());
        let options = Options { top: 2, scope: Scope { window, capacity, ..Scope::default() }, ..Options::default() };
        let snapshots = ["a/1.pickle", "a/2.pickle"].map(|path| analyze(&snapshot, path, 1, options));
        for several in [&snapshots[..1], &snapshots] {
            let report = AnalyzeReport::new(several.to_vec(), Vec::new(), 10);
            let answer = report::analyze(&report);
            terminal(&answer, Style { width: 60, unicode: true, colour: false });
            markdown(&answer);
            formats::json(&report).unwrap();
        }
    }
}
