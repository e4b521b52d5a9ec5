//! The verdict on a failed request of PyTorch's allocator, from its message alone.
//!
//! The ladder of [`decide`] gives the verdict; this file chooses the row of the table with its words. Messages show
//! neither the stream and pool of free memory nor the number of pieces.

use super::conclusion::Conclusion;
use super::numbers::MessageNumbers;
use crate::allocator::verdict::{ApproxBytes, Likelihood, Verdict, decide};
use crate::explain::message::Wording;

pub(super) fn conclude(numbers: &MessageNumbers) -> Conclusion {
    let no_setting = |conclusion| Conclusion { settings_can_help: Some(false), ..conclusion };
    let incomplete = || Conclusion::new("incomplete", Verdict::Unknown, false);
    let conclusion = if numbers.is_impossible_size {
        no_setting(Conclusion::new("impossible-size", Verdict::Unknown, true))
    } else if numbers.printed.figure("block_limit").is_some() {
        no_setting(Conclusion::new("block-limit", Verdict::MemoryLimit, true))
    } else if numbers.is_contradictory() {
        Conclusion::new("contradictory", Verdict::Unknown, false)
    } else {
        match (numbers.printed.wording, numbers.request, numbers.free) {
            (Wording::Mps, Some(_), _) if numbers.allowed.is_some() => {
                Conclusion::new("metal", Verdict::MemoryLimit, true)
            }
            (Wording::Async, Some(request), Some(free)) => {
                asynchronous(numbers, request, free).unwrap_or_else(incomplete)
            }
            (Wording::Mps | Wording::Async, ..) | (_, None, _) => incomplete(),
            (_, Some(request), Some(free)) => native(numbers, request, free),
            (_, Some(request), None) => without_free(numbers, request).unwrap_or_else(incomplete),
        }
    };
    conclusion.in_words(numbers)
}

/// For messages of the caching allocator with all numbers (PyTorch 1.0 and later).
fn native(numbers: &MessageNumbers, request: ApproxBytes, free: ApproxBytes) -> Conclusion {
    let ruling = decide(&numbers.memory_at_failure(request, free));
    let base = Conclusion {
        within_rounding: ruling.within_rounding,
        settings_can_help: settings_can_help(numbers, free),
        ..Conclusion::new("capacity", ruling.verdict, ruling.is_certain)
    };
    let is_unknown = numbers.reserved.is_none() || numbers.unallocated.is_none();
    match ruling.verdict {
        Verdict::MemoryLimit if is_held_by_others(numbers) => {
            // The printed free memory was freed after the refusal.
            Conclusion { row: "freed-since", verdict: Verdict::NonPytorch, is_certain: false, ..base }
        }
        Verdict::MemoryLimit => memory_limit(numbers, request, base),
        _ if is_unknown => Conclusion::new("incomplete", Verdict::Unknown, false),
        Verdict::PrivatePool => {
            // The request may come from one of these pools, and then settings can help.
            let settings_can_help = base.settings_can_help.filter(|can_help| *can_help);
            Conclusion { row: "private-pool", settings_can_help, ..base }
        }
        Verdict::Fragmentation => Conclusion { row: "fragmentation", ..base },
        Verdict::NonPytorch => {
            let is_certain = base.is_certain && !numbers.other_processes().is_empty();
            Conclusion { row: "non-pytorch", is_certain, ..base }
        }
        verdict => {
            debug_assert_eq!(verdict, Verdict::Capacity, "a message cannot show other verdicts");
            base
        }
    }
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
fn memory_limit(numbers: &MessageNumbers, request: ApproxBytes, base: Conclusion) -> Conclusion {
    // If rounding may hide that the limit was exceeded, the limit is the cause.
    let exceeds = numbers.exceeds_limit(request).filter(|exceeds| *exceeds != Likelihood::No);
    let (row, is_certain) = match exceeds {
        Some(exceeds) => ("own-limit", exceeds == Likelihood::Yes),
        None if numbers.printed.refused_by_pool => ("refused-by-pool", true),
        None if numbers.printed.exceeds_reserve => ("exceeds-reserve", true),
        // Or the memory was freed a moment later.
        None => ("refused-elsewhere", false),
    };
    Conclusion { row, is_certain, ..base }
}

/// True if others use the device, next to nothing is free, and the message has no limit.
fn is_held_by_others(numbers: &MessageNumbers) -> bool {
    let has_limit = numbers.allowed.is_some() || numbers.printed.refused_by_pool || numbers.printed.exceeds_reserve;
    !has_limit && numbers.is_outside_significant() && numbers.has_little_free()
}

/// For a caching allocator whose message does not have the free memory of the device.
fn without_free(numbers: &MessageNumbers, request: ApproxBytes) -> Option<Conclusion> {
    let (capacity, tensors, unallocated) = (numbers.capacity?, numbers.tensors?, numbers.unallocated?);
    let fits = capacity.covers(tensors.saturating_add(request));
    let (row, verdict) = if !fits.is_likely() {
        ("without-free-capacity", Verdict::Capacity)
    } else if unallocated.covers(request).is_likely() && !numbers.is_cache_full(request) {
        ("without-free-fragmentation", Verdict::Fragmentation)
    } else {
        return Some(Conclusion::new("without-free", Verdict::Unknown, false));
    };
    Some(Conclusion {
        within_rounding: fits.is_within_rounding(),
        settings_can_help: (verdict == Verdict::Capacity).then_some(false),
        ..Conclusion::new(row, verdict, fits == Likelihood::No)
    })
}

/// For the backend cudaMallocAsync: the driver keeps the cache, and the message does not have its size.
fn asynchronous(numbers: &MessageNumbers, request: ApproxBytes, free: ApproxBytes) -> Option<Conclusion> {
    let needed = numbers.tensors?.saturating_add(request);
    let exceeds =
        |limit: Option<ApproxBytes>| limit.map(|limit| limit.covers(needed)).filter(|covers| !covers.is_likely());
    let (row, verdict, covers) = if let Some(covers) = exceeds(numbers.allowed) {
        ("async-limit", Verdict::MemoryLimit, covers)
    } else if free.covers(request) == Likelihood::Yes {
        return Some(Conclusion::new("async-refused", Verdict::MemoryLimit, false));
    } else if let Some(covers) = exceeds(numbers.capacity) {
        ("async-capacity", Verdict::Capacity, covers)
    } else {
        return Some(Conclusion::new("async-unknown", Verdict::Unknown, false));
    };
    Some(Conclusion {
        within_rounding: covers.is_within_rounding(),
        settings_can_help: Some(false),
        ..Conclusion::new(row, verdict, covers == Likelihood::No)
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::table::conclusion_row;

    #[test]
    fn every_row_that_is_chosen_is_in_the_table() {
        let is_row = |word: &&str| word.contains('-') && !word.contains(' ');
        let names: Vec<&str> = include_str!("verdict.rs").split('"').filter(is_row).collect();
        assert!(names.len() > 15, "{names:?}");
        for name in names.into_iter().chain(["metal", "expandable", "incomplete", "fragmentation", "capacity"]) {
            assert_eq!(conclusion_row(name).name, name);
        }
    }
}
