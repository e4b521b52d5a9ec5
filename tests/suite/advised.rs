//! The first advice against programs of `tests/oracle/advised.py`, which were really run with the change that it names.

use oomscope::analysis::{Advice, CureKind, Options, analyze};
use oomscope::study::attribution::{Category, Confidence};

use crate::support::fixtures;

/// The first advice for the failure of a program, and whether its line has the text.
fn first_advice(name: &str) -> Advice {
    let report = analyze(&fixtures::snapshot(&format!("advised/{name}")), name, 0, Options::default());
    let device = report.devices.iter().find(|device| !device.ooms.is_empty()).unwrap();
    device.advice.first().unwrap().clone()
}

/// With `foreach=False` the program ran to its end; that of one parameter needed more, not less.
#[test]
fn foreach_is_named_only_if_one_parameter_at_a_time_needs_less() {
    let advice = first_advice("foreach_adamw").to_string();
    assert!(advice.starts_with("use foreach=False in the optimizer"), "{advice}");
    let advice = first_advice("foreach_one_parameter").to_string();
    assert!(advice.contains("fused=True") && !advice.contains("foreach=False"), "{advice}");
}

/// The optimizer's state alone exceeds the device: neither temporaries nor the batch change that.
#[test]
fn state_is_not_taken_for_temporaries() {
    let advice = first_advice("state_too_large").to_string();
    assert!(!advice.contains("fused") && !advice.contains("batch"), "{advice}");
}

/// Each program ran to its end when it kept the value instead.
#[test]
fn a_kept_graph_is_named_with_the_line_that_makes_the_result() {
    for (name, scalar, line) in
        [("retained_losses", true, 117), ("hidden_state", false, 145), ("logged_beside_training", true, 180)]
    {
        let Advice::Detach(graphs, _) = first_advice(name) else { panic!("{name}: {}", first_advice(name)) };
        assert_eq!((graphs.is_scalar, graphs.result_at.map(|at| at.line)), (scalar, Some(line)), "{name}");
    }
}

/// Outputs are kept, but not their graphs: detached, the program fails at the same step.
#[test]
fn a_kept_output_is_no_kept_graph() {
    let Advice::Cure(cure) = first_advice("kept_logits") else { panic!("{}", first_advice("kept_logits")) };
    assert_eq!(cure.row.kind, CureKind::PutOnHost);
    assert!(cure.then.is_some_and(|then| then.goes_on()));
}

#[test]
fn no_grad_is_advised_only_where_graphs_are_kept() {
    assert!(matches!(first_advice("validation_losses"), Advice::NoGrad(_)), "{}", first_advice("validation_losses"));
    let cache = first_advice("cache_of_generation");
    assert!(!matches!(cache, Advice::NoGrad(_)), "{cache}");
}

/// A program that has trained keeps what no frame of an optimizer, and no module, made: it is no optimizer state, at most a
/// guess, and no advice rests on it.
#[test]
fn memory_kept_after_training_is_no_optimizer_state_and_leads_no_advice() {
    for (name, guess) in [
        ("kept_list", Category::Other),
        ("kept_cache", Category::Other),
        ("kept_checkpoint", Category::Parameters),
        ("kept_list_before_backward", Category::Activations),
    ] {
        let options = Options { top: 10, ..Options::default() };
        let report = analyze(&fixtures::snapshot(&format!("advised/{name}")), name, 0, options);
        let device = &report.devices[0];
        let held = device.ooms.last().unwrap().held.as_ref().unwrap();
        let largest = &held.by_line.rows[0];
        assert!(largest.share_ratio > 0.9, "{name}: {largest:?}");
        assert_eq!((largest.category, largest.category_confidence), (Some(guess), Some(Confidence::Low)), "{name}");
        let state = held.by_category.iter().find(|row| row.category == Category::OptimizerState).unwrap();
        assert!(state.share.share_ratio < 0.02 && state.confidence == Confidence::High, "{name}: {state:?}");
        let advice = device.advice.first().unwrap();
        assert!(!matches!(advice, Advice::Guess(..)), "{name}: {advice}");
    }
}
