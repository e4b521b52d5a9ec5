//! How a program would have gone on after the failure that ended its trace.

use super::DeviceStudy;
use crate::replay::ops::Continuation;
use crate::snapshot::Action;

/// A trace of more entries is not replayed a dozen times unasked.
pub(crate) const MOST_ENTRIES: usize = 2_000_000;

impl<'a> DeviceStudy<'_, 'a> {
    /// Whether its trace shows nothing of what came after the last failed request that is looked at, and is not
    /// too long to look at its calls.
    pub fn ends_with_failure(self) -> bool {
        let trace = self.device();
        let asks = |entry: usize| trace.action(entry) == Some(Action::Alloc);
        trace.len() <= MOST_ENTRIES
            && self.failed().next_back().is_some_and(|last| !(last..trace.len()).any(asks))
    }

    /// Its program as it would have gone on after that request, where what came one step before tells.
    pub fn goes_on(self) -> Option<Continuation<'a>> {
        let last = self.failed().next_back().filter(|_| self.ends_with_failure())?;
        let phases = self.phases();
        self.program().continue_past(last, &|entry| phases.step_at(entry))
    }
}
