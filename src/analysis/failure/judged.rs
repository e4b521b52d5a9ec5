//! The verdict on a failed request: the ladder's, held against what other settings and one more step come to.

use super::failed::Failed;
use super::outlook::Outlook;
use super::reason::{dead_end, reason};
use super::remedies::Tried;
use crate::allocator::conf::Settings;
use crate::allocator::verdict::{Certainty, Verdict, decide};

/// A verdict.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) confidence: Certainty,
    /// What the ladder alone says.
    ruled: Verdict,
    outlook: Outlook,
    /// Whether some setting that was tried serves it.
    is_served: bool,
}

impl Judged {
    /// Of a request that `failed`. To serve it from memory in pieces is no way out where the program fails again
    /// soon after: then it is the capacity that it lacks. Nothing is certain unless the model reproduces the
    /// recording and, for a lack of capacity, the size of the device is known; nor where memory `grows`.
    pub(super) fn of(
        failed: &Failed,
        tried: &Tried,
        outlook: Outlook,
        [is_reproduced, is_device_known, grows]: [bool; 3],
    ) -> Self {
        let ruling = decide(&failed.circumstances);
        let ruled = ruling.verdict;
        let is_beyond = tried.undisturbed.is_some_and(|own| own.no_setting_helps);
        let is_dead_end = outlook.is_dead_end() || tried.only_postpones();
        let verdict = match ruled {
            Verdict::Fragmentation if is_beyond || is_dead_end => Verdict::Capacity,
            ruled => ruled,
        };
        let is_shown = match verdict {
            // In one piece is not something that can be had unless a replay shows it, one more step with it.
            Verdict::Fragmentation => tried.lasts() && !grows && outlook.growth.is_none(),
            // Of a device whose size is not known others may hold a part.
            Verdict::Capacity => {
                let is_full = is_beyond || failed.circumstances.is_exhausted();
                is_full && is_device_known && !tried.serves()
            }
            Verdict::Unknown => false,
            _ => !outlook.is_dead_end() && !grows,
        };
        let is_known = failed.told.pool.is_some() && !failed.told.is_open && is_reproduced;
        let is_certain = ruling.is_certain && is_known && is_shown;
        let confidence = if is_certain { Certainty::Certain } else { Certainty::Possible };
        let is_served = tried.serves();
        Self { verdict, confidence, ruled, outlook, is_served }
    }

    /// The sentence with the numbers.
    pub(super) fn reason(&self, failed: &Failed, settings: &Settings) -> String {
        let ruled = reason(failed, self.ruled, settings);
        if self.verdict == self.ruled {
            ruled
        } else {
            ruled + &dead_end(self.outlook, self.is_served)
        }
    }
}
