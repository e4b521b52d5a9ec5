//! The numbers of a message put together: what it says, and what follows.

use super::about::About;
use crate::allocator::SMALL_SEGMENT;
use crate::message::{Allocation, Process, Wording};
use crate::units::{GIB, MIB};

/// What a process uses outside the allocator without anybody being to blame: the CUDA context, loaded
/// kernels, the workspaces of cuBLAS and cuDNN. Usually 0.3 to 1 GiB, and less on small devices.
pub(super) const USUAL_OUTSIDE: u64 = GIB;
/// [`USUAL_OUTSIDE`] is at most this part of a device.
const USUAL_PARTS: u64 = 8;

/// A segment for requests of more than 1 MiB and less than 10 MiB, and what expandable segments grow by
/// (`kLargeBuffer`); for smaller requests both are [`SMALL_SEGMENT`]. A message does not tell where
/// `large_segment_size_mb` was set.
pub(super) const LARGE_SEGMENT: u64 = 20 * MIB;

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
        let spare_outside = outside.map(|outside| {
            let most =
                capacity.map_or(USUAL_OUTSIDE, |all| USUAL_OUTSIDE.min(all.bytes / USUAL_PARTS));
            let usual = own_outside.unwrap_or(outside).bytes.min(most);
            outside.minus(About::exactly(usual))
        });
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

/// The one process that uses at least what this one's allocator holds. Inside a container a process does
/// not know the number that the driver has for it, and is listed as if it were another.
fn seen_from_outside(processes: &[Process], reserved: About) -> Option<u64> {
    let mut holding =
        processes.iter().filter(|process| About::from(&process.in_use).covers(reserved).is_yes());
    let first = holding.next()?;
    holding.next().is_none().then_some(first.pid)
}
