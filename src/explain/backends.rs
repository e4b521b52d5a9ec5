//! Conclusions for allocators whose messages lack the free memory of the device or of the cache.

use super::advice;
use super::conclusion::{Conclusion, incomplete};
use super::numbers::MessageNumbers;
use crate::allocator::verdict::{ApproxBytes, Likelihood, Verdict, format_approx};

const MONITOR: &str = "nvidia-smi, while the job runs";

/// For Metal: PyTorch sets a limit itself.
pub(super) fn metal(numbers: &MessageNumbers) -> Conclusion {
    let (Some(_), Some(_)) = (numbers.allowed, numbers.request) else { return incomplete(numbers) };
    let parts = numbers.printed.figure("other").zip(numbers.printed.figure("allocated"));
    let others_lead = parts.is_some_and(|(other, allocated)| other.bytes > allocated.bytes);
    let outside = "Find what else of this process uses the Mac's GPU: compiled graphs of many shapes (pad inputs to a few \
                   sizes), other frameworks. torch.mps.empty_cache() does not help: PyTorch emptied its cache before it failed.";
    let own = "Use less memory: a smaller batch or model, lower precision. torch.mps.empty_cache() does not help: PyTorch \
               emptied its cache before it failed.";
    let limit = "PYTORCH_MPS_HIGH_WATERMARK_RATIO raises the limit; 0.0 removes it, and then the whole computer may run out \
                 of memory.";
    Conclusion {
        verdict: Verdict::MemoryLimit,
        is_certain: true,
        ..Conclusion::unknown(
            format!(
                "PyTorch holds {} and other allocations of the process {}. The {} requested would exceed PyTorch's own \
                 limit of {} on the memory that the Mac's CPU and GPU share",
                numbers.text("allocated"),
                numbers.text("other"),
                numbers.text("requested"),
                numbers.text("allowed")
            ),
            vec![if others_lead { outside } else { own }.to_owned(), limit.to_owned()],
        )
    }
}

/// For a platform that limits a single allocation to `limit`.
pub(super) fn block_too_large(numbers: &MessageNumbers, limit: &str) -> Conclusion {
    let split = "Split the tensor: a smaller batch or sequence, attention or a loss in chunks, a model in shards.";
    Conclusion {
        verdict: Verdict::MemoryLimit,
        is_certain: true,
        settings_can_help: Some(false),
        ..Conclusion::unknown(
            format!(
                "{} was requested at once; this platform limits one request to {limit}, even if more is free",
                numbers.text("requested")
            ),
            vec![split.to_owned()],
        )
    }
}

/// For a caching allocator whose message does not have the free memory of the device.
pub(super) fn without_free(numbers: &MessageNumbers, request: ApproxBytes) -> Conclusion {
    let parts = numbers.tensors.zip(numbers.unallocated).zip(numbers.reserved);
    let (Some(capacity), Some(((tensors, unallocated), reserved))) = (numbers.capacity, parts) else {
        return incomplete(numbers);
    };
    let (requested, device) = (numbers.text("requested"), numbers.text("capacity"));
    let fits = capacity.covers(tensors.saturating_add(request));
    let (verdict, reason, advice) = if !fits.is_likely() {
        let reason = format!(
            "the program holds {} and requests {requested} more, together more than the device has ({device})",
            format_approx(tensors)
        );
        (Verdict::Capacity, reason, vec![advice::standard(Verdict::Capacity)])
    } else if unallocated.covers(request).is_likely() && !numbers.is_cache_full(request) {
        let reason = format!(
            "{} is reserved by PyTorch but unallocated; in one piece it would cover the {requested} requested",
            format_approx(unallocated)
        );
        (Verdict::Fragmentation, reason, advice::fragmentation(numbers))
    } else {
        let reason = format!(
            "PyTorch has {} of the device's {device} reserved, and the {requested} requested would also fit: other \
             processes hold the rest, or the driver refuses a request of this size. The message does not show how much \
             is free",
            format_approx(reserved)
        );
        let advice = advice::refusals(numbers).into_iter().chain(advice::outside(numbers)).collect();
        return Conclusion::unknown(reason, advice).settled_by(MONITOR);
    };
    let conclusion = Conclusion {
        verdict,
        is_certain: fits == Likelihood::No,
        within_rounding: fits.is_within_rounding(),
        settings_can_help: (verdict == Verdict::Capacity).then_some(false),
        ..Conclusion::unknown(reason, advice)
    };
    if conclusion.is_certain { conclusion } else { conclusion.settled_by_snapshot() }
}

/// For the backend cudaMallocAsync: the driver keeps the cache, and the message does not have its size.
pub(super) fn asynchronous(numbers: &MessageNumbers) -> Conclusion {
    let (Some(request), Some(free), Some(allocated)) = (numbers.request, numbers.free, numbers.tensors) else {
        return incomplete(numbers);
    };
    let needed = allocated.saturating_add(request);
    let (requested, free_text) = (numbers.text("requested"), numbers.text("free"));
    let exceeds =
        |limit: Option<ApproxBytes>| limit.map(|limit| limit.covers(needed)).filter(|covers| !covers.is_likely());
    let would_hold = format!("with the {requested} requested the program would hold {}", format_approx(needed));
    let (verdict, reason, covers) = if let Some(covers) = exceeds(numbers.allowed) {
        let limit = numbers.text("allowed");
        let reason = format!("{would_hold}, more than its limit of {limit} (set_per_process_memory_fraction)");
        (Verdict::MemoryLimit, reason, covers)
    } else if free.covers(request) == Likelihood::Yes {
        let reason = format!(
            "the device had {free_text} free for the {requested} requested: a limit outside PyTorch or the driver refused \
             it, or the memory was freed only a moment later"
        );
        let conclusion = Conclusion::unknown(reason, advice::refusals(numbers));
        return Conclusion { verdict: Verdict::MemoryLimit, ..conclusion.settled_by(MONITOR) };
    } else if let Some(covers) = exceeds(numbers.capacity) {
        (Verdict::Capacity, format!("{would_hold}, more than the device has ({})", numbers.text("capacity")), covers)
    } else {
        let reason = format!(
            "the program holds {} and requests {requested} more; the device has {free_text} free, {}. The message does \
             not show how much the driver's cache and other processes hold",
            numbers.text("allocated"),
            if free.covers(request).is_likely() { "enough" } else { "too little" }
        );
        return Conclusion::unknown(reason, vec!["Try backend:native, PyTorch's own allocator.".to_owned()])
            .settled_by("the same run with backend:native and a snapshot (cudaMallocAsync records none)");
    };
    Conclusion {
        verdict,
        is_certain: covers == Likelihood::No,
        within_rounding: covers.is_within_rounding(),
        settings_can_help: Some(false),
        ..Conclusion::unknown(
            reason,
            vec!["Use less memory at that moment, or raise the limit if there is one.".to_owned()],
        )
    }
}
