//! The numbers of a message, printed and computed.

use itertools::Itertools as _;

use crate::allocator::SMALL_SEGMENT;
use crate::allocator::verdict::{
    ApproxBytes, FreeMemory, Likelihood, MemoryAtFailure, USUAL_OUTSIDE, reclaimable_outside,
};
use crate::base::units::MIB;
use crate::explain::message::{FailedAllocation, Process, Wording};
use crate::explain::table::{PrintedAmount, Vendor, vendor};

/// A segment for requests of more than 1 MiB and less than 10 MiB, and what expandable segments grow by
/// (`kLargeBuffer`); for smaller requests both are [`SMALL_SEGMENT`]. Messages do not show
/// `large_segment_size_mb`.
const LARGE_SEGMENT: u64 = 20 * MIB;

/// A cache with more than 1/24 (4%) of itself free is fragmented; any busy cache has less. Messages from devices that
/// were simply full have 1 to 4%.
const BUSY_CACHE_DIVISOR: u64 = 24;
/// A request of at most 1/32 of the device is small: if fragmentation makes it fail, the next request fails too.
const SMALL_REQUEST_DIVISOR: u64 = 32;
/// Processes are equal if their memory differs from the median by at most 1/8 of it.
const EQUAL_PROCESS_DIVISOR: u64 = 8;
/// This number of equal processes is no coincidence.
const MIN_EQUAL_PROCESSES: usize = 3;
/// Memory outside PyTorch counts from 1/16 of the device on; a desktop uses less.
const SIGNIFICANT_OUTSIDE_DIVISOR: u64 = 16;

/// The numbers of a message, and those computed from them. A number that cannot be computed is absent.
#[derive(Debug)]
pub(super) struct MessageNumbers {
    /// The parsed message; `expandable` may also come from other lines of the log.
    pub(super) printed: FailedAllocation,
    pub(super) vendor: &'static Vendor,
    /// More than 2^60 bytes were requested.
    pub(super) is_impossible_size: bool,
    pub(super) request: Option<ApproxBytes>,
    pub(super) capacity: Option<ApproxBytes>,
    pub(super) free: Option<ApproxBytes>,
    pub(super) allowed: Option<ApproxBytes>,
    /// Allocated memory, without the free memory of private pools.
    pub(super) tensors: Option<ApproxBytes>,
    /// Free in private pools.
    pub(super) private_free: ApproxBytes,
    /// Free memory in the cache, outside private pools.
    pub(super) unallocated: Option<ApproxBytes>,
    pub(super) reserved: Option<ApproxBytes>,
    /// Memory of the device in use outside the allocator.
    pub(super) outside: Option<ApproxBytes>,
    /// The part of `outside` that this process uses, if known.
    pub(super) this_process_outside: Option<ApproxBytes>,
    /// The part of `outside` that could be freed.
    pub(super) reclaimable_outside: Option<ApproxBytes>,
    /// The listed process that is probably this one, under its PID outside the container.
    pub(super) this_pid: Option<u64>,
}

impl MessageNumbers {
    pub(super) fn from_allocation(printed: FailedAllocation, text: &str) -> Self {
        let (capacity, free) = (printed.amount("capacity"), printed.amount("free"));
        // PyTorch prints private pools only if they hold memory.
        let private = printed.amount("private_pools").unwrap_or_default();
        let (allocated, reserved) = (printed.amount("allocated"), printed.amount("reserved"));
        // Messages of Metal and cudaMallocAsync do not have the size of the cache.
        let has_cache = !matches!(printed.wording, Wording::Async | Wording::Mps);
        let unallocated = printed.amount("unallocated").or_else(|| Some(reserved?.saturating_sub(allocated?)));
        let unallocated = unallocated.filter(|_| has_cache);
        let reserved = reserved.or_else(|| Some(allocated?.saturating_add(unallocated?)));
        let used = capacity.zip(free).map(|(capacity, free)| capacity.saturating_sub(free));
        let outside = used.zip(reserved).map(|(used, reserved)| used.saturating_sub(reserved));
        let outside = outside.or_else(|| printed.amount("other"));
        let this_process = printed.amount("this_process");
        let unlisted = reserved.filter(|_| this_process.is_none());
        let this_pid = unlisted.and_then(|reserved| find_this_process(&printed.processes, reserved));
        let this_process = this_process.or_else(|| {
            let listed = printed.processes.iter().find(|process| Some(process.pid) == this_pid)?;
            Some(ApproxBytes::from(&listed.in_use))
        });
        let this_process_outside = this_process.zip(reserved).map(|(used, reserved)| used.saturating_sub(reserved));
        let is_alone = printed.processes.iter().all(|process| Some(process.pid) == this_pid);
        let reclaimable = outside.map(|outside| match outside.bytes {
            // Nothing shows that another process uses the device, and a context explains as much.
            ..=USUAL_OUTSIDE if is_alone => ApproxBytes::default(),
            _ => reclaimable_outside(outside, this_process_outside, capacity),
        });
        Self {
            is_impossible_size: text.contains("more than 1EB"),
            request: printed.amount("requested"),
            allowed: printed.amount("allowed"),
            tensors: allocated.map(|allocated| allocated.saturating_sub(private)),
            capacity,
            free,
            private_free: private,
            unallocated,
            reserved,
            outside,
            this_process_outside,
            reclaimable_outside: reclaimable,
            this_pid,
            vendor: vendor(&printed.backend),
            printed,
        }
    }

    /// The input of the verdict ladder. Free memory of the cache, outside private pools, is one number: messages do not
    /// show streams and pools.
    pub(super) fn memory_at_failure(&self, request: ApproxBytes, free: ApproxBytes) -> MemoryAtFailure {
        let none = ApproxBytes::default();
        // Memory that the message does not show cannot lead to a verdict.
        let [cached, outside] = [self.unallocated, self.reclaimable_outside].map(Option::unwrap_or_default);
        let (private, cache) = (self.private_free, cached.saturating_add(self.private_free));
        let is_busy = self.reserved.is_some_and(|all| cache.bytes <= all.bytes / BUSY_CACHE_DIVISOR);
        let (cached, private, left) = match self.is_cache_full(request) {
            true if is_busy => (none, none, cache),
            true => (none, private, cached),
            false => (cached, private, none),
        };
        let (outside, desktop) = if self.is_outside_significant() { (outside, none) } else { (none, outside) };
        MemoryAtFailure {
            request: self.min_request().unwrap_or(request),
            segment: request,
            segment_in_granules: self.max_segment(request),
            device_free: free,
            own: FreeMemory { all: cached, ..FreeMemory::default() },
            other_pool: private,
            outside,
            own_includes_others: true,
            usual_reclaimable: left.saturating_add(desktop),
            is_outside_first: outside.bytes > cached.saturating_add(private).bytes,
            ..MemoryAtFailure::default()
        }
    }

    /// True if the cache is as full as caches get and the request is small, so fragmentation is not the cause.
    pub(super) fn is_cache_full(&self, request: ApproxBytes) -> bool {
        let device = self.capacity.or(self.reserved);
        let is_small = device.is_some_and(|device| request.bytes <= device.bytes / SMALL_REQUEST_DIVISOR);
        let parts = self.unallocated.zip(self.reserved);
        is_small && parts.is_some_and(|(left, all)| left.bytes <= all.bytes / BUSY_CACHE_DIVISOR)
    }

    /// True if `amount` alone is larger than the device.
    pub(super) fn exceeds_capacity(&self, amount: ApproxBytes) -> bool {
        self.capacity.is_some_and(|capacity| capacity.covers(amount) == Likelihood::No)
    }

    /// True if no device of this size could serve the request.
    pub(super) fn is_wrong_size(&self) -> bool {
        self.is_impossible_size || self.request.is_some_and(|request| self.exceeds_capacity(request))
    }

    /// True if PyTorch has more reserved than the device has: Windows adds host memory ("shared GPU memory").
    pub(super) fn exceeds_device(&self) -> bool {
        self.reserved.is_some_and(|reserved| self.exceeds_capacity(reserved))
    }

    /// True if others use more of the device than a desktop does.
    pub(super) fn is_outside_significant(&self) -> bool {
        let Some((outside, all)) = self.reclaimable_outside.zip(self.capacity) else { return false }; // unknown
        outside.bytes > 0 && outside.bytes >= all.bytes / SIGNIFICANT_OUTSIDE_DIVISOR
    }

    /// True if next to nothing of the device is free.
    pub(super) fn has_little_free(&self) -> bool {
        self.free.zip(self.capacity).is_some_and(|(free, all)| free.bytes <= all.bytes / SMALL_REQUEST_DIVISOR)
    }

    /// The largest possible request to the device: expandable segments grow by whole granules.
    fn max_segment(&self, request: ApproxBytes) -> ApproxBytes {
        if self.printed.expandable != Some(true) {
            return request;
        }
        let granule = if request.bytes == SMALL_SEGMENT { SMALL_SEGMENT } else { LARGE_SEGMENT };
        ApproxBytes { bytes: request.bytes.checked_next_multiple_of(granule).unwrap_or(request.bytes), ..request }
    }

    /// The smallest possible request: small requests share segments of one size.
    pub(super) fn min_request(&self) -> Option<ApproxBytes> {
        let request = self.request?;
        Some(match request.bytes {
            SMALL_SEGMENT => ApproxBytes::exact(1),
            LARGE_SEGMENT => ApproxBytes::exact(MIB + 1),
            _ => request,
        })
    }

    /// Processes other than this one, as far as known, the largest first.
    pub(super) fn other_processes(&self) -> Vec<&Process> {
        let others = self.printed.processes.iter().filter(|process| Some(process.pid) != self.this_pid);
        others.sorted_by_key(|process| std::cmp::Reverse(process.in_use.bytes)).collect()
    }

    /// The number of other processes that use about as much as each other, and what one of them uses: ranks of one job,
    /// which did not choose a device.
    pub(super) fn equal_processes(&self) -> Option<(usize, u64)> {
        let others = self.other_processes();
        let median = others.get(others.len() / 2)?.in_use.bytes;
        let differences = others.iter().map(|process| process.in_use.bytes.abs_diff(median));
        let count = differences.filter(|difference| *difference <= median / EQUAL_PROCESS_DIVISOR).count();
        (count >= MIN_EQUAL_PROCESSES).then_some((count, median))
    }

    /// The likelihood that the process' own limit refuses the request; `None` without a limit.
    pub(super) fn exceeds_limit(&self, request: ApproxBytes) -> Option<Likelihood> {
        let (allowed, reserved) = self.allowed.zip(self.reserved)?;
        Some(match allowed.covers(reserved.saturating_add(request)) {
            Likelihood::Yes => Likelihood::No,
            Likelihood::No => Likelihood::Yes,
            Likelihood::Perhaps => Likelihood::PerhapsNot,
            Likelihood::PerhapsNot => Likelihood::Perhaps,
        })
    }

    /// True if the message says that more is free than the device has: its numbers do not belong together.
    pub(super) fn is_contradictory(&self) -> bool {
        self.free.is_some_and(|free| self.exceeds_capacity(free))
    }
}

impl From<&PrintedAmount> for ApproxBytes {
    fn from(amount: &PrintedAmount) -> Self {
        Self { bytes: amount.bytes, error: amount.error_bytes }
    }
}

/// The smallest process that uses at least the `reserved` bytes of this one's allocator. Inside a container, a process
/// does not know its PID outside, so PyTorch lists it as if it were another process.
fn find_this_process(processes: &[Process], reserved: ApproxBytes) -> Option<u64> {
    let holders = processes.iter().filter(|process| ApproxBytes::from(&process.in_use).covers(reserved).is_likely());
    let smallest = holders.min_by_key(|process| process.in_use.bytes)?;
    (reserved.bytes > 0).then_some(smallest.pid)
}
