//! Why a request failed, as far as its message tells.
//!
//! The verdict is that of the one ladder ([`rule`]); here it is put into words. A message says neither which
//! stream and pool the free memory belongs to, nor in how many pieces it lies.

use super::conclusion::{Conclusion, cut_short, text};
use super::reckoning::Reckoning;
use super::{advice, backends};
use crate::allocator::verdict::{
    ApproxBytes, Cause, Likelihood, MemoryAtFailure, Verdict, decide, format_approx, largest_first,
};
use crate::explain::message::Wording;

/// Says what `r` comes to.
pub(super) fn conclude(r: &Reckoning) -> Conclusion {
    said_for_cuda(r).in_words_of(r.vendor)
}

fn said_for_cuda(r: &Reckoning) -> Conclusion {
    if r.is_absurd {
        return Conclusion {
            is_certain: true,
            settings_can_help: Some(false),
            ..Conclusion::unknown(
                "more than 2^60 bytes were requested, which no machine has: a size was computed \
                 wrongly",
                &["Check the shapes at the line above: a negative or uninitialised size, or a \
                     product of sizes that overflowed."],
            )
        };
    }
    if let Some(most) = &r.said.block_limit {
        return backends::too_large_a_block(r, &most.text);
    }
    match r.said.wording {
        Wording::Mps => backends::metal(r),
        Wording::Async => backends::asynchronous(r),
        _ => match (r.request, r.free) {
            (Some(request), Some(free)) => native(r, request, free),
            (Some(request), None) => backends::without_free(r, request),
            _ => cut_short(r),
        },
    }
}

/// What the caching allocator says since 1.0.
fn native(r: &Reckoning, request: ApproxBytes, free: ApproxBytes) -> Conclusion {
    let c = r.circumstances(request, free);
    let ruling = decide(&c);
    let over_limit = over_limit(r, request);
    let base = Conclusion {
        verdict: ruling.verdict,
        is_certain: ruling.is_certain,
        within_rounding: ruling.within_rounding,
        settings_can_help: settings_can_help(r, free),
        causes: causes(r),
        ..Conclusion::unknown("", &[])
    };
    if ruling.verdict == Verdict::MemoryLimit {
        return if is_of_others(r) {
            freed_since(r, base)
        } else {
            limited(r, request, over_limit, base)
        };
    }
    let Some((reserved, unallocated)) = r.reserved.zip(r.unallocated) else {
        return Conclusion { causes: base.causes, ..cut_short(r) };
    };
    let wanted = wanted_text(r, request, &c);
    let conclusion = match ruling.verdict {
        Verdict::PrivatePool => of_private_pools(r, &c, &wanted, base),
        Verdict::Fragmentation => in_pieces(r, unallocated, &wanted, base),
        Verdict::NonPytorch => outside(r, reserved, &wanted, base),
        verdict => {
            debug_assert_eq!(verdict, Verdict::Capacity, "a message has no other");
            full(r, &c, &wanted, base)
        }
    };
    let mut advice = conclusion.advice;
    if over_limit.is_some_and(Likelihood::is_likely) {
        advice.push(format!(
            "The limit of {} would also have refused this request: with the {} reserved it comes \
             to {}.",
            text(r.said.allowed.as_ref()),
            format_approx(reserved),
            format_approx(reserved.saturating_add(request))
        ));
    }
    Conclusion { advice, ..conclusion }
}

/// What was asked of the device, in words.
fn wanted_text(r: &Reckoning, request: ApproxBytes, c: &MemoryAtFailure) -> String {
    let asked = text(r.said.requested.as_ref());
    let wanted = c.needed_from_device();
    if wanted == request {
        return asked.to_owned();
    }
    format!("{} (whole granules of an expandable segment, for {asked})", format_approx(wanted))
}

fn of_private_pools(
    r: &Reckoning,
    c: &MemoryAtFailure,
    wanted: &str,
    base: Conclusion,
) -> Conclusion {
    let mut advice = vec![Verdict::PrivatePool.advice_text().to_owned()];
    if c.suffices_with_device(c.own.all).is_likely() {
        advice.extend(advice::fragmentation(r));
    }
    Conclusion {
        reason: format!(
            "{} is free in private pools (CUDA graphs, MemPool), which the message counts as \
             allocated; with the {} free on the device, that covers the {wanted} requested, but no \
             request outside those pools can use it",
            text(r.said.private_pools.as_ref()),
            text(r.said.free.as_ref())
        ),
        // The request may be one of such a pool.
        settings_can_help: base.settings_can_help.filter(|can_help| *can_help),
        advice,
        ..base
    }
    .settled_by_snapshot()
}

fn in_pieces(
    r: &Reckoning,
    unallocated: ApproxBytes,
    wanted: &str,
    base: Conclusion,
) -> Conclusion {
    Conclusion {
        reason: format!(
            "{} is reserved by PyTorch but unallocated. In one piece, with the {} free on the \
             device, it would cover the {wanted} requested. The message does not show whether the \
             pieces belong to the request's stream and pool",
            unallocated_text(r, unallocated),
            text(r.said.free.as_ref())
        ),
        advice: advice::fragmentation(r),
        ..base
    }
    .settled_by_snapshot()
}

fn outside(r: &Reckoning, reserved: ApproxBytes, wanted: &str, base: Conclusion) -> Conclusion {
    let is_certain = base.is_certain && !r.others().is_empty();
    let nvidia_smi = "nvidia-smi, while the job runs: it lists the processes on the device";
    Conclusion {
        reason: format!(
            "{} of the device is in use outside this process' allocator{}; without it the {wanted} \
             requested would fit. The allocator itself holds {}",
            format_approx(r.outside.unwrap_or_default()),
            who(r),
            format_approx(reserved)
        ),
        is_certain,
        settled_by: (!is_certain).then(|| nvidia_smi.to_owned()),
        advice: advice::outside(r),
        ..base
    }
}

fn full(r: &Reckoning, c: &MemoryAtFailure, wanted: &str, base: Conclusion) -> Conclusion {
    let (request, cached) = (c.segment, r.unallocated.unwrap_or_default());
    let all_free = c.device_free.saturating_add(cached);
    let is_too_large =
        r.capacity.is_some_and(|capacity| capacity.covers(request) == Likelihood::No);
    let (reserved, free_text) = (r.reserved.unwrap_or_default(), format_approx(all_free));
    let is_lent = r.capacity.is_some_and(|capacity| capacity.covers(reserved) == Likelihood::No);
    let reason = if is_too_large {
        format!(
            "the request of {wanted} alone is larger than the device ({})",
            text(r.said.capacity.as_ref())
        )
    } else if r.is_full(request) && all_free.covers(request).is_likely() {
        format!(
            "the device is full: the program holds {} and requests {wanted} more. Free on the device and in the cache \
             is {free_text}, in pieces: no more than a busy cache always has",
            format_approx(reserved.saturating_sub(cached)),
        )
    } else if c
        .suffices_with_device(cached.saturating_add(c.other_pool).saturating_add(c.outside))
        .is_likely()
    {
        format!(
            "the device and the cache have {free_text} free, less than the {wanted} requested; it would be \
             enough only together with private pools and memory outside PyTorch"
        )
    } else {
        format!(
            "the program holds {} and requests {wanted} more; the device and the cache have \
             {free_text} free",
            format_approx(reserved.saturating_sub(cached)),
        )
    };
    let reason = if is_lent {
        format!(
            "{reason}. PyTorch has {} reserved, more than the device has ({}): Windows lent it host memory (shared GPU \
             memory), which is slow, and has no more",
            format_approx(reserved),
            text(r.said.capacity.as_ref())
        )
    } else {
        reason
    };
    let conclusion = Conclusion { reason, advice: advice::capacity(r, request, all_free), ..base };
    if conclusion.is_certain { conclusion } else { conclusion.settled_by_snapshot() }
}

/// Whether the process' own limit refuses the request; `None` without a limit.
fn over_limit(r: &Reckoning, request: ApproxBytes) -> Option<Likelihood> {
    let (allowed, reserved) = r.allowed.zip(r.reserved)?;
    Some(match allowed.covers(reserved.saturating_add(request)) {
        Likelihood::Yes => Likelihood::No,
        Likelihood::No => Likelihood::Yes,
        Likelihood::Perhaps => Likelihood::PerhapsNot,
        Likelihood::PerhapsNot => Likelihood::Perhaps,
    })
}

/// Settings move free memory about: they can help where what is free, within the limit, is enough.
/// What is free on the device serves a request smaller than a segment only where segments can grow.
fn settings_can_help(r: &Reckoning, free: ApproxBytes) -> Option<bool> {
    let (unallocated, least) = (r.unallocated?, r.least_request()?);
    let mut room = free;
    if let Some((allowed, reserved)) = r.allowed.zip(r.reserved) {
        let left = allowed.saturating_sub(reserved);
        if left.bytes < room.bytes {
            room = left;
        }
    }
    let covers = room.saturating_add(unallocated).covers(least);
    if unallocated.bytes > 0 {
        return Some(covers != Likelihood::No);
    }
    // Without granules what is free may be enough.
    let is_cut = r.request != Some(least);
    Some((is_cut || r.said.expandable == Some(true)) && covers.is_likely())
}

/// The device had room: something else refused.
fn limited(
    r: &Reckoning,
    request: ApproxBytes,
    over: Option<Likelihood>,
    base: Conclusion,
) -> Conclusion {
    let (wanted, free) = (text(r.said.requested.as_ref()), text(r.said.free.as_ref()));
    let had_room = format!("the device had {free} free for the {wanted} requested");
    let certain = |reason: &str, advice: &str, base| Conclusion {
        reason: format!("{had_room}: {reason}"),
        is_certain: true,
        advice: vec![advice.to_owned()],
        ..base
    };
    // A limit that rounding could have hidden is the limit.
    match over.filter(|over| *over != Likelihood::No).zip(r.reserved) {
        Some((over, reserved)) => over_own_limit(r, &had_room, reserved, request, over, base),
        None if r.said.refused_by_pool => certain(
            "the allocator of the MemPool in use refused, not the device",
            "Look for warnings of that pool's allocator above this message.",
            base,
        ),
        None if r.said.exceeds_reserve => certain(
            "the addresses reserved for an expandable segment are too few for a block of that size",
            "Raise expandable_segments_reserve in PYTORCH_CUDA_ALLOC_CONF, or leave it unset.",
            base,
        ),
        None => refused_outside(r, &had_room, over.is_some(), base),
    }
}

/// By the process's own limit.
fn over_own_limit(
    r: &Reckoning,
    had_room: &str,
    reserved: ApproxBytes,
    request: ApproxBytes,
    over: Likelihood,
    base: Conclusion,
) -> Conclusion {
    let mut advice = vec![Verdict::MemoryLimit.advice_text().to_owned()];
    if base.settings_can_help == Some(true) {
        advice.extend(advice::fragmentation(r));
    }
    Conclusion {
        reason: format!(
            "{had_room}, but the process may hold at most {}: it has {} reserved and with this request \
             would hold {}",
            text(r.said.allowed.as_ref()),
            format_approx(reserved),
            format_approx(reserved.saturating_add(request))
        ),
        is_certain: over == Likelihood::Yes,
        advice,
        ..base
    }
}

/// By nothing that the message names.
fn refused_outside(
    r: &Reckoning,
    had_room: &str,
    is_within_limit: bool,
    base: Conclusion,
) -> Conclusion {
    let no_limit = if is_within_limit {
        format!("the limit of {} is not reached", text(r.said.allowed.as_ref()))
    } else {
        "the message names no limit of PyTorch's own".to_owned()
    };
    let mut advice = r.vendor.refusals.to_vec();
    advice.push(
        "Look for another process on the GPU that comes and goes: the free memory was read a moment after \
         the refusal.",
    );
    if r.said.expandable == Some(true) {
        advice.push(
            "Try without expandable_segments: under WSL2 and on some boards its mappings fail with memory \
             free.",
        );
    }
    Conclusion {
        reason: format!(
            "{had_room}, and {no_limit}: a limit outside PyTorch or the driver refused it, or the memory \
             was freed only a moment later"
        ),
        settled_by: Some(
            "nvidia-smi, while the job runs, and the limits of its container".to_owned(),
        ),
        advice: advice.into_iter().map(str::to_owned).collect(),
        ..base
    }
}

/// Whether others hold the device, of which next to nothing is free, and the message names no limit.
fn is_of_others(r: &Reckoning) -> bool {
    let has_limit = r.allowed.is_some() || r.said.refused_by_pool || r.said.exceeds_reserve;
    !has_limit && r.is_outside_telling() && r.has_little_free()
}

/// Others hold the device; what is free now was not, a moment earlier.
fn freed_since(r: &Reckoning, base: Conclusion) -> Conclusion {
    Conclusion {
        verdict: Verdict::NonPytorch,
        reason: format!(
            "{} of the device is in use outside this process' allocator{}. The {} free would have been enough, but it \
             is read a moment after the refusal, and others take and give back meanwhile",
            format_approx(r.outside.unwrap_or_default()),
            who(r),
            text(r.said.free.as_ref()),
        ),
        is_certain: false,
        settled_by: Some(
            "nvidia-smi, while the job runs: it lists the processes on the device".to_owned(),
        ),
        advice: advice::outside(r),
        ..base
    }
}

/// Who uses the memory outside the allocator.
fn who(r: &Reckoning) -> String {
    let mut parts: Vec<String> = r
        .others()
        .into_iter()
        .take(3)
        .map(|other| format!("process {}: {}", other.pid, other.in_use.text))
        .collect();
    if let Some(own) = r.own_outside.filter(|own| own.bytes > 0) {
        parts.push(format!("this process itself: {}", format_approx(own)));
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Where memory was that could have served the request, largest first.
fn causes(r: &Reckoning) -> Vec<Cause> {
    let cause = |kind, about: ApproxBytes, note: &str| Cause {
        kind,
        bytes: about.bytes,
        note: note.to_owned(),
    };
    largest_first(vec![
        cause(
            Verdict::Fragmentation,
            r.unallocated.unwrap_or_default(),
            "reserved but unallocated, of any stream and in any number of pieces",
        ),
        cause(Verdict::PrivatePool, r.private, "free in private pools (CUDA graphs, MemPool)"),
        cause(
            Verdict::NonPytorch,
            r.outside.unwrap_or_default(),
            "in use outside this allocator: other processes, the CUDA context, libraries",
        ),
    ])
}

fn unallocated_text(r: &Reckoning, unallocated: ApproxBytes) -> String {
    r.said
        .unallocated
        .as_ref()
        .map_or_else(|| format_approx(unallocated), |amount| amount.text.clone())
}
