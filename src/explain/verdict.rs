//! The verdict on a failed request of PyTorch's allocator, from its message alone.
//!
//! The ladder of [`decide`] gives the verdict; this file writes its reason. Messages show neither the stream and pool
//! of free memory nor the number of pieces.

use super::conclusion::{Conclusion, incomplete};
use super::numbers::MessageNumbers;
use super::{advice, backends};
use crate::allocator::verdict::{
    ApproxBytes, Cause, Likelihood, MemoryAtFailure, Verdict, decide, format_approx, largest_first,
};
use crate::base::units::{counted, size};
use crate::explain::message::Wording;

/// Evidence of other processes.
const MONITOR: &str = "nvidia-smi, while the job runs: it lists the processes on the device";

pub(super) fn conclude(numbers: &MessageNumbers) -> Conclusion {
    conclude_for_cuda(numbers).for_vendor(numbers.vendor)
}

fn conclude_for_cuda(numbers: &MessageNumbers) -> Conclusion {
    if numbers.is_impossible_size {
        let advice = "Check the shapes at the line above: a negative or uninitialised size, or a product of sizes that \
                      overflowed.";
        let reason = "more than 2^60 bytes were requested, which no machine has: a size was computed wrongly";
        return Conclusion {
            is_certain: true,
            settings_can_help: Some(false),
            ..Conclusion::unknown(reason.to_owned(), vec![advice.to_owned()])
        };
    }
    if let Some(most) = numbers.printed.figure("block_limit") {
        return backends::block_too_large(numbers, &most.text);
    }
    if numbers.is_contradictory() {
        let reason = format!(
            "{} was requested; the message has {} free on a device of {}, which cannot be: its numbers do not belong \
             together",
            numbers.text("requested"),
            numbers.text("free"),
            numbers.text("capacity")
        );
        return Conclusion::unknown(reason, Vec::new()).settled_by(MONITOR);
    }
    match numbers.printed.wording {
        Wording::Mps => backends::metal(numbers),
        Wording::Async => backends::asynchronous(numbers),
        _ => match (numbers.request, numbers.free) {
            (Some(request), Some(free)) => conclude_native(numbers, request, free),
            (Some(request), None) => backends::without_free(numbers, request),
            _ => incomplete(numbers),
        },
    }
}

/// For messages of the caching allocator with all numbers (PyTorch 1.0 and later).
fn conclude_native(numbers: &MessageNumbers, request: ApproxBytes, free: ApproxBytes) -> Conclusion {
    let memory = numbers.memory_at_failure(request, free);
    let ruling = decide(&memory);
    let over_limit = exceeds_limit(numbers, request);
    let base = Conclusion {
        verdict: ruling.verdict,
        is_certain: ruling.is_certain,
        within_rounding: ruling.within_rounding,
        settings_can_help: settings_can_help(numbers, free),
        causes: causes(numbers),
        ..Conclusion::unknown(String::new(), Vec::new())
    };
    if ruling.verdict == Verdict::MemoryLimit {
        return if is_held_by_others(numbers) {
            freed_since(numbers, base)
        } else {
            memory_limit(numbers, request, over_limit, base)
        };
    }
    let Some((reserved, unallocated)) = numbers.reserved.zip(numbers.unallocated) else {
        return Conclusion { causes: base.causes, ..incomplete(numbers) };
    };
    let requested = request_text(numbers, request, &memory);
    let mut conclusion = match ruling.verdict {
        Verdict::PrivatePool => private_pools(numbers, &memory, &requested, base),
        Verdict::Fragmentation => {
            let reason = format!(
                "{} is reserved by PyTorch but unallocated. In one piece, with the {} free on the device, it would cover \
                 the {requested} requested. The message does not show whether the pieces belong to the request's stream \
                 and pool",
                numbers
                    .printed
                    .figure("unallocated")
                    .map_or_else(|| format_approx(unallocated), |amount| size(amount.bytes)),
                numbers.text("free")
            );
            Conclusion { reason, advice: advice::fragmentation(numbers), ..base }.settled_by_snapshot()
        }
        Verdict::NonPytorch => outside(numbers, reserved, &requested, base),
        verdict => {
            debug_assert_eq!(verdict, Verdict::Capacity, "a message cannot show other verdicts");
            capacity(numbers, &memory, [reserved, unallocated], &requested, base)
        }
    };
    if over_limit.is_some_and(Likelihood::is_likely) {
        conclusion.advice.push(format!(
            "The limit of {} would also have refused this request: with the {} reserved it comes \
             to {}.",
            numbers.text("allowed"),
            format_approx(reserved),
            format_approx(reserved.saturating_add(request))
        ));
    }
    conclusion
}

/// The size of the request to the device.
fn request_text(numbers: &MessageNumbers, request: ApproxBytes, memory: &MemoryAtFailure) -> String {
    let printed = numbers.text("requested");
    let needed = memory.needed_from_device();
    if needed == request {
        return printed;
    }
    format!("{} (whole granules of an expandable segment, for {printed})", format_approx(needed))
}

fn private_pools(numbers: &MessageNumbers, memory: &MemoryAtFailure, requested: &str, base: Conclusion) -> Conclusion {
    let mut advice = vec![advice::standard(Verdict::PrivatePool)];
    if memory.suffices_with_device(memory.own.all).is_likely() {
        advice.extend(advice::fragmentation(numbers));
    }
    Conclusion {
        reason: format!(
            "{} is free in private pools (CUDA graphs, MemPool), which the message counts as \
             allocated; with the {} free on the device, that covers the {requested} requested, but no \
             request outside those pools can use it",
            numbers.text("private_pools"),
            numbers.text("free")
        ),
        // The request may come from one of these pools, and then settings can help.
        settings_can_help: base.settings_can_help.filter(|can_help| *can_help),
        advice,
        ..base
    }
    .settled_by_snapshot()
}

fn outside(numbers: &MessageNumbers, reserved: ApproxBytes, requested: &str, base: Conclusion) -> Conclusion {
    let is_certain = base.is_certain && !numbers.other_processes().is_empty();
    Conclusion {
        reason: format!(
            "{} of the device is in use outside this process' allocator{}; without it the {requested} \
             requested would fit. The allocator itself holds {}",
            outside_text(numbers),
            outside_users(numbers),
            format_approx(reserved)
        ),
        is_certain,
        settled_by: (!is_certain).then(|| MONITOR.to_owned()),
        advice: advice::outside(numbers),
        ..base
    }
}

fn capacity(
    numbers: &MessageNumbers,
    memory: &MemoryAtFailure,
    [reserved, cached]: [ApproxBytes; 2],
    requested: &str,
    base: Conclusion,
) -> Conclusion {
    let request = memory.segment;
    let all_free = memory.device_free.saturating_add(cached);
    let (free_text, held) = (format_approx(all_free), format_approx(reserved.saturating_sub(cached)));
    let others = cached.saturating_add(memory.other_pool).saturating_add(memory.outside);
    let is_context = numbers.reclaimable_outside.is_some_and(|outside| outside.bytes == 0);
    let context =
        numbers.outside.filter(|outside| is_context && all_free.saturating_add(*outside).covers(request).is_likely());
    let device = numbers.text("capacity");
    let mut reason = if numbers.exceeds_capacity(request) {
        format!("the request of {requested} alone is larger than the device ({device})")
    } else if numbers.is_cache_full(request) && all_free.covers(request).is_likely() {
        format!(
            "the device is full: the program holds {held} and requests {requested} more. The device and the cache have \
             {free_text} free, in pieces: any busy cache has as much",
        )
    } else if memory.suffices_with_device(others).is_likely() {
        format!(
            "the device and the cache have {free_text} free, less than the {requested} requested; it would be \
             enough only together with private pools and memory outside PyTorch"
        )
    } else if let Some(outside) = context {
        format!(
            "the device of {device} is too small: the program holds {held} and requests {requested} more, {free_text} is \
             free, and {} is in use outside PyTorch, as a CUDA context takes",
            format_approx(outside)
        )
    } else {
        format!(
            "the program holds {held} and requests {requested} more; the device and the cache have {free_text} free"
        )
    };
    if numbers.exceeds_device() {
        reason.push_str(&format!(
            ". PyTorch has {} reserved, more than the device has ({device}): Windows added host memory (shared GPU \
             memory), which is slow, and has no more",
            format_approx(reserved),
        ));
    }
    let conclusion = Conclusion { reason, advice: advice::capacity(numbers, request, all_free), ..base };
    if conclusion.is_certain { conclusion } else { conclusion.settled_by_snapshot() }
}

/// The likelihood that the process' own limit refuses the request; `None` without a limit.
fn exceeds_limit(numbers: &MessageNumbers, request: ApproxBytes) -> Option<Likelihood> {
    let (allowed, reserved) = numbers.allowed.zip(numbers.reserved)?;
    Some(match allowed.covers(reserved.saturating_add(request)) {
        Likelihood::Yes => Likelihood::No,
        Likelihood::No => Likelihood::Yes,
        Likelihood::Perhaps => Likelihood::PerhapsNot,
        Likelihood::PerhapsNot => Likelihood::Perhaps,
    })
}

/// Settings rearrange free memory, so they can help if all free memory within the limit is enough. Free memory of the
/// device serves a request smaller than a segment only if segments can grow.
fn settings_can_help(numbers: &MessageNumbers, free: ApproxBytes) -> Option<bool> {
    let (unallocated, smallest) = (numbers.unallocated?, numbers.min_request()?);
    let left = numbers.allowed.zip(numbers.reserved).map(|(allowed, reserved)| allowed.saturating_sub(reserved));
    let room = left.filter(|left| left.bytes < free.bytes).unwrap_or(free);
    let covers = room.saturating_add(unallocated).covers(smallest);
    if unallocated.bytes > 0 {
        return Some(covers != Likelihood::No);
    }
    // Without whole segments, the free memory may be enough.
    let is_from_segment = numbers.request != Some(smallest);
    Some((is_from_segment || numbers.printed.expandable == Some(true)) && covers.is_likely())
}

/// The device had room, so something else refused the request.
fn memory_limit(
    numbers: &MessageNumbers,
    request: ApproxBytes,
    exceeds: Option<Likelihood>,
    base: Conclusion,
) -> Conclusion {
    let had_room =
        format!("the device had {} free for the {} requested", numbers.text("free"), numbers.text("requested"));
    let certain = |reason: &str, advice: &str, base| Conclusion {
        reason: format!("{had_room}: {reason}"),
        is_certain: true,
        advice: vec![advice.to_owned()],
        ..base
    };
    // If rounding may hide that the limit was exceeded, the limit is the cause.
    match exceeds.filter(|exceeds| *exceeds != Likelihood::No).zip(numbers.reserved) {
        Some((exceeds, reserved)) => over_own_limit(numbers, &had_room, reserved, request, exceeds, base),
        None if numbers.printed.refused_by_pool => certain(
            "the allocator of the MemPool in use refused, not the device",
            "Look for warnings of that pool's allocator above this message.",
            base,
        ),
        None if numbers.printed.exceeds_reserve => certain(
            "the addresses reserved for an expandable segment are too few for a block of that size",
            "Raise expandable_segments_reserve in PYTORCH_CUDA_ALLOC_CONF, or leave it unset.",
            base,
        ),
        None => refused_elsewhere(numbers, &had_room, exceeds.is_some(), base),
    }
}

/// The process' own limit refused the request.
fn over_own_limit(
    numbers: &MessageNumbers,
    had_room: &str,
    reserved: ApproxBytes,
    request: ApproxBytes,
    exceeds: Likelihood,
    base: Conclusion,
) -> Conclusion {
    let mut advice = vec![advice::standard(Verdict::MemoryLimit)];
    if base.settings_can_help == Some(true) {
        advice.extend(advice::fragmentation(numbers));
    }
    Conclusion {
        reason: format!(
            "{had_room}, but the process may hold at most {}: it has {} reserved and with this request \
             would hold {}",
            numbers.text("allowed"),
            format_approx(reserved),
            format_approx(reserved.saturating_add(request))
        ),
        is_certain: exceeds == Likelihood::Yes,
        advice,
        ..base
    }
}

/// The message does not show what refused the request.
fn refused_elsewhere(numbers: &MessageNumbers, had_room: &str, is_within_limit: bool, base: Conclusion) -> Conclusion {
    let no_limit = if is_within_limit {
        format!("the limit of {} is not reached", numbers.text("allowed"))
    } else {
        "the message names no limit of PyTorch's own".to_owned()
    };
    let mut advice = advice::refusals(numbers);
    advice.push(
        "Look for another process that uses the GPU for short times: PyTorch reads the free memory a moment after the \
         refusal."
            .to_owned(),
    );
    if numbers.printed.expandable == Some(true) {
        advice.push(
            "Try without expandable_segments: under WSL2 and on some boards its mappings fail although memory is \
             free."
                .to_owned(),
        );
    }
    Conclusion {
        reason: format!(
            "{had_room}, and {no_limit}: a limit outside PyTorch or the driver refused it, or the memory \
             was freed only a moment later"
        ),
        settled_by: Some("nvidia-smi, while the job runs, and the limits of its container".to_owned()),
        advice,
        ..base
    }
}

/// True if others use the device, next to nothing is free, and the message has no limit.
fn is_held_by_others(numbers: &MessageNumbers) -> bool {
    let has_limit = numbers.allowed.is_some() || numbers.printed.refused_by_pool || numbers.printed.exceeds_reserve;
    !has_limit && numbers.is_outside_significant() && numbers.has_little_free()
}

/// Others use the device, and the printed free memory was freed after the refusal.
fn freed_since(numbers: &MessageNumbers, base: Conclusion) -> Conclusion {
    Conclusion {
        verdict: Verdict::NonPytorch,
        reason: format!(
            "{} of the device is in use outside this process' allocator{}. The {} free would have been enough, but \
             PyTorch reads it a moment after the refusal, and other processes allocate and free in between",
            outside_text(numbers),
            outside_users(numbers),
            numbers.text("free"),
        ),
        is_certain: false,
        settled_by: Some(MONITOR.to_owned()),
        advice: advice::outside(numbers),
        ..base
    }
}

/// The processes that use the memory outside the allocator.
fn outside_users(numbers: &MessageNumbers) -> String {
    let others = numbers.other_processes();
    let mut parts: Vec<String> =
        others.iter().take(3).map(|other| format!("process {}: {}", other.pid, size(other.in_use.bytes))).collect();
    if others.len() > parts.len() {
        let all = others.iter().map(|other| other.in_use.bytes).fold(0, u64::saturating_add);
        parts = vec![format!("{} together: {}", counted(others.len() as u64, "process"), size(all))];
    }
    if let Some(outside) = numbers.this_process_outside.filter(|outside| outside.bytes > 0) {
        parts.push(format!("this process itself: {}", format_approx(outside)));
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Memory that could have served the request, largest first.
fn causes(numbers: &MessageNumbers) -> Vec<Cause<String>> {
    // `largest_first` leaves out amounts that are unknown or zero.
    let cause = |kind, amount: Option<ApproxBytes>, note: &str| Cause {
        kind,
        bytes: amount.map_or(0, |amount| amount.bytes),
        note: note.to_owned(),
    };
    largest_first(vec![
        cause(
            Verdict::Fragmentation,
            numbers.unallocated,
            "reserved but unallocated, of any stream and in any number of pieces",
        ),
        cause(Verdict::PrivatePool, Some(numbers.private_free), "free in private pools (CUDA graphs, MemPool)"),
        cause(
            Verdict::NonPytorch,
            numbers.outside,
            "in use outside this allocator: other processes, the CUDA context, libraries",
        ),
    ])
}

/// The memory in use outside the allocator, for conclusions that blame it.
fn outside_text(numbers: &MessageNumbers) -> String {
    debug_assert!(numbers.outside.is_some(), "unknown memory leads to no verdict");
    format_approx(numbers.outside.unwrap_or_default())
}
