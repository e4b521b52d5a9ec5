//! What a job does under the conditions of a replay.

use crate::base::units::counted;
use crate::whatif::JobOutcome;

/// In a few words, for a table: `fails 3 requests later`.
pub(crate) fn describe_outcome(outcome: &JobOutcome) -> String {
    match outcome {
        JobOutcome::GoesOn { sizes_vary: false, .. } => "goes on".to_owned(),
        JobOutcome::GoesOn { sizes_vary: true, .. } => "goes on, if inputs stay".to_owned(),
        JobOutcome::FailsAgain { after_requests: 0, .. } => "fails at the next request".to_owned(),
        JobOutcome::FailsAgain { after_requests, steps_later: 0 | 1, sure, .. } => {
            format!("fails {} later", super::forecast::count_of(*after_requests, "request", *sure))
        }
        JobOutcome::FailsAgain { steps_later, sure, .. } => {
            format!("fails {} later", super::forecast::count_of(*steps_later, "step", *sure))
        }
        JobOutcome::RequestFails { requests: 0 | 1, .. } => "request fails".to_owned(),
        JobOutcome::RequestFails { requests, .. } => format!("{} fail", counted(*requests, "request")),
        JobOutcome::NotKnown { .. } => "not known".to_owned(),
    }
}
