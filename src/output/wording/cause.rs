//! Why a request failed, in one sentence that begins with the verdict. The bar of memory beside it has the totals.

use std::fmt;

use super::advice::describe_input;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::analysis::failure::{Assumption, CauseNote, DeadEnd, OomReport, Served, VerdictReason};
use crate::analysis::{Advice, DeviceReport};
use crate::base::units::{self, counted, percent, ratio, size};
use crate::study::iterations::GrowthKind;

/// Why `oom`, the last failure of `device`, happened.
pub(crate) fn describe_cause(oom: &OomReport, device: &DeviceReport) -> String {
    let conclusion = device.conclusion.unwrap_or(oom.verdict); // a device with a failure has one
    let is_overruled = conclusion != oom.verdict;
    let first = device.advice.first();
    // If a setting serves the input, its size is not worth a sentence.
    let needs_less = matches!(first, Some(Advice::LimitInput(_) | Advice::Change(..)));
    // The size of an input does not explain why free memory could not be used.
    let input = oom.unusual_input.as_ref().filter(|_| needs_less && conclusion == Verdict::Capacity);
    let why = match (first, device.explaining_growth(oom), input) {
        (_, Some(bytes), _) => describe_growth(oom, device, bytes),
        (Some(Advice::Cure(cure)), ..) => cure.describe_holder(),
        (Some(Advice::Shapes(..)), ..) if is_overruled => {
            "the request is for a table of pairs that the program can do without".to_owned()
        }
        (Some(Advice::GoOn(_)), ..) if is_overruled => {
            "the same memory in another layout serves the request".to_owned()
        }
        (.., Some(input)) if is_overruled => describe_input(input),
        _ if is_overruled => {
            format!("{} is free in pieces, but no layout that was tried serves the request", size(oom.cached_bytes))
        }
        (Some(Advice::RequestLess(_)), ..) => "the request itself is too large".to_owned(),
        (.., Some(input)) => describe_input(input),
        _ => {
            let certainty = if oom.confidence == Certainty::Certain { "" } else { ", probably" };
            let alone = if concerns_one_request(oom) { "; what follows this request is not known" } else { "" };
            return format!("{conclusion}{certainty}: {}{alone}", oom.verdict_reason);
        }
    };
    format!("{conclusion}: {why}")
}

fn describe_growth(oom: &OomReport, device: &DeviceReport, bytes_per_step: u64) -> String {
    let is_replaced = device.leaks.kind == Some(GrowthKind::Replaced);
    let what = if is_replaced { "what is made anew each step is larger by" } else { "each step keeps" };
    let so_far = oom.outlook.growth.map_or_else(String::new, |growth| {
        format!(", {} in the last {}", size(growth.bytes), counted(growth.steps, "step"))
    });
    format!("{what} {}{so_far}; no setting helps for long", size(bytes_per_step))
}

/// Whether the verdict blames free memory that this request could not use, and nothing shows whether the program would
/// go on with it.
fn concerns_one_request(oom: &OomReport) -> bool {
    use Verdict::{Fragmentation, OtherStream, PendingFree, PrivatePool};
    oom.is_rest_unknown && matches!(oom.verdict, Fragmentation | OtherStream | PendingFree | PrivatePool)
}

/// The reason in a sentence. The bar of memory beside it has the totals.
impl fmt::Display for VerdictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dead_end.map_or_else(|| describe_shortage(self), |end| describe_dead_end(end, self)))
    }
}

fn describe_shortage(reason: &VerdictReason) -> String {
    let memory = &reason.memory;
    let largest = memory.largest.unwrap_or_default().bytes;
    let [pending, other_pools, other_streams, own] =
        [memory.pending.all, memory.other_pool, memory.other_stream, memory.own.all].map(|free| size(free.bytes));
    match reason.verdict {
        Verdict::MemoryLimit => format!(
            "a limit of this process or the driver refused it at {} reserved, not the device",
            size(reason.totals.reserved)
        ),
        Verdict::Spurious if memory.request.bytes < reason.max_split_size && largest >= reason.max_split_size => {
            "a free block was large enough, but max_split_size_mb keeps it for larger requests".to_owned()
        }
        Verdict::Spurious => "a free block was large enough; most likely it became free too late".to_owned(),
        Verdict::PendingFree => format!("{pending} was freed and still waits for work on another stream"),
        Verdict::PrivatePool => {
            format!("{other_pools} is free in other pools (CUDA graphs, MemPool), which this request cannot use")
        }
        Verdict::OtherStream => {
            format!("{other_streams} is free in segments of other streams, which this stream cannot use")
        }
        Verdict::Fragmentation => {
            let largest = size(largest);
            format!("{own} is free in pieces of at most {largest}; in one piece it would have served the request")
        }
        Verdict::NonPytorch => {
            format!("{} of the device is in use outside PyTorch's allocator", size(reason.outside_bytes))
        }
        Verdict::Capacity => describe_full_device(reason),
        Verdict::Growth => "each step keeps more".to_owned(),
        Verdict::Unknown => "the trace does not show how much of the freed memory other streams still used".to_owned(),
        Verdict::Served => reason.served.map_or_else(String::new, describe_served),
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
        DeadEnd::Filling(filling) => {
            let (requests, left) = (counted(filling.requests, "request"), size(filling.spare_bytes));
            format!("this line took {} in its last {requests}, and {left} is left", size(filling.bytes))
        }
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
        let more = size(needed - reach);
        return format!("live memory and the request need {more} more than the {within} within reach");
    }
    format!("live memory and the request need {needs}, and {within} is within reach")
}

/// The memory that serves a tried request, and the bytes that are released for it.
fn describe_served((served, released): (Served, u64)) -> String {
    let bytes = size(served.bytes);
    match (served.address, released) {
        (Some(address), _) => format!("from the free block of {bytes} at {address:#x}"),
        (None, 0) => format!("from {bytes} of new memory, free on the device"),
        (None, released) => format!(
            "from {bytes} of new memory, after {} of the cache is released to the device, which is slow",
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
