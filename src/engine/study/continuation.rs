//! Whether the program of a trace can be continued beyond the failed request that ended it.

use super::DeviceStudy;
use crate::snapshot::Action;

/// Longer traces are not continued: every replay of the continuation would take too long.
pub const MAX_CONTINUED_ENTRIES: usize = 2_000_000;

impl DeviceStudy<'_, '_> {
    /// Whether no allocation follows the last failed request of the window, and the trace is short enough to continue.
    pub fn ends_with_failure(self) -> bool {
        let trace = self.device();
        let is_request = |entry: usize| trace.action(entry) == Some(Action::Alloc);
        trace.len() <= MAX_CONTINUED_ENTRIES
            && self.failed_requests().next_back().is_some_and(|last| !(last..trace.len()).any(is_request))
    }
}
