//! The verdict on a failed request: the ladder's verdict, checked against replays and the program's next step.

use super::failed::FailureFacts;
use super::outlook::Outlook;
use super::reason::{dead_end, reason};
use super::remedies::TrialResults;
use crate::allocator::conf::Settings;
use crate::allocator::verdict::{Certainty, Verdict, decide};

/// A verdict with its certainty.
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) confidence: Certainty,
    /// Verdict from the memory at the failure alone.
    ladder_verdict: Verdict,
    outlook: Outlook,
    /// Whether a replayed setting serves the request.
    is_avoidable: bool,
}

impl Judgement {
    /// Judges a request that `failed`. Fragmentation becomes capacity if the program would fail again soon after. A
    /// verdict is certain only if the model reproduces the recording and memory does not grow; a capacity verdict
    /// also requires a known device size.
    pub(super) fn new(
        failed: &FailureFacts,
        trials: &TrialResults,
        outlook: Outlook,
        [is_reproduced, is_capacity_known, grows]: [bool; 3],
    ) -> Self {
        let ruling = decide(&failed.circumstances);
        let exceeds_reach = trials.as_recorded.is_some_and(|replay| replay.no_setting_helps);
        let is_dead_end = outlook.is_dead_end() || trials.only_postpones();
        let verdict = match ruling.verdict {
            Verdict::Fragmentation if exceeds_reach || is_dead_end => Verdict::Capacity,
            verdict => verdict,
        };
        let is_confirmed = match verdict {
            // Only a replay of this and the next step shows that contiguous memory would have been enough.
            Verdict::Fragmentation => trials.has_lasting_remedy() && !grows && outlook.growth.is_none(),
            // On a device of unknown size other processes may hold memory.
            Verdict::Capacity => {
                let is_full = exceeds_reach || failed.circumstances.is_exhausted();
                is_full && is_capacity_known && !trials.has_remedy()
            }
            Verdict::Unknown => false,
            Verdict::MemoryLimit
            | Verdict::Spurious
            | Verdict::PendingFree
            | Verdict::PrivatePool
            | Verdict::OtherStream
            | Verdict::NonPytorch
            | Verdict::Served => !outlook.is_dead_end() && !grows,
        };
        let guess = failed.pool_guess;
        let is_known = guess.pool.is_some() && !guess.is_open && is_reproduced;
        let is_certain = ruling.is_certain && is_known && is_confirmed;
        Self {
            verdict,
            confidence: if is_certain { Certainty::Certain } else { Certainty::Possible },
            ladder_verdict: ruling.verdict,
            outlook,
            is_avoidable: trials.has_remedy(),
        }
    }

    /// The reason in a sentence with figures.
    pub(super) fn reason(&self, failed: &FailureFacts, settings: &Settings) -> String {
        let reason = reason(failed, self.ladder_verdict, settings);
        if self.verdict == self.ladder_verdict { reason } else { reason + &dead_end(self.outlook, self.is_avoidable) }
    }
}
