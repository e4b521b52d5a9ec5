//! The reason of a verdict, and what it rests on.

use std::fmt;

use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{Assumption, CauseNote, DeadEnd, Served, VerdictReason};
use crate::base::units::{self, counted, percent, ratio, size};

/// The reason in a sentence. The bar of memory beside it has the totals.
impl fmt::Display for VerdictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dead_end.map_or_else(|| describe_shortage(self), |end| describe_dead_end(end, self)))
    }
}

fn describe_shortage(reason: &VerdictReason) -> String {
    let memory = &reason.memory;
    let largest = memory.largest.unwrap_or_default().bytes;
    match reason.verdict {
        Verdict::MemoryLimit => format!(
            "a limit of this process or the driver refused it at {} reserved, not the device",
            size(reason.totals.reserved)
        ),
        Verdict::Spurious if memory.request.bytes < reason.max_split_size && largest >= reason.max_split_size => {
            "a free block was large enough, but max_split_size_mb keeps it for larger requests".to_owned()
        }
        Verdict::Spurious => "a free block was large enough; most likely it became free too late".to_owned(),
        Verdict::PendingFree => {
            format!("{} was freed and still waits for work on another stream", size(memory.pending.all.bytes))
        }
        Verdict::PrivatePool => format!(
            "{} is free in other pools (CUDA graphs, MemPool), which this request cannot use",
            size(memory.other_pool.bytes)
        ),
        Verdict::OtherStream => format!(
            "{} is free in segments of other streams, which this stream cannot use",
            size(memory.other_stream.bytes)
        ),
        Verdict::Fragmentation => format!(
            "{} is free in pieces of at most {}; in one piece it would have served the request",
            size(memory.own.all.bytes),
            size(largest)
        ),
        Verdict::NonPytorch => {
            format!("{} of the device is in use outside PyTorch's allocator", size(reason.outside_bytes))
        }
        Verdict::Capacity => describe_full_device(reason),
        Verdict::Growth => "each step keeps more".to_owned(),
        Verdict::Unknown => "the trace does not show how much of the freed memory other streams still used".to_owned(),
        Verdict::Served => {
            reason.served.map_or_else(String::new, |(served, released)| describe_served(served, released))
        }
    }
}

/// Why contiguous memory would not have helped for long.
fn describe_dead_end(dead_end: DeadEnd, reason: &VerdictReason) -> String {
    match dead_end {
        DeadEnd::NextStep(next) => format!(
            "the free memory could serve this request, but those after it need {} more and {} is left",
            size(next.needed_bytes),
            size(next.spare_bytes.unwrap_or(0)) // known: it is less than needed
        ),
        DeadEnd::Filling(filling) => format!(
            "this line took {} in its last {}, and {} is left",
            size(filling.bytes),
            counted(filling.requests, "request"),
            size(filling.spare_bytes)
        ),
        DeadEnd::EverySettingFails => "under every setting that was tried the job fails again".to_owned(),
        DeadEnd::Growth(bytes) => format!("what the program holds grows by {} a step", size(bytes)),
        DeadEnd::Full { unused, reach } => {
            format!("{} of the {} within reach is in use", percent(ratio(reach - unused, reach)), size(reach))
        }
        DeadEnd::ExceedsReach => describe_full_device(reason),
    }
}

fn describe_full_device(reason: &VerdictReason) -> String {
    let [reserved, allocated] =
        [reason.totals.reserved, reason.totals.allocated].map(|bytes| bytes.saturating_sub(reason.asleep_bytes));
    let reach = reserved.saturating_add(reason.memory.device_free.bytes);
    let needed = allocated.saturating_add(reason.memory.request.bytes);
    if needed <= reach {
        return format!("{} is free, but not in one place", size(reach - allocated));
    }
    let [needs, within] = [needed, reach].map(size);
    if needs == within {
        return format!(
            "live memory and the request need {} more than the {within} within reach",
            size(needed - reach)
        );
    }
    format!("live memory and the request need {needs}, and {within} is within reach")
}

/// The memory that serves a tried request.
fn describe_served(served: Served, released: u64) -> String {
    let bytes = size(served.bytes);
    match (served.address, released) {
        (Some(address), _) => format!("from the free block of {bytes} at {address:#x}"),
        (None, 0) => format!("from {bytes} of new memory, free on the device"),
        (None, released) => format!(
            "from {bytes} of new memory, after {} of the cache is released to the device, which \
             is slow",
            size(released)
        ),
    }
}

impl fmt::Display for CauseNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own(largest, is_enough) => {
                let which = if *is_enough { "the largest" } else { "the largest usable block" };
                return write!(f, "free in this pool and stream, {which} {}", size(*largest));
            }
            Self::OtherStream => "free in blocks of other streams, which this stream cannot use",
            Self::PrivatePools => "free in private pools (CUDA graphs, MemPool), which the default pool cannot use",
            Self::OtherPools => "free in other pools, which this private pool cannot use",
            Self::UnknownPool => "free in pools; which private pool the request was for is not recorded",
            Self::Pending => "freed by the program, waiting for work on another stream",
            Self::Outside => "in use outside this allocator: the CUDA context, libraries, other processes",
        })
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Stream(stream) => {
                write!(f, "the request is made on stream {}, in the default pool", units::stream(stream))
            }
            Self::GivenCapacity(bytes) => write!(f, "PyTorch may use the whole capacity of {}", size(bytes)),
            Self::RefusedCapacity(bytes) => write!(f, "{} is within reach, as a failed request shows", size(bytes)),
            Self::RecordedCapacity(bytes) => write!(f, "PyTorch may use the whole device of {}", size(bytes)),
            Self::FullDevice => {
                f.write_str("the device has no free memory; no snapshot records it, so give --capacity")
            }
        }
    }
}
