//! Why a request failed, in one sentence that begins with the verdict. The bar of memory beside it has the totals.

use crate::allocator::verdict::{Certainty, Verdict};
use crate::analysis::failure::{DeadEnd, OomReport, VerdictReason};
use crate::analysis::{Advice, DeviceReport};
use crate::base::units::{counted, percent, ratio, size};
use crate::study::iterations::GrowthKind;

/// Why `oom`, the last failure of `device`, happened.
pub(crate) fn describe_cause(oom: &OomReport, device: &DeviceReport) -> String {
    if let Some(bytes) = device.explaining_growth(oom) {
        return describe_growth(oom, device, bytes);
    }
    let first = device.advice.first();
    // A setting that serves the input needs no word about it.
    let needs_less = matches!(first, Some(Advice::LimitInput(_) | Advice::Change(..)));
    let reason = match (first, oom.unusual_input.as_ref().filter(|_| needs_less)) {
        (Some(Advice::RequestLess(_)), _) => return format!("{}: the request itself is too large", oom.verdict),
        (_, Some(input)) => return format!("{}: {input}", oom.verdict),
        (_, None) => describe_shortage(oom),
    };
    let certainty = if oom.confidence == Certainty::Certain { "" } else { ", probably" };
    let alone = if concerns_one_request(oom) { "; what follows this request is not known" } else { "" };
    format!("{}{certainty}: {reason}{alone}", oom.verdict)
}

fn describe_growth(oom: &OomReport, device: &DeviceReport, bytes_per_step: u64) -> String {
    let is_replaced = device.leaks.kind == Some(GrowthKind::Replaced);
    let what = if is_replaced { "what is made anew each step is larger by" } else { "each step keeps" };
    let so_far = oom.growth.map_or_else(String::new, |growth| {
        format!(", {} in the last {}", size(growth.bytes), counted(growth.steps, "step"))
    });
    format!("grows: {what} {}{so_far}; no setting helps for long", size(bytes_per_step))
}

/// Whether the verdict blames free memory that this request could not use, and nothing shows whether the program would
/// go on with it.
fn concerns_one_request(oom: &OomReport) -> bool {
    use Verdict::{Fragmentation, OtherStream, PendingFree, PrivatePool};
    oom.is_rest_unknown && matches!(oom.verdict, Fragmentation | OtherStream | PendingFree | PrivatePool)
}

fn describe_shortage(oom: &OomReport) -> String {
    let reason = &oom.verdict_reason;
    let memory = &reason.memory;
    match oom.verdict {
        Verdict::MemoryLimit => format!(
            "a limit of this process or the driver refused it at {} reserved, not the device",
            size(oom.reserved_bytes)
        ),
        Verdict::Spurious
            if oom.requested_bytes < reason.max_split_size && oom.largest_free_block_bytes >= reason.max_split_size =>
        {
            "a free block was large enough, but max_split_size_mb keeps it for larger requests".to_owned()
        }
        Verdict::Spurious => "a free block was large enough; most likely it became free too late".to_owned(),
        Verdict::PendingFree => {
            format!("{} was freed and still waits for work on another stream", size(memory.pending.all.bytes))
        }
        Verdict::PrivatePool => format!(
            "{} is free in other pools (CUDA graphs, MemPool), which this request cannot use",
            size(memory.other_pool.bytes)
        ),
        Verdict::OtherStream => format!(
            "{} is free in segments of other streams, which this stream cannot use",
            size(memory.other_stream.bytes)
        ),
        Verdict::Fragmentation => format!(
            "{} is free in pieces of at most {}; in one piece it would have served the request",
            size(memory.own.all.bytes),
            size(oom.largest_free_block_bytes)
        ),
        Verdict::NonPytorch => {
            format!("{} of the device is in use outside PyTorch's allocator", size(reason.outside_bytes))
        }
        Verdict::Capacity => describe_full_device(oom, reason),
        Verdict::Unknown => "the trace does not show how much of the freed memory other streams still used".to_owned(),
        Verdict::Served => reason.to_string(),
    }
}

fn describe_full_device(oom: &OomReport, reason: &VerdictReason) -> String {
    match reason.dead_end {
        Some(DeadEnd::NextStep(next)) => format!(
            "the free memory could serve this request, but those after it need {} more and {} is left",
            size(next.needed_bytes),
            size(next.spare_bytes.unwrap_or(0)) // known: it is less than needed
        ),
        Some(DeadEnd::Filling(filling)) => format!(
            "this line took {} in its last {}, and {} is left",
            size(filling.bytes),
            counted(filling.requests, "request"),
            size(filling.spare_bytes)
        ),
        Some(DeadEnd::EverySettingFails) => "under every setting that was tried the job fails again".to_owned(),
        Some(DeadEnd::Growth(bytes)) => format!("what the program holds grows by {} a step", size(bytes)),
        Some(DeadEnd::Full { unused, reach }) => {
            format!("{} of the {} within reach is in use", percent(ratio(reach - unused, reach)), size(reach))
        }
        Some(DeadEnd::ExceedsReach) | None => {
            let reach = oom.reserved_bytes.saturating_add(oom.device_free_bytes);
            let needed = oom.allocated_bytes.saturating_add(oom.requested_bytes);
            if needed <= reach {
                return format!("{} is free, but not in one place", size(reach - oom.allocated_bytes));
            }
            format!("live memory and the request need {}, and {} is within reach", size(needed), size(reach))
        }
    }
}
