//! The outcome of one replay, in one sentence.

use super::outcome::outcome_clause;
use super::whatif::ESTIMATE;
use crate::base::units::{count, counted, size};
use crate::whatif::{JobOutcome, TriedRun};

impl TriedRun {
    /// Whether requests fail, where the first one does, and the fate of the program after the recorded requests.
    pub fn outcome(&self) -> String {
        let estimate = if self.exact { "" } else { ESTIMATE };
        let outcome = match (&self.then, self.failed.first()) {
            (JobOutcome::RequestFails { event: None, .. }, _) => {
                "nothing fits: the memory from before the recording alone exceeds the device".to_owned()
            }
            (JobOutcome::RequestFails { .. }, Some(first)) => {
                let line = self.location.as_ref().map_or_else(String::new, |line| format!(", {}", line.label()));
                let (bytes, entry) = (size(first.requested_bytes), count(first.event as u64));
                match self.ooms {
                    1 => format!("a request for {bytes} fails at entry {entry}{line}"),
                    more => {
                        let requests = counted(more as u64, "request");
                        format!("{requests} fail, the first for {bytes} at entry {entry}{line}")
                    }
                }
            }
            (then, _) => {
                let served = if self.ooms == 0 { "every recorded request is served; " } else { "" };
                format!("{served}{}", outcome_clause(then))
            }
        };
        format!("{outcome}{estimate}")
    }
}
