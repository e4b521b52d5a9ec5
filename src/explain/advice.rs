//! Advice for a failure, as far as the printed numbers support it.

use super::numbers::MessageNumbers;
use super::standard_advice::{EMPTY_CACHE_NO_REMEDY, OUTSIDE_ALLOCATOR_USERS, Snippet, StandardAdvice};
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::{ApproxBytes, Likelihood, USUAL_OUTSIDE, Verdict, format_approx};
use crate::base::units::{counted, size};

/// A command or setting to copy, for a `verdict` whose `first` advice is the standard one. `None` means that the source
/// line is the thing to copy.
pub(super) fn snippet(numbers: &MessageNumbers, verdict: Verdict, first: &str) -> Option<String> {
    let row = StandardAdvice::for_verdict(verdict);
    let is_standard = first.starts_with(&numbers.vendor.translate(row.text.to_owned()));
    let words = match row.snippet {
        // The command lists the processes on the device, so it helps with any advice on outside memory.
        Snippet::Command(words) if is_standard || verdict == Verdict::NonPytorch => words.to_owned(),
        Snippet::AllocConf(option) if is_standard => shell_assignment(option, None),
        _ => return None,
    };
    Some(numbers.vendor.translate(words))
}

/// The advice of a verdict that needs no figures.
pub(super) fn standard(verdict: Verdict) -> String {
    StandardAdvice::for_verdict(verdict).text.to_owned()
}

/// Advice for fragmentation.
pub(super) fn fragmentation(numbers: &MessageNumbers) -> Vec<String> {
    let has_expandable =
        numbers.printed.releases.is_none_or(|releases| releases.last.is_none_or(|last| last >= (2, 1)));
    let first = match numbers.printed.expandable {
        Some(true) => {
            "expandable_segments is already on. The free memory belongs to other streams or pools, is in use \
                       on another stream, or is in parts of pages; a snapshot shows which."
                .to_owned()
        }
        None if has_expandable => {
            let note = numbers.vendor.expandable.as_ref().map_or_else(String::new, |note| format!(" {note}"));
            format!("{}{note}", standard(Verdict::Fragmentation))
        }
        Some(false) => "Try PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128: PyTorch has no expandable_segments on this \
                        platform, as the log says."
            .to_owned(),
        None => "Try PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 (1.10 or later), or PyTorch 2.1 or later with \
                 expandable_segments:True, which leaves fewer pieces."
            .to_owned(),
    };
    vec![first, EMPTY_CACHE_NO_REMEDY.to_owned()]
}

/// Advice for a full device; `free` is free on the device and in the cache together.
pub(super) fn capacity(numbers: &MessageNumbers, request: ApproxBytes, free: ApproxBytes) -> Vec<String> {
    let mut advice = Vec::new();
    if numbers.exceeds_capacity(request) {
        advice.push(
            "A request larger than the device often comes from a wrong shape: a broadcast, a full \
                     attention or one-hot matrix, a wrong unit. Check the line above."
                .to_owned(),
        );
    }
    advice.push(standard(Verdict::Capacity));
    advice.extend(ranks_without_device(numbers));
    for other in numbers.other_processes().into_iter().take(1) {
        advice.push(format!("Process {} uses {} of the device.", other.pid, size(other.in_use.bytes)));
    }
    let (free_text, lacking) = (format_approx(free), format_approx(request.saturating_sub(free)));
    if numbers.is_cache_full(request) && free.covers(request).is_likely() {
        advice.push(format!(
            "expandable_segments:True could at most join the free memory ({free_text}): enough for this request, hardly \
             for the next."
        ));
    } else if numbers.min_request().is_some_and(|request| free.covers(request) != Likelihood::No) {
        advice.push(format!(
            "Up to {lacking} is missing. The request itself may be smaller than its segment of {}, \
             and than the {free_text} free. A snapshot shows this, and whether a setting \
             (expandable_segments:True) would have served it.",
            size(request.bytes)
        ));
    } else {
        advice.push(format!(
            "No allocator setting helps: settings (expandable_segments, max_split_size_mb) only \
             join free memory, and the {free_text} free is {lacking} too little."
        ));
    }
    advice
}

/// Advice for memory outside the allocator.
pub(super) fn outside(numbers: &MessageNumbers) -> Vec<String> {
    let others = numbers.other_processes();
    let own = numbers.this_process_outside.filter(|outside| outside.bytes > USUAL_OUTSIDE);
    let ranks = ranks_without_device(numbers);
    let mut advice = Vec::new();
    if numbers.printed.processes.is_empty() && own.is_none() {
        advice.push(standard(Verdict::NonPytorch));
    }
    if ranks.is_none()
        && let Some(largest) = others.first()
    {
        let or_this = match (numbers.this_pid, numbers.printed.figure("this_process")) {
            (None, None) => " It may be this process itself: inside a container it has another number.",
            _ => "",
        };
        advice.push(format!(
            "Process {} uses {} (ps -fp {} on the host shows what it is): let it end first, or use another GPU.{or_this}",
            largest.pid,
            size(largest.in_use.bytes),
            largest.pid
        ));
    }
    advice.splice(0..0, ranks);
    advice.extend(own.map(|outside| {
        format!(
            "This process uses {} outside PyTorch's allocator, more than a CUDA context takes: \
             {OUTSIDE_ALLOCATOR_USERS}.",
            format_approx(outside)
        )
    }));
    advice
}

/// Advice for a request that something other than a full device refused.
pub(super) fn refusals(numbers: &MessageNumbers) -> Vec<String> {
    let request = numbers.request.unwrap_or_default();
    let largest = numbers.vendor.largest_request.as_ref().filter(|(largest, _)| request.bytes > *largest);
    largest.map(|(_, advice)| advice).into_iter().chain(&numbers.vendor.refusals).cloned().collect()
}

/// Advice for several processes on one device that use as much as each other.
fn ranks_without_device(numbers: &MessageNumbers) -> Option<String> {
    let (count, bytes) = numbers.equal_processes()?;
    Some(format!(
        "Let each rank choose its device before it first uses CUDA: torch.cuda.set_device(local_rank), and \
         map_location for a checkpoint. {} with about {} each are on this device, as of ranks that did not.",
        counted(count as u64, "process"),
        size(bytes)
    ))
}
