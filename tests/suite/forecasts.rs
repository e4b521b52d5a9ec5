//! What follows a failed request, against programs of `tests/oracle/goes_on.py` that PyTorch itself really ran on, under
//! the settings that serve the request.

use oomscope::analysis::failure::OomReport;
use oomscope::analysis::{Options, analyze};
use oomscope::whatif::JobOutcome;

use crate::support::fixtures;

/// A program, settings, and how many requests were served after the failed one before another failed: none did, if
/// `None`.
const RERUNS: [(&str, &str, Option<u64>); 13] = [
    ("buckets-430", "expandable_segments:True", None),
    ("buckets-430", "expandable_segments:True,roundup_power2_divisions:8", None),
    ("buckets-430", "max_split_size_mb:32", None),
    ("kept_losses-420", "expandable_segments:True", Some(7)),
    ("kept_losses-420", "expandable_segments:True,roundup_power2_divisions:8", Some(7)),
    ("first_adam_step-330", "roundup_power2_divisions:4", Some(2)),
    ("first_adam_step-330", "expandable_segments:True", Some(14)),
    ("first_gradients-420", "expandable_segments:True", Some(13)),
    ("first_gradients-420", "expandable_segments:True,roundup_power2_divisions:8", Some(13)),
    ("predictions_with_graph-800", "expandable_segments:True", Some(24)),
    ("predictions_with_graph-800", "expandable_segments:True,roundup_power2_divisions:8", Some(18)),
    ("varying_lengths-430", "max_split_size_mb:32", Some(1127)),
    ("varying_lengths-430", "roundup_power2_divisions:4", Some(1139)),
];

fn failure(name: &str) -> OomReport {
    let report = fixtures::report(&format!("goes_on/{name}"));
    report.devices[0].ooms.last().unwrap().clone()
}

#[test]
fn a_program_fails_again_where_it_really_does() {
    let (mut exact, mut going_on) = (0, 0);
    for (name, settings, served) in RERUNS {
        let oom = failure(name);
        let remedy = oom.remedies.iter().find(|remedy| remedy.settings == settings).unwrap();
        match &remedy.then {
            JobOutcome::FailsAgain { after_requests, sure, location, .. } => {
                assert_eq!((Some(*after_requests), *sure), (served, true), "{name} {settings}");
                assert!(location.frame.is_some(), "{name} {settings}: {location:?}");
                exact += 1;
            }
            JobOutcome::GoesOn { headroom_bytes, .. } => {
                assert_eq!(remedy.fails_soon, Some(false), "{name} {settings}");
                assert!(*headroom_bytes <= remedy.spare_bytes, "{name} {settings}");
                going_on += 1;
            }
            // The first optimizer step has temporaries that nothing has shown.
            JobOutcome::NotKnown { .. } => assert_eq!(name, "first_adam_step-330", "{settings}"),
            other @ JobOutcome::RequestFails { .. } => panic!("{name} {settings}: {other:?}"),
        }
    }
    assert_eq!((exact, going_on), (7, 5));
}

/// No layout has more than the memory within reach that is not live.
#[test]
fn headroom_is_within_reach() {
    for (name, _, _) in RERUNS {
        let oom = failure(name);
        let replay = oom.as_recorded.unwrap();
        for remedy in oom.remedies.iter().filter(|remedy| remedy.avoids_oom) {
            assert!(remedy.spare_bytes.unwrap() <= replay.reach_bytes - replay.needed_bytes, "{name}");
        }
    }
}

/// What PyTorch says is allocated grows by this much with each iteration.
#[test]
fn growth_has_the_rate_and_the_lines_of_the_program() {
    for (name, kind, rate, lines) in [
        ("kept_losses-420", "kept", 33_579_520, &[39, 75, 67, 97][..]),
        ("predictions_with_graph-800", "kept", 62_939_136, &[39, 67, 75][..]),
        ("memory_bank-420", "replaced", 4_119_000, &[212][..]),
    ] {
        let report = analyze(
            &fixtures::snapshot(&format!("goes_on/{name}")),
            name,
            0,
            Options { top: 10, ..Options::default() },
        );
        let device = &report.devices[0];
        let growth = device.ooms.last().unwrap().outlook.growth.unwrap();
        assert!(growth.bytes_per_step.abs_diff(rate) <= rate / 50, "{name}: {growth:?}");
        assert_eq!((growth.kind.word(), growth.explains), (kind, true), "{name}");
        assert_eq!(
            (device.leaks.bytes_per_step, device.leaks.kind),
            (growth.bytes_per_step, Some(growth.kind)),
            "{name}"
        );
        let found = device.leaks.suspects.iter().map(|line| line.location.frame.as_ref().unwrap().line);
        assert_eq!(found.collect::<Vec<u32>>(), lines, "{name}");
    }
    for name in ["buckets-430", "varying_lengths-430", "first_adam_step-330"] {
        assert_eq!(failure(name).outlook.growth, None, "{name}");
    }
}

#[test]
fn a_larger_input_is_named_where_it_is_the_reason() {
    let input = failure("varying_lengths-430").unusual_input.unwrap();
    assert_eq!(input.location.frame.as_ref().unwrap().name, "data");
    assert!(input.needed_bytes > input.most_bytes && input.input_bytes > input.usual_input_bytes);
    assert_eq!(failure("memory_bank-420").unusual_input, None, "the bank is no input");
    assert_eq!(failure("kept_losses-420").unusual_input, None);
}
