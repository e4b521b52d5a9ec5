//! Messages of allocators that keep no cache of their own, or do not tell of it.

use super::advice;
use super::conclusion::{Conclusion, cut_short, text};
use super::reckoning::Reckoning;
use crate::allocator::verdict::{ApproxBytes, Likelihood, Verdict, format_approx};

/// Metal: a limit that PyTorch sets itself.
pub(super) fn metal(r: &Reckoning) -> Conclusion {
    let allowed = text(r.said.allowed.as_ref());
    let (Some(_), Some(_)) = (r.allowed, r.request) else { return cut_short(r) };
    Conclusion {
        verdict: Verdict::MemoryLimit,
        reason: format!(
            "PyTorch holds {} and other allocations of the process {}; with the {} requested, that \
             exceeds the {allowed} that PyTorch allows itself of the memory shared by the Mac's \
             CPU and GPU",
            text(r.said.allocated.as_ref()),
            text(r.said.other.as_ref()),
            text(r.said.requested.as_ref())
        ),
        is_certain: true,
        advice: vec![
            "Hold less: a smaller batch or model, lower precision. torch.mps.empty_cache() gives back what is cached.".to_owned(),
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO raises the limit; 0.0 removes it, and the whole computer may then run out of memory.".to_owned(),
        ],
        ..Conclusion::unknown("", &[])
    }
}

/// The platform gives no more than so much to one request.
pub(super) fn too_large_a_block(r: &Reckoning, most: &str) -> Conclusion {
    Conclusion {
        verdict: Verdict::MemoryLimit,
        reason: format!(
            "{} was requested at once; this platform gives at most {most} to one request, however much is free",
            text(r.said.requested.as_ref())
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

/// The caching allocator of a device that does not tell how much of it is free.
pub(super) fn without_free(r: &Reckoning, request: ApproxBytes) -> Conclusion {
    let (Some(capacity), Some(tensors), Some(unallocated)) = (r.capacity, r.tensors, r.unallocated)
    else {
        return cut_short(r);
    };
    let (wanted, device) = (text(r.said.requested.as_ref()), text(r.said.capacity.as_ref()));
    let fits = capacity.covers(tensors.saturating_add(request));
    let (verdict, reason, advice) = if !fits.is_likely() {
        (
            Verdict::Capacity,
            format!(
                "the program holds {} and requests {wanted} more, together more than the device has ({device})",
                format_approx(tensors)
            ),
            vec![Verdict::Capacity.advice_text().to_owned()],
        )
    } else if unallocated.covers(request).is_likely() && !r.is_full(request) {
        (
            Verdict::Fragmentation,
            format!(
                "{} is reserved by PyTorch but unallocated; in one piece it would cover the {wanted} requested",
                format_approx(unallocated)
            ),
            advice::fragmentation(r),
        )
    } else {
        let mut advice = advice::outside(r);
        advice.extend(r.vendor.refusals.iter().map(|line| (*line).to_owned()));
        return Conclusion {
            settled_by: Some("nvidia-smi, while the job runs".to_owned()),
            ..Conclusion::unknown(
                &format!(
                    "PyTorch has {} of the device's {device} reserved, and the {wanted} requested would fit beside it: other \
                     processes hold the rest, or the driver refuses a request of this size. The message does not say \
                     how much is free",
                    format_approx(r.reserved.unwrap_or_default())
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

/// The backend cudaMallocAsync: the cache is the driver's, and the message does not say how large it is.
pub(super) fn asynchronous(r: &Reckoning) -> Conclusion {
    let (Some(request), Some(free), Some(allocated)) = (r.request, r.free, r.tensors) else {
        return cut_short(r);
    };
    let held = allocated.saturating_add(request);
    let wanted = text(r.said.requested.as_ref());
    let over = |limit: Option<ApproxBytes>| {
        limit.map(|limit| limit.covers(held)).filter(|a| !a.is_likely())
    };
    if free.covers(request) == Likelihood::Yes && over(r.allowed).is_none() {
        return Conclusion {
            verdict: Verdict::MemoryLimit,
            reason: format!(
                "the device had {} free for the {wanted} requested: a limit outside PyTorch or the driver refused it, or the \
                 memory was freed only a moment later",
                text(r.said.free.as_ref())
            ),
            settled_by: Some("nvidia-smi, while the job runs".to_owned()),
            ..Conclusion::unknown("", r.vendor.refusals)
        };
    }
    let (verdict, reason, answer) = if let Some(answer) = over(r.allowed) {
        (
            Verdict::MemoryLimit,
            format!(
                "with the {wanted} requested the program would hold {}, more than its limit of {} \
                 (set_per_process_memory_fraction)",
                format_approx(held),
                text(r.said.allowed.as_ref())
            ),
            answer,
        )
    } else if let Some(answer) = over(r.capacity) {
        (
            Verdict::Capacity,
            format!(
                "with the {wanted} requested the program would hold {}, more than the device has \
                 ({})",
                format_approx(held),
                text(r.said.capacity.as_ref())
            ),
            answer,
        )
    } else {
        let free = if free.covers(request).is_likely() { "enough" } else { "too little" };
        return Conclusion {
            settled_by: Some(
                "the same run with backend:native and a snapshot (cudaMallocAsync records none)"
                    .to_owned(),
            ),
            ..Conclusion::unknown(
                &format!(
                    "the program holds {} and requests {wanted} more; the device has {} free, \
                     {free}. cudaMallocAsync does not print how much its own cache and others hold",
                    text(r.said.allocated.as_ref()),
                    text(r.said.free.as_ref())
                ),
                &["Try backend:native, PyTorch's own allocator."],
            )
        };
    };
    Conclusion {
        verdict,
        reason,
        is_certain: answer == Likelihood::No,
        within_rounding: answer.is_within_rounding(),
        settings_can_help: Some(false),
        advice: vec!["Hold less at that moment, or raise the limit if there is one.".to_owned()],
        ..Conclusion::unknown("", &[])
    }
}
