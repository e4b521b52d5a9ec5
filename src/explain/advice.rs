//! What to do about a failure: only what the numbers bear out.

use super::reckoning::Reckoning;
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::{
    ApproxBytes, EMPTY_CACHE_NO_REMEDY, Likelihood, OUTSIDE_ALLOCATOR_USERS, Snippet,
    USUAL_OUTSIDE, Verdict, format_approx,
};
use crate::base::units::size;

/// What to copy for a `verdict` whose `first` advice is the table's, in the words of the vendor; nothing where that is
/// the line of code.
pub(super) fn to_copy(r: &Reckoning, verdict: Verdict, first: &str) -> Option<String> {
    let row = verdict.advice();
    let is_tables = first.starts_with(&r.vendor.own_words(row.text.to_owned()));
    let words = match row.snippet {
        // Whoever holds the memory, this shows it.
        Snippet::Command(words) if is_tables || verdict == Verdict::NonPytorch => words.to_owned(),
        Snippet::AllocConf(option) if is_tables => shell_assignment(option, None),
        _ => return None,
    };
    Some(r.vendor.own_words(words))
}

/// For free memory in pieces.
pub(super) fn fragmentation(r: &Reckoning) -> Vec<String> {
    let has_expandable = r.said.releases.is_none_or(|r| r.last.is_none_or(|last| last >= (2, 1)));
    let mut advice = Vec::new();
    if r.said.expandable == Some(true) {
        advice.push(
            "expandable_segments is already on. The free memory belongs to other streams \
                     or pools, is in use on another stream, or is in parts of pages; a snapshot \
                     shows which."
                .to_owned(),
        );
    } else if has_expandable {
        let note = r.vendor.expandable.map(|note| format!(" {note}")).unwrap_or_default();
        advice.push(format!("{}{note}", Verdict::Fragmentation.advice_text()));
    } else {
        advice.push("Try PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 (1.10 or later), or PyTorch 2.1 or later with expandable_segments:True, which leaves fewer pieces.".to_owned());
    }
    advice.push(EMPTY_CACHE_NO_REMEDY.to_owned());
    advice
}

/// For a device too small for `request`, of which `free` is free on it and in the cache.
pub(super) fn capacity(r: &Reckoning, request: ApproxBytes, free: ApproxBytes) -> Vec<String> {
    let mut advice = Vec::new();
    if r.capacity.is_some_and(|capacity| capacity.covers(request) == Likelihood::No) {
        advice.push(
            "A request larger than the device is often a wrong shape: a broadcast, a full \
                     attention or one-hot matrix, a wrong unit. Look at the line above."
                .to_owned(),
        );
    }
    advice.push(Verdict::Capacity.advice_text().to_owned());
    for other in r.others().into_iter().take(1) {
        advice.push(format!("Process {} uses {} of the device.", other.pid, other.in_use.text));
    }
    let (free_text, lacking) = (format_approx(free), format_approx(request.saturating_sub(free)));
    if r.is_full(request) && free.covers(request).is_likely() {
        advice.push(format!(
            "expandable_segments:True could at most join what is free ({free_text}): enough for this request, hardly for \
             the next."
        ));
    } else if r.least_request().is_some_and(|it| free.covers(it) != Likelihood::No) {
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

/// For memory outside the allocator.
pub(super) fn outside(r: &Reckoning) -> Vec<String> {
    let mut advice = Vec::new();
    if r.said.processes.is_empty() && r.own_outside.is_none_or(|own| own.bytes <= USUAL_OUTSIDE) {
        advice.push(Verdict::NonPytorch.advice_text().to_owned());
    }
    for other in r.others().into_iter().take(3) {
        let or_this = match (r.this_pid, &r.said.this_process) {
            (None, None) => {
                " It may be this process itself: inside a container it has another number."
            }
            _ => "",
        };
        advice.push(format!(
            "Process {} uses {}: stop it, or use another GPU.{or_this}",
            other.pid, other.in_use.text
        ));
    }
    if let Some(own) = r.own_outside.filter(|own| own.bytes > USUAL_OUTSIDE) {
        advice.push(format!(
            "This process uses {} outside PyTorch's allocator, more than a CUDA context takes: \
             {OUTSIDE_ALLOCATOR_USERS}.",
            format_approx(own)
        ));
    }
    advice
}
