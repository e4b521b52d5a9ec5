//! Phases and steps of recorded training runs: those that the recorded programs went through.

use crate::support::fixtures;
use oomscope::snapshot::{Action, Snapshot};
use oomscope::stacks::frames::StackReader;
use oomscope::stacks::phases::{Phase, Phases, StepMarker};

fn phases(snapshot: &Snapshot, device: u64) -> Phases {
    Phases::from_trace(snapshot.device(device), &StackReader::new(snapshot))
}

/// Steps and phases of the allocations, without repetitions.
fn course(snapshot: &Snapshot, device: u64) -> Vec<(Option<u32>, Phase)> {
    let phases = phases(snapshot, device);
    let mut course: Vec<_> = snapshot
        .device(device)
        .indexes_with_action(Action::Alloc)
        .map(|index| (phases.steps.step_at(index), phases.phase_at(index)))
        .collect();
    course.dedup();
    course
}

fn step(n: u32) -> [(Option<u32>, Phase); 4] {
    [Phase::Data, Phase::Forward, Phase::Backward, Phase::Optimizer].map(|phase| (Some(n), phase))
}

#[test]
fn training_goes_round() {
    for (name, steps) in [("2.15.0-gpt_train-cpp_stacks", 4), ("2.15.0-gpt_varlen-late", 6), ("2.9.1-gpt_varlen-gc", 6)]
    {
        let snapshot = fixtures::snapshot(name);
        let expected: Vec<_> = [(None, Phase::Init)].into_iter().chain((0..steps).flat_map(step)).collect();
        assert_eq!(course(&snapshot, 0), expected, "{name}");
        let phases = phases(&snapshot, 0);
        assert_eq!(phases.steps.marker(), Some(StepMarker::OptimizerStep));
        assert_eq!(phases.steps.ends().len(), steps as usize);
    }
}

#[test]
fn a_failure_belongs_to_the_step_that_it_ended() {
    for (name, last) in [
        ("2.14.1-gpt_varlen-oom", (2, Phase::Forward)),
        ("2.15.0-gpt_varlen-at-oom", (3, Phase::Backward)),
        ("2.15.0-oom_varlen-at-oom", (24, Phase::Forward)),
    ] {
        let snapshot = fixtures::snapshot(name);
        let oom = snapshot.device(0).failed_requests().next_back().unwrap();
        let phases = phases(&snapshot, 0);
        assert_eq!((phases.steps.step_at(oom).unwrap(), phases.phase_at(oom)), last, "{name}");
        assert!(phases.steps.entries(last.0).unwrap().contains(&oom));
    }
}

#[test]
fn an_optimizer_that_allocates_nothing_ends_steps_all_the_same() {
    let course = course(&fixtures::snapshot("2.15.0-conv_train"), 0);
    let expected =
        [&[(None, Phase::Init)][..], &step(0), &(1..12).flat_map(|n| step(n).into_iter().take(3)).collect::<Vec<_>>()]
            .concat();
    assert_eq!(course, expected);
}

#[test]
fn without_an_optimizer_each_backward_pass_is_a_step() {
    let snapshot = fixtures::snapshot("2.15.0-two_devices");
    for device in 0..2 {
        let phases = phases(&snapshot, device);
        assert_eq!(phases.steps.marker(), Some(StepMarker::BackwardFrames));
        assert_eq!(phases.steps.ends().len(), 4, "the fifth is not followed by another");
    }
}

#[test]
fn named_ranges_are_found_by_time() {
    let snapshot = fixtures::snapshot("2.15.0-gpt_train-cpp_stacks");
    let phases = phases(&snapshot, 0);
    let mut named = 0;
    for index in snapshot.device(0).indexes_with_action(Action::Alloc) {
        let within = phases.range_at(index).map(|name| snapshot.text(name));
        let is_step = within == Some("Optimizer.step#AdamW.step");
        assert_eq!(is_step, phases.phase_at(index) == Phase::Optimizer, "entry {index}");
        named += u32::from(is_step);
    }
    assert_eq!(named, 4 * 74 + 2 * 74, "a temporary each step, and the state in the first");
}

#[test]
fn a_recording_without_steps_gets_none() {
    for name in ["2.15.0-holes", "2.15.0-fuzz", "2.15.0-gpt_varlen-no-history"] {
        let phases = phases(&fixtures::snapshot(name), 0);
        assert_eq!((phases.steps.marker(), phases.steps.ends().len()), (None, 0), "{name}");
        assert_eq!((phases.steps.step_at(0), phases.phase_at(0)), (None, Phase::Other), "{name}");
    }
}

#[test]
fn the_phase_of_an_entry_is_that_of_the_last_run_up_to_it() {
    let snapshot = fixtures::snapshot("2.15.0-oom_varlen-at-oom");
    let phases = phases(&snapshot, 0);
    let (mut runs, mut last) = (phases.runs().iter().peekable(), Phase::Other);
    for entry in (0..snapshot.device(0).len()).chain([usize::MAX]) {
        while let Some(run) = runs.next_if(|run| run.start as usize <= entry) {
            last = run.phase;
        }
        assert_eq!(phases.phase_at(entry), last, "entry {entry}");
    }
    assert!(phases.runs().len() > 24 && runs.next().is_none());
}
