//! The numbers of a message put together: what it says, and what follows.

use crate::allocator::SMALL_SEGMENT;
use crate::allocator::verdict::{ApproxBytes, FreeMemory, MemoryAtFailure, reclaimable_outside};
use crate::base::units::MIB;
use crate::explain::message::{Allocation, PrintedAmount, Process, Wording};
use crate::explain::systems::{Vendor, vendor};

/// A segment for requests of more than 1 MiB and less than 10 MiB, and what expandable segments grow by
/// (`kLargeBuffer`); for smaller requests both are [`SMALL_SEGMENT`]. A message does not tell where
/// `large_segment_size_mb` was set.
const LARGE_SEGMENT: u64 = 20 * MIB;

/// A cache that has more than this part of itself free (4%) is in pieces; less is what any busy cache has. Messages of
/// devices that were simply full have 1 to 4%.
const BUSY_PARTS: u64 = 24;
/// A request of at most this part of the device is small: where it fails for lack of pieces, the next one would too.
const SMALL_PARTS: u64 = 32;
/// What others hold beyond the usual tells something from this part of the device on; less is a desktop.
const TELLING_PARTS: u64 = 16;

/// A message's numbers and what follows from them. What does not follow is absent.
#[derive(Debug)]
pub(super) struct Reckoning {
    /// As read, with what else the log tells.
    pub(super) said: Allocation,
    pub(super) vendor: &'static Vendor,
    /// More than any machine has was asked for.
    pub(super) is_absurd: bool,
    pub(super) request: Option<ApproxBytes>,
    pub(super) capacity: Option<ApproxBytes>,
    pub(super) free: Option<ApproxBytes>,
    pub(super) allowed: Option<ApproxBytes>,
    /// Handed out, without what private pools have free.
    pub(super) tensors: Option<ApproxBytes>,
    /// Free in private pools.
    pub(super) private: ApproxBytes,
    /// In the cache outside private pools, not handed out.
    pub(super) unallocated: Option<ApproxBytes>,
    /// All that the allocator holds.
    pub(super) reserved: Option<ApproxBytes>,
    /// Of the device, in use outside the allocator.
    pub(super) outside: Option<ApproxBytes>,
    /// The part of `outside` that is this process' own, where that is known.
    pub(super) own_outside: Option<ApproxBytes>,
    /// The part of `outside` that somebody could give back.
    pub(super) spare_outside: Option<ApproxBytes>,
    /// The process among those named by number that seems to be this one, seen from outside its container.
    pub(super) this_pid: Option<u64>,
}

impl Reckoning {
    pub(super) fn of(said: Allocation, text: &str) -> Self {
        let about = |amount: &Option<_>| amount.as_ref().map(ApproxBytes::from);
        let (capacity, free) = (about(&said.capacity), about(&said.free));
        let private = about(&said.private_pools).unwrap_or_default();
        let allocated = about(&said.allocated);
        // Metal and cudaMallocAsync say nothing of a cache.
        let has_cache = !matches!(said.wording, Wording::Async | Wording::Mps);
        let unallocated = about(&said.unallocated)
            .or_else(|| Some(about(&said.reserved)?.saturating_sub(allocated?)))
            .filter(|_| has_cache);
        let reserved =
            about(&said.reserved).or_else(|| Some(allocated?.saturating_add(unallocated?)));
        let outside = match (capacity, free, reserved) {
            (Some(capacity), Some(free), Some(reserved)) => {
                Some(capacity.saturating_sub(free).saturating_sub(reserved))
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
            said.processes.iter().find(of_pid).map(|process| ApproxBytes::from(&process.in_use))
        });
        let own_outside = this.zip(reserved).map(|(this, reserved)| this.saturating_sub(reserved));
        let spare_outside =
            outside.map(|outside| reclaimable_outside(outside, own_outside, capacity));
        Self {
            is_absurd: text.contains("more than 1EB"),
            request: about(&said.requested),
            allowed: about(&said.allowed),
            tensors: allocated.map(|allocated| allocated.saturating_sub(private)),
            capacity,
            free,
            private,
            unallocated,
            reserved,
            outside,
            own_outside,
            spare_outside,
            this_pid,
            vendor: vendor(&said.backend),
            said,
        }
    }

    /// What the ladder goes by: all that is free in the cache, outside private pools, is one figure.
    pub(super) fn circumstances(&self, request: ApproxBytes, free: ApproxBytes) -> MemoryAtFailure {
        let none = ApproxBytes::default();
        let cached = self.unallocated.unwrap_or_default();
        let outside = self.spare_outside.unwrap_or_default();
        let (cached, left) = if self.is_full(request) { (none, cached) } else { (cached, none) };
        let (outside, desktop) =
            if self.is_outside_telling() { (outside, none) } else { (none, outside) };
        MemoryAtFailure {
            request: self.least_request().unwrap_or(request),
            segment: request,
            segment_in_granules: self.most_taken(request),
            device_free: free,
            own: FreeMemory { all: cached, ..FreeMemory::default() },
            other_pool: self.private,
            outside,
            own_includes_others: true,
            usual_reclaimable: left.saturating_add(desktop),
            is_outside_first: outside.bytes > cached.saturating_add(self.private).bytes,
            ..MemoryAtFailure::default()
        }
    }

    /// Whether the cache is as full as caches get, and the request small: pieces are not what is lacking.
    pub(super) fn is_full(&self, request: ApproxBytes) -> bool {
        let device = self.capacity.or(self.reserved).unwrap_or_default().bytes;
        let is_small = request.bytes <= device / SMALL_PARTS;
        let parts = self.unallocated.zip(self.reserved);
        is_small && parts.is_some_and(|(left, all)| left.bytes <= all.bytes / BUSY_PARTS)
    }

    /// Whether others hold more of the device than a desktop does.
    pub(super) fn is_outside_telling(&self) -> bool {
        let parts = self.spare_outside.zip(self.capacity);
        parts
            .is_some_and(|(spare, all)| spare.bytes > 0 && spare.bytes >= all.bytes / TELLING_PARTS)
    }

    /// Whether next to nothing of the device is free.
    pub(super) fn has_little_free(&self) -> bool {
        let parts = self.free.zip(self.capacity);
        parts.is_some_and(|(free, all)| free.bytes <= all.bytes / SMALL_PARTS)
    }

    /// The most that the device is asked for: expandable segments grow by whole granules.
    fn most_taken(&self, request: ApproxBytes) -> ApproxBytes {
        if self.said.expandable != Some(true) {
            return request;
        }
        let granule = if request.bytes == SMALL_SEGMENT { SMALL_SEGMENT } else { LARGE_SEGMENT };
        let bytes = request.bytes.checked_next_multiple_of(granule).unwrap_or(request.bytes);
        ApproxBytes { bytes, ..request }
    }

    /// The least that the request itself can have been: small ones are cut from segments of one size.
    pub(super) fn least_request(&self) -> Option<ApproxBytes> {
        let request = self.request?;
        Some(match request.bytes {
            SMALL_SEGMENT => ApproxBytes::exact(1),
            LARGE_SEGMENT => ApproxBytes::exact(MIB + 1),
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

impl From<&PrintedAmount> for ApproxBytes {
    fn from(amount: &PrintedAmount) -> Self {
        Self { bytes: amount.bytes, error: amount.error_bytes }
    }
}

/// The process that uses at least what this one's allocator holds, and no more than another such. Inside a container
/// a process does not know the number that the driver has for it, and is listed as if it were another.
fn seen_from_outside(processes: &[Process], reserved: ApproxBytes) -> Option<u64> {
    let holds =
        |process: &&Process| ApproxBytes::from(&process.in_use).covers(reserved).is_likely();
    let least = processes.iter().filter(holds).min_by_key(|process| process.in_use.bytes)?;
    (reserved.bytes > 0).then_some(least.pid)
}
