//! The outcome of a job under the conditions of a replay: in a cell of a table, and in a sentence.

use itertools::Itertools as _;

use crate::allocator::conf::ConfChange;
use crate::base::units::{count, counted, size};
use crate::whatif::{JobOutcome, WhyUnknown};

/// Appended to an answer that rests on a model that does not reproduce the recording.
pub(crate) const ESTIMATE: &str = " (an estimate: the model diverges from the recording)";
/// The outcome of a job whose memory grows with every step.
pub(crate) const STILL_GROWS: &str = "still grows";
/// Advice on settings with which the job fails again.
pub(crate) const POSTPONES: &str = "this only postpones the failure: see which code holds the memory";

/// For a cell of a table: `goes on`, `fails 1 request later`, `fails about 120 steps later`, `request fails`.
pub(crate) fn describe_outcome(then: &JobOutcome) -> String {
    match then {
        JobOutcome::GoesOn { survived_failures: 0, .. } => "goes on".to_owned(),
        JobOutcome::GoesOn { survived_failures, .. } => {
            format!("goes on after {}", counted(*survived_failures, "failure"))
        }
        JobOutcome::FailsAgain { after_requests: 0, .. } => "fails at the next request".to_owned(),
        JobOutcome::FailsAgain { after_requests, steps_later, sure, .. } => {
            let (number, noun) = if *steps_later > 1 { (*steps_later, "step") } else { (*after_requests, "request") };
            format!("fails {} later", count_of(number, noun, *sure))
        }
        JobOutcome::RequestFails { requests: 1, .. } => "request fails".to_owned(),
        JobOutcome::RequestFails { requests, .. } => format!("{} requests fail", count(*requests)),
        JobOutcome::NotKnown { .. } => "not known".to_owned(),
    }
}

/// `but memory grows by 6.34 MiB a step`
pub(crate) fn growth_clause(bytes_per_step: u64) -> String {
    format!("but memory grows by {} a step", size(bytes_per_step))
}

/// For a sentence: `the job goes on, with 3 MiB headroom at its peak`.
pub(crate) fn outcome_clause(then: &JobOutcome) -> String {
    match then {
        JobOutcome::GoesOn { headroom_bytes, sizes_vary, survived_failures } => {
            let until = if *sizes_vary { " until a larger input comes" } else { "" };
            let room = match headroom_bytes {
                None => String::new(),
                Some(0) => ", with no headroom at its peak".to_owned(),
                Some(bytes) => format!(", with {} headroom at its peak", size(*bytes)),
            };
            let survived = match survived_failures {
                0 => String::new(),
                1 => "; 1 request fails that it survived when recorded".to_owned(),
                requests => format!("; {} fail that it survived when recorded", counted(*requests, "request")),
            };
            format!("the job goes on{until}{room}{survived}")
        }
        JobOutcome::FailsAgain { after_requests, steps_later, sure, location } => {
            let requests = match after_requests {
                0 => "at the next request".to_owned(),
                requests => format!("after {}", count_of(*requests, "request", *sure)),
            };
            let steps = match steps_later {
                0 => String::new(),
                1 if *sure => ", in the next step".to_owned(),
                steps => format!(", {} later", count_of(*steps, "step", *sure)),
            };
            let is_known = location.frame.is_some() || location.backward.is_some();
            let line = if is_known { format!(", at {}", location.brief_label()) } else { String::new() };
            format!("the job fails again {requests}{steps}{line}")
        }
        JobOutcome::RequestFails { event: None, .. } => {
            "the memory from before the recording alone exceeds the device".to_owned()
        }
        JobOutcome::RequestFails { requests: 1, .. } => "the request fails".to_owned(),
        JobOutcome::RequestFails { requests, .. } => format!("{} requests fail", count(*requests)),
        JobOutcome::NotKnown { why } => format!("what follows is not known: {}", describe_unknown(*why)),
    }
}

/// `17,711 requests`, or `about 18,000 requests` if that is an estimate.
pub(super) fn count_of(number: u64, noun: &str, is_sure: bool) -> String {
    if is_sure {
        return counted(number, noun);
    }
    let scale = 10u64.pow(number.max(1).ilog10().saturating_sub(1));
    format!("about {}", counted((number + scale / 2) / scale * scale, noun))
}

pub(super) fn describe_unknown(why: WhyUnknown) -> &'static str {
    match why {
        WhyUnknown::NoLoop => "nothing before was like it",
        WhyUnknown::FirstIteration => "no step was complete before it",
        WhyUnknown::SingleIteration => "fewer than two whole steps before it match",
        WhyUnknown::NewSizes => "the sizes in this step are new",
        WhyUnknown::NewRequests => "this step makes requests that no earlier one made",
        WhyUnknown::IrregularSizes => "sizes vary from step to step",
        WhyUnknown::LongTrace => "the trace is too long to replay it further",
        WhyUnknown::ServedAsRecorded => "a replay under the recorded settings serves the request too",
    }
}

/// A change of settings as a noun: `expandable_segments:True and no max_split_size_mb`.
pub(crate) fn settings_label(option: &str) -> String {
    describe_change(option, ["", "no ", "the default settings"])
}

/// A change of settings as an instruction: `set expandable_segments:True and remove max_split_size_mb`.
pub(crate) fn settings_action(option: &str) -> String {
    describe_change(option, ["set ", "remove ", "return to the default settings"])
}

fn describe_change(option: &str, [set, remove, reset_all]: [&str; 3]) -> String {
    let change = ConfChange::parse(option);
    if change.resets_all {
        return reset_all.to_owned();
    }
    let options = (!change.set.is_empty()).then(|| format!("{set}{}", change.set));
    options.into_iter().chain(change.reset.iter().map(|key| format!("{remove}{key}"))).join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::MIB;

    fn fails(after_requests: u64, steps_later: u64, sure: bool) -> JobOutcome {
        JobOutcome::FailsAgain { after_requests, steps_later, sure, location: Box::default() }
    }

    fn goes_on(headroom_bytes: Option<u64>, sizes_vary: bool, survived_failures: u64) -> JobOutcome {
        JobOutcome::GoesOn { headroom_bytes, sizes_vary, survived_failures }
    }

    fn request_fails(requests: u64, event: Option<usize>) -> JobOutcome {
        JobOutcome::RequestFails { requests, event, location: Box::default() }
    }

    #[test]
    fn each_outcome_has_a_cell_and_a_clause() {
        for (then, cell, clause) in [
            (goes_on(None, false, 0), "goes on", "the job goes on"),
            (goes_on(Some(3 * MIB), false, 0), "goes on", "the job goes on, with 3 MiB headroom at its peak"),
            (
                goes_on(Some(3 * MIB), true, 2),
                "goes on after 2 failures",
                "the job goes on until a larger input comes, with 3 MiB headroom at its peak; 2 requests fail that it survived \
                 when recorded",
            ),
            (fails(0, 0, true), "fails at the next request", "the job fails again at the next request"),
            (fails(1, 0, true), "fails 1 request later", "the job fails again after 1 request"),
            (fails(24, 1, true), "fails 24 requests later", "the job fails again after 24 requests, in the next step"),
            (
                fails(11_911, 119, false),
                "fails about 120 steps later",
                "the job fails again after about 12,000 requests, about 120 steps later",
            ),
            (request_fails(1, Some(7)), "request fails", "the request fails"),
            (request_fails(3, Some(7)), "3 requests fail", "3 requests fail"),
            (request_fails(1, None), "request fails", "the memory from before the recording alone exceeds the device"),
            (
                JobOutcome::NotKnown { why: WhyUnknown::FirstIteration },
                "not known",
                "what follows is not known: no step was complete before it",
            ),
        ] {
            assert_eq!((describe_outcome(&then).as_str(), outcome_clause(&then).as_str()), (cell, clause));
        }
    }
}
