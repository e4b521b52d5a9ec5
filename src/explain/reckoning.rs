//! The numbers of a message put together: what it says, and what follows.

use crate::allocator::SMALL_SEGMENT;
use crate::message::{Allocation, PrintedAmount, Process, Wording};
use crate::units::MIB;
use crate::verdict::{About, Circumstances, Free, spare};

/// A segment for requests of more than 1 MiB and less than 10 MiB, and what expandable segments grow by
/// (`kLargeBuffer`); for smaller requests both are [`SMALL_SEGMENT`]. A message does not tell where
/// `large_segment_size_mb` was set.
const LARGE_SEGMENT: u64 = 20 * MIB;

/// A message's numbers and what follows from them. What does not follow is absent.
#[derive(Debug)]
pub(super) struct Reckoning {
    /// As read, with what else the log tells.
    pub(super) said: Allocation,
    /// More than any machine has was asked for.
    pub(super) is_absurd: bool,
    pub(super) request: Option<About>,
    pub(super) capacity: Option<About>,
    pub(super) free: Option<About>,
    pub(super) allowed: Option<About>,
    /// Handed out, without what private pools have free.
    pub(super) tensors: Option<About>,
    /// Free in private pools.
    pub(super) private: About,
    /// In the cache outside private pools, not handed out.
    pub(super) unallocated: Option<About>,
    /// All that the allocator holds.
    pub(super) reserved: Option<About>,
    /// Of the device, in use outside the allocator.
    pub(super) outside: Option<About>,
    /// The part of `outside` that is this process' own, where that is known.
    pub(super) own_outside: Option<About>,
    /// The part of `outside` that somebody could give back.
    pub(super) spare_outside: Option<About>,
    /// The process among those named by number that seems to be this one, seen from outside its container.
    pub(super) this_pid: Option<u64>,
}

impl Reckoning {
    pub(super) fn of(said: Allocation, text: &str) -> Self {
        let about = |amount: &Option<_>| amount.as_ref().map(About::from);
        let (capacity, free) = (about(&said.capacity), about(&said.free));
        let private = about(&said.private_pools).unwrap_or_default();
        let allocated = about(&said.allocated);
        // Metal and cudaMallocAsync say nothing of a cache.
        let has_cache = !matches!(said.wording, Wording::Async | Wording::Mps);
        let unallocated = about(&said.unallocated)
            .or_else(|| Some(about(&said.reserved)?.minus(allocated?)))
            .filter(|_| has_cache);
        let reserved = about(&said.reserved).or_else(|| Some(allocated?.plus(unallocated?)));
        let outside = match (capacity, free, reserved) {
            (Some(capacity), Some(free), Some(reserved)) => {
                Some(capacity.minus(free).minus(reserved))
            }
            _ => about(&said.other),
        };
        let this = about(&said.this_process);
        let this_pid = match (this, reserved) {
            (None, Some(reserved)) => seen_from_outside(&said.processes, reserved),
            _ => None,
        };
        let of_pid = |process: &&Process| Some(process.pid) == this_pid;
        let this = this.or_else(|| {
            said.processes.iter().find(of_pid).map(|process| About::from(&process.in_use))
        });
        let own_outside = this.zip(reserved).map(|(this, reserved)| this.minus(reserved));
        let spare_outside = outside.map(|outside| spare(outside, own_outside, capacity));
        Self {
            is_absurd: text.contains("more than 1EB"),
            request: about(&said.requested),
            allowed: about(&said.allowed),
            tensors: allocated.map(|allocated| allocated.minus(private)),
            capacity,
            free,
            private,
            unallocated,
            reserved,
            outside,
            own_outside,
            spare_outside,
            this_pid,
            said,
        }
    }

    /// What the ladder goes by: all that is free in the cache, outside private pools, is one figure.
    pub(super) fn circumstances(&self, request: About, free: About) -> Circumstances {
        Circumstances {
            request: self.least_request().unwrap_or(request),
            segment: request,
            most: self.most_taken(request),
            device_free: free,
            own: Free { all: self.unallocated.unwrap_or_default(), ..Free::default() },
            other_pool: self.private,
            outside: self.spare_outside.unwrap_or_default(),
            is_own_mixed: true,
            ..Circumstances::default()
        }
    }

    /// The most that the device is asked for: expandable segments grow by whole granules.
    fn most_taken(&self, request: About) -> About {
        if self.said.expandable != Some(true) {
            return request;
        }
        let granule = if request.bytes == SMALL_SEGMENT { SMALL_SEGMENT } else { LARGE_SEGMENT };
        let bytes = request.bytes.checked_next_multiple_of(granule).unwrap_or(request.bytes);
        About { bytes, ..request }
    }

    /// The least that the request itself can have been: small ones are cut from segments of one size.
    pub(super) fn least_request(&self) -> Option<About> {
        let request = self.request?;
        Some(match request.bytes {
            SMALL_SEGMENT => About::exactly(1),
            LARGE_SEGMENT => About::exactly(MIB + 1),
            _ => request,
        })
    }

    /// The processes that are others, as far as that can be told, the largest first.
    pub(super) fn others(&self) -> Vec<&Process> {
        let is_other = |process: &&Process| Some(process.pid) != self.this_pid;
        let mut others: Vec<&Process> = self.said.processes.iter().filter(is_other).collect();
        others.sort_by_key(|process| std::cmp::Reverse(process.in_use.bytes));
        others
    }
}

impl From<&PrintedAmount> for About {
    fn from(amount: &PrintedAmount) -> Self {
        Self { bytes: amount.bytes, error: amount.error_bytes }
    }
}

/// The one process that uses at least what this one's allocator holds. Inside a container a process does
/// not know the number that the driver has for it, and is listed as if it were another.
fn seen_from_outside(processes: &[Process], reserved: About) -> Option<u64> {
    let mut holding =
        processes.iter().filter(|process| About::from(&process.in_use).covers(reserved).is_yes());
    let first = holding.next()?;
    holding.next().is_none().then_some(first.pid)
}
