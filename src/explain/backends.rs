//! Conclusions for allocators whose messages lack the free memory of the device or of the cache.

use super::advice;
use super::conclusion::{Conclusion, amount_text, incomplete};
use super::numbers::MessageNumbers;
use super::standard_advice::StandardAdvice;
use crate::allocator::verdict::{ApproxBytes, Likelihood, Verdict, format_approx};

/// For Metal: PyTorch sets a limit itself.
pub(super) fn metal(numbers: &MessageNumbers) -> Conclusion {
    let allowed = amount_text(numbers.printed.allowed.as_ref());
    let (Some(_), Some(_)) = (numbers.allowed, numbers.request) else { return incomplete(numbers) };
    Conclusion {
        verdict: Verdict::MemoryLimit,
        reason: format!(
            "PyTorch holds {} and other allocations of the process {}. The {} requested would exceed PyTorch's own \
             limit of {allowed} on the memory that the Mac's CPU and GPU share",
            amount_text(numbers.printed.allocated.as_ref()),
            amount_text(numbers.printed.other.as_ref()),
            amount_text(numbers.printed.requested.as_ref())
        ),
        is_certain: true,
        advice: vec![
            "Use less memory: a smaller batch or model, lower precision. torch.mps.empty_cache() releases the cache.".to_owned(),
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO raises the limit; 0.0 removes it, and then the whole computer may run out of memory.".to_owned(),
        ],
        ..Conclusion::unknown("", &[])
    }
}

/// For a platform that limits a single allocation to `limit`.
pub(super) fn block_too_large(numbers: &MessageNumbers, limit: &str) -> Conclusion {
    Conclusion {
        verdict: Verdict::MemoryLimit,
        reason: format!(
            "{} was requested at once; this platform limits one request to {limit}, even if more is free",
            amount_text(numbers.printed.requested.as_ref())
        ),
        is_certain: true,
        settings_can_help: Some(false),
        advice: vec![
            "Split the tensor: a smaller batch or sequence, attention or a loss in chunks, a model in shards."
                .to_owned(),
        ],
        ..Conclusion::unknown("", &[])
    }
}

/// For a caching allocator whose message does not have the free memory of the device.
pub(super) fn without_free(numbers: &MessageNumbers, request: ApproxBytes) -> Conclusion {
    let parts = numbers.tensors.zip(numbers.unallocated).zip(numbers.reserved);
    let (Some(capacity), Some(((tensors, unallocated), reserved))) = (numbers.capacity, parts) else {
        return incomplete(numbers);
    };
    let (requested, device) =
        (amount_text(numbers.printed.requested.as_ref()), amount_text(numbers.printed.capacity.as_ref()));
    let fits = capacity.covers(tensors.saturating_add(request));
    let (verdict, reason, advice) = if !fits.is_likely() {
        (
            Verdict::Capacity,
            format!(
                "the program holds {} and requests {requested} more, together more than the device has ({device})",
                format_approx(tensors)
            ),
            vec![StandardAdvice::for_verdict(Verdict::Capacity).text.to_owned()],
        )
    } else if unallocated.covers(request).is_likely() && !numbers.is_cache_full(request) {
        (
            Verdict::Fragmentation,
            format!(
                "{} is reserved by PyTorch but unallocated; in one piece it would cover the {requested} requested",
                format_approx(unallocated)
            ),
            advice::fragmentation(numbers),
        )
    } else {
        let mut advice = advice::outside(numbers);
        advice.extend(numbers.vendor.refusals.iter().map(|line| (*line).to_owned()));
        return Conclusion {
            settled_by: Some("nvidia-smi, while the job runs".to_owned()),
            ..Conclusion::unknown(
                &format!(
                    "PyTorch has {} of the device's {device} reserved, and the {requested} requested would also fit: other \
                     processes hold the rest, or the driver refuses a request of this size. The message does not show \
                     how much is free",
                    format_approx(reserved)
                ),
                &advice.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        };
    };
    let conclusion = Conclusion {
        verdict,
        reason,
        is_certain: fits == Likelihood::No,
        within_rounding: fits.is_within_rounding(),
        settings_can_help: (verdict == Verdict::Capacity).then_some(false),
        advice,
        ..Conclusion::unknown("", &[])
    };
    if conclusion.is_certain { conclusion } else { conclusion.settled_by_snapshot() }
}

/// For the backend cudaMallocAsync: the driver keeps the cache, and the message does not have its size.
pub(super) fn asynchronous(numbers: &MessageNumbers) -> Conclusion {
    let (Some(request), Some(free), Some(allocated)) = (numbers.request, numbers.free, numbers.tensors) else {
        return incomplete(numbers);
    };
    let needed = allocated.saturating_add(request);
    let requested = amount_text(numbers.printed.requested.as_ref());
    let exceeds =
        |limit: Option<ApproxBytes>| limit.map(|limit| limit.covers(needed)).filter(|covers| !covers.is_likely());
    if free.covers(request) == Likelihood::Yes && exceeds(numbers.allowed).is_none() {
        return Conclusion {
            verdict: Verdict::MemoryLimit,
            reason: format!(
                "the device had {} free for the {requested} requested: a limit outside PyTorch or the driver refused it, or the \
                 memory was freed only a moment later",
                amount_text(numbers.printed.free.as_ref())
            ),
            settled_by: Some("nvidia-smi, while the job runs".to_owned()),
            ..Conclusion::unknown("", numbers.vendor.refusals)
        };
    }
    let (verdict, reason, covers) = if let Some(covers) = exceeds(numbers.allowed) {
        (
            Verdict::MemoryLimit,
            format!(
                "with the {requested} requested the program would hold {}, more than its limit of {} \
                 (set_per_process_memory_fraction)",
                format_approx(needed),
                amount_text(numbers.printed.allowed.as_ref())
            ),
            covers,
        )
    } else if let Some(covers) = exceeds(numbers.capacity) {
        (
            Verdict::Capacity,
            format!(
                "with the {requested} requested the program would hold {}, more than the device has \
                 ({})",
                format_approx(needed),
                amount_text(numbers.printed.capacity.as_ref())
            ),
            covers,
        )
    } else {
        let free = if free.covers(request).is_likely() { "enough" } else { "too little" };
        return Conclusion {
            settled_by: Some(
                "the same run with backend:native and a snapshot (cudaMallocAsync records none)".to_owned(),
            ),
            ..Conclusion::unknown(
                &format!(
                    "the program holds {} and requests {requested} more; the device has {} free, \
                     {free}. The message does not show how much the driver's cache and other processes hold",
                    amount_text(numbers.printed.allocated.as_ref()),
                    amount_text(numbers.printed.free.as_ref())
                ),
                &["Try backend:native, PyTorch's own allocator."],
            )
        };
    };
    Conclusion {
        verdict,
        reason,
        is_certain: covers == Likelihood::No,
        within_rounding: covers.is_within_rounding(),
        settings_can_help: Some(false),
        advice: vec!["Use less memory at that moment, or raise the limit if there is one.".to_owned()],
        ..Conclusion::unknown("", &[])
    }
}
