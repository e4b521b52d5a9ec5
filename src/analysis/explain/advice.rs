//! What to do about a failure: only what the numbers bear out.

use super::about::{About, Answer, rough};
use super::reckoning::{Reckoning, USUAL_OUTSIDE};
use crate::units::size;

/// For free memory in pieces.
pub(super) fn fragmentation(r: &Reckoning) -> Vec<String> {
    let has_expandable = r.said.releases.is_none_or(|r| r.last.is_none_or(|last| last >= (2, 1)));
    let mut advice = Vec::new();
    if r.said.expandable == Some(true) {
        advice.push("expandable_segments is on already. What is free belongs to other streams or pools, is in use on another stream, or lies in parts of pages; a snapshot tells which.".to_owned());
    } else if has_expandable {
        advice.push("Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which leaves fewer pieces, unless it is on already (PyTorch up to 2.11 prints its hint either way); `oomscope whatif` on a snapshot tells beforehand whether it suffices.".to_owned());
    } else {
        advice.push("Try PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 (1.10 or later), or PyTorch 2.1 or later with expandable_segments:True, which leaves fewer pieces.".to_owned());
    }
    advice.push("torch.cuda.empty_cache() would not have helped: PyTorch had given back every whole free segment before it gave up.".to_owned());
    advice
}

/// For a device too small.
pub(super) fn capacity(
    r: &Reckoning,
    request: About,
    free: About,
    unallocated: About,
) -> Vec<String> {
    let lacking = request.minus(free.plus(unallocated));
    let mut advice = Vec::new();
    if r.capacity.is_some_and(|capacity| capacity.covers(request) == Answer::No) {
        advice.push("One request larger than the device is often a mistake in a shape: a broadcast, a full attention or one-hot matrix, a wrong unit. Look at the line above.".to_owned());
    }
    let all_free = free.plus(unallocated);
    let may_be_smaller = r.least_request().is_some_and(|it| all_free.covers(it) != Answer::No);
    advice.push(format!(
        "The program has to hold {} {} less at that moment: a smaller batch or sequence, activation \
         checkpointing, lower precision, sharding or offloading. A snapshot says which lines hold the memory.",
        if may_be_smaller { "up to" } else { "at least" },
        rough(lacking)
    ));
    if may_be_smaller {
        advice.push(format!(
            "The request itself may be smaller than the segment of {} asked for it, and than the {} that is \
             free: a snapshot tells, and whether a setting (expandable_segments:True) would have served it.",
            size(request.bytes),
            rough(all_free)
        ));
    } else {
        advice.push(format!(
            "No allocator setting helps: settings (expandable_segments, max_split_size_mb) only join free \
             memory, and there is {} of it, {} too little.",
            rough(all_free),
            rough(lacking)
        ));
    }
    if r.reserved.zip(r.capacity).is_some_and(|(r, c)| c.covers(r) == Answer::No) {
        advice.push("More is reserved than the device has: Windows lends it the computer's memory, which is slow.".to_owned());
    }
    advice
}

/// For memory outside the allocator.
pub(super) fn outside(r: &Reckoning) -> Vec<String> {
    let mut advice = Vec::new();
    for other in r.others().into_iter().take(3) {
        let or_this = match (r.this_pid, &r.said.this_process) {
            (None, None) => {
                " It may be this process itself, which has another number inside a container."
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
            "This process uses {} outside PyTorch's allocator, more than a CUDA context takes: NCCL buffers, \
             cuBLAS workspaces, and libraries with allocators of their own (RAPIDS, TensorFlow, JAX, DALI).",
            rough(own)
        ));
    }
    if advice.is_empty() {
        advice.push("The message does not name who: nvidia-smi, while the job runs, lists the processes on the device. A CUDA context takes up to about 1 GiB of it.".to_owned());
    }
    advice
}
