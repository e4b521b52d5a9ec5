//! The outcome of one replay, in one sentence.

use super::forecast::describe_later;
use super::whatif::ESTIMATE;
use crate::base::units::{count, counted, size};
use crate::whatif::TriedRun;

impl TriedRun {
    /// Whether requests fail, where the first one does, and the fate of the program after the recorded requests.
    pub fn outcome(&self) -> String {
        let estimate = if self.exact { "" } else { ESTIMATE };
        let outcome = match (self.failed.first(), &self.forecast) {
            (Some(first), _) if first.requested_bytes == 0 => {
                "nothing fits: the memory from before the recording alone exceeds the device".to_owned()
            }
            (Some(first), _) => {
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
            (None, Some(forecast)) => format!("every recorded request is served; {}", describe_later(forecast)),
            (None, None) => {
                let headroom = self.capacity_bytes.and_then(|capacity| capacity.checked_sub(self.peak_reserved_bytes));
                let headroom = headroom.map_or_else(String::new, |bytes| format!(", with {} headroom", size(bytes)));
                format!("every recorded request is served{headroom}")
            }
        };
        format!("{outcome}{estimate}")
    }
}
