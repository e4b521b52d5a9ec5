//! The reason of a verdict, and what it rests on.

use std::fmt;

use crate::allocator::is_small_request;
use crate::allocator::verdict::{MemoryAtFailure, Verdict};
use crate::analysis::failure::{Assumption, CauseNote, DeadEnd, Served, VerdictReason};
use crate::base::units::{self, counted, percent, ratio, size};

/// The reason in a sentence with figures.
impl fmt::Display for VerdictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dead_end = self.dead_end.map_or_else(String::new, describe_dead_end);
        write!(f, "{}{dead_end}", describe_ladder(self))
    }
}

fn describe_ladder(reason: &VerdictReason) -> String {
    let (verdict, c) = (reason.verdict, &reason.memory);
    let (wanted, free) = (size(c.needed_from_device().bytes), size(c.device_free.bytes));
    let covers = format!("with the {free} free on the device, that covers the {wanted} needed");
    if let Some(bytes) = c.unreleased.filter(|_| verdict != Verdict::MemoryLimit) {
        return not_released(bytes.bytes, verdict, &covers);
    }
    match verdict {
        Verdict::MemoryLimit => format!(
            "the device had {free} free, enough for {wanted}, but a process limit \
             (set_per_process_memory_fraction) or the driver refused it at {} reserved; a limit of \
             {} would be enough",
            size(reason.totals.reserved),
            size(reason.totals.reserved.saturating_add(c.segment_in_granules.bytes))
        ),
        Verdict::Spurious => spurious(c, reason.max_split_size),
        Verdict::PendingFree => {
            let pending = size(c.pending.all.bytes);
            let covers = if c.suffices_with_device(c.pending.all).is_likely() {
                covers
            } else {
                format!("that covers the {} requested", size(c.request.bytes))
            };
            format!("{pending} was freed but still in use on other streams; {covers}")
        }
        Verdict::PrivatePool => format!(
            "{} is free in other pools (CUDA graphs, MemPool), which this request cannot use; \
             {covers}",
            size(c.other_pool.bytes)
        ),
        Verdict::OtherStream => format!(
            "{} is free in segments of other streams, which this stream cannot use; {covers}",
            size(c.other_stream.bytes)
        ),
        Verdict::Fragmentation => fragmented(c, &free, &wanted),
        Verdict::NonPytorch => format!(
            "{} of the device is in use outside this allocator (CUDA context, libraries, other \
             processes); with the {free} free, that covers the {wanted} needed",
            size(reason.outside_bytes)
        ),
        Verdict::Capacity => no_single_source(c, reason.totals.active),
        Verdict::Unknown => format!(
            "{} was freed, but the trace does not show how much of it other streams still used: it \
             has no free_completed entries (skip_actions)",
            size(reason.totals.reserved.saturating_sub(reason.totals.active))
        ),
        Verdict::Served => {
            reason.served.map_or_else(String::new, |(served, released)| describe_served(served, released))
        }
    }
}

/// No pool is recorded, and the default pool did not release `bytes`, as it does before a request fails.
fn not_released(bytes: u64, verdict: Verdict, covers: &str) -> String {
    let rest = if verdict == Verdict::PrivatePool {
        format!("; {covers}")
    } else {
        ", nor was the free memory of the request's own pool".to_owned()
    };
    format!(
        "{} of free memory could have been released to the device and was not{rest}. Either the \
         request was for a private pool (use_mem_pool, a graph capture), for which PyTorch up to \
         2.12 releases nothing, or that memory was in a private pool that no longer exists; the \
         trace does not record which",
        size(bytes)
    )
}

fn spurious(c: &MemoryAtFailure, limit: u64) -> String {
    // A trace always shows the largest block, unlike a message.
    let (request, largest) = (c.request.bytes, c.largest.unwrap_or_default().bytes);
    let rule = if request < limit && largest >= limit {
        format!("but max_split_size ({}) keeps blocks of that size for requests of that size", size(limit))
    } else {
        "and no rule excluded it. Most likely it became free while the request waited for other \
         streams: PyTorch does not search again. Repeating the request succeeds \
         (pytorch/pytorch#189504)"
            .to_owned()
    };
    format!("a free block of {} in this pool and stream was large enough, {rule}", size(largest))
}

fn fragmented(c: &MemoryAtFailure, free: &str, wanted: &str) -> String {
    let pieces = if c.own.in_place.bytes == 0 {
        let which = if is_small_request(c.request.bytes) { "larger than" } else { "up to" };
        format!("only in blocks for requests {which} 1 MiB")
    } else {
        // A trace always shows it, unlike a message.
        format!("the largest piece is {}", size(c.largest.unwrap_or_default().bytes))
    };
    let covers = if c.suffices_with_device(c.own.all).is_likely() {
        format!(
            "In one piece, with the {free} free on the device, it would cover the {wanted} \
             needed"
        )
    } else {
        format!("In one piece it would cover the {} requested", size(c.request.bytes))
    };
    format!("{} is free in this pool and stream, but {pieces}. {covers}", size(c.own.all.bytes))
}

/// Why contiguous memory would not have helped for long.
fn describe_dead_end(dead_end: DeadEnd) -> String {
    match dead_end {
        DeadEnd::Growth(bytes_per_step) => format!(
            ", but what the program holds grows by {} a step, which no layout makes room for long",
            size(bytes_per_step)
        ),
        DeadEnd::NextStep(next) => format!(
            ", but the requests after it need {} more, and {} would be left",
            size(next.needed_bytes),
            size(next.spare_bytes.unwrap_or(0)) // known: it is less than needed
        ),
        DeadEnd::Filling(filling) => format!(
            ", but this line took {} in its last {}, and {} would be left",
            size(filling.bytes),
            counted(filling.requests, "request"),
            size(filling.spare_bytes)
        ),
        DeadEnd::EverySettingFails => ", but under every setting that was tried the job fails again".to_owned(),
        DeadEnd::ExceedsReach => ", but with what the program holds that exceeds what it may reserve".to_owned(),
        DeadEnd::Full { unused, reach } => format!(
            ", but the device is full: {} of the {} within reach is in use",
            percent(ratio(reach - unused, reach)),
            size(reach)
        ),
    }
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
/// Why no single source of memory would have been enough, with `active` bytes in use.
fn no_single_source(c: &MemoryAtFailure, active: u64) -> String {
    let (own, device_free, wanted) = (c.own.all.bytes, c.device_free.bytes, c.needed_from_device().bytes);
    let (other_stream, other_pool) = (c.other_stream.bytes, c.other_pool.bytes);
    let cache = own.saturating_add(other_stream).saturating_add(other_pool);
    let all = cache.saturating_add(device_free);
    let (held, request) = (size(active), size(c.request.bytes));
    if all >= wanted {
        let kinds = [
            (device_free, "on the device"),
            (own, "in this pool and stream"),
            (other_stream, "in other streams' segments"),
            (other_pool, "in other pools"),
        ];
        let parts = kinds.iter().filter(|(bytes, _)| *bytes > 0);
        let parts: Vec<String> = parts.map(|(bytes, place)| format!("{} {place}", size(*bytes))).collect();
        return format!(
            "the program holds {held} and requests {request} more; {} is free, but not in one \
             place ({})",
            size(all),
            parts.join(", ")
        );
    }
    let segment =
        if all >= c.request.bytes { format!(", which takes a segment of {}", size(wanted)) } else { String::new() };
    format!(
        "the program holds {held} and requests {request} more{segment}; the device and the cache \
         have {} free",
        size(all)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::verdict::{ApproxBytes, FreeMemory};
    use crate::base::units::MIB;

    #[test]
    fn a_full_device_differs_from_one_without_a_single_large_enough_source() {
        let mib = |n: u64| ApproxBytes::exact(n * MIB);
        let tight = MemoryAtFailure {
            request: mib(100),
            segment: mib(100),
            segment_in_granules: mib(100),
            device_free: mib(10),
            ..MemoryAtFailure::default()
        };
        let reason = |c: &MemoryAtFailure| no_single_source(c, 1000 * MIB);
        assert!(reason(&tight).ends_with("the device and the cache have 10 MiB free"), "{}", reason(&tight));
        let own = FreeMemory { all: mib(40), in_place: mib(40) };
        let c = MemoryAtFailure { own, other_stream: mib(40), other_pool: mib(40), ..tight };
        let parts = "130 MiB is free, but not in one place (10 MiB on the";
        assert!(reason(&c).contains(parts), "{}", reason(&c));
        let c = MemoryAtFailure { request: mib(9), segment: mib(20), segment_in_granules: mib(20), ..tight };
        assert!(reason(&c).contains("takes a segment of 20 MiB; the device"), "{}", reason(&c));
    }
}
