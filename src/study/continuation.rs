//! Extends the program of a trace beyond the failed request that ended it.

use super::DeviceStudy;
use crate::replay::ops::Continuation;
use crate::snapshot::Action;

/// Longer traces are not continued: every replay of the continuation would take too long.
pub(crate) const MAX_CONTINUED_ENTRIES: usize = 2_000_000;

impl<'a> DeviceStudy<'_, 'a> {
    /// Whether no allocation follows the last failed request of the window, and the trace is short enough to continue.
    pub fn ends_with_failure(self) -> bool {
        let trace = self.device();
        let is_request = |entry: usize| trace.action(entry) == Some(Action::Alloc);
        trace.len() <= MAX_CONTINUED_ENTRIES
            && self.failed_requests().next_back().is_some_and(|last| !(last..trace.len()).any(is_request))
    }

    /// The program continued past that request by repeating the previous step; `None` if there is no such step.
    pub fn continuation(self) -> Option<Continuation<'a>> {
        let last = self.failed_requests().next_back().filter(|_| self.ends_with_failure())?;
        let phases = self.phases();
        self.program().continue_past(last, &|entry| phases.step_at(entry))
    }
}
