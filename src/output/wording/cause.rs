//! Why a request failed, in one sentence that begins with the verdict. The bar of memory beside it has the totals.

use crate::allocator::verdict::{Certainty, Verdict};
use crate::analysis::failure::OomReport;
use crate::analysis::{Advice, DeviceReport};
use crate::base::units::{counted, size};
use crate::study::iterations::GrowthKind;

/// Why `oom`, the last failure of `device`, happened.
pub(crate) fn describe_cause(oom: &OomReport, device: &DeviceReport) -> String {
    if let Some(bytes) = device.explaining_growth(oom) {
        return describe_growth(oom, device, bytes);
    }
    let first = device.advice.first();
    // A setting that serves the input needs no word about it.
    let needs_less = matches!(first, Some(Advice::LimitInput(_) | Advice::Change(..)));
    if let Some(cause) = first.and_then(|advice| describe_cause_by_advice(oom, advice)) {
        return cause;
    }
    let reason = match (first, oom.unusual_input.as_ref().filter(|_| needs_less)) {
        (Some(Advice::RequestLess(_)), _) => return format!("{}: the request itself is too large", oom.verdict),
        (_, Some(input)) => return format!("{}: {input}", oom.verdict),
        (_, None) => oom.verdict_reason.to_string(),
    };
    let certainty = if oom.confidence == Certainty::Certain { "" } else { ", probably" };
    let alone = if concerns_one_request(oom) { "; what follows this request is not known" } else { "" };
    format!("{}{certainty}: {reason}{alone}", oom.verdict)
}

/// The cause if the replays decide between fragmentation and capacity otherwise than the free bytes do: the word and the
/// advice answer one question.
fn describe_cause_by_advice(oom: &OomReport, advice: &Advice) -> Option<String> {
    let is_served = oom.remedies.iter().any(|remedy| remedy.avoids_oom);
    let is_apart = matches!(oom.verdict, Verdict::Fragmentation | Verdict::OtherStream);
    match advice {
        Advice::Cure(cure) => {
            Some(format!("capacity: {} keeps {} of the allocated memory", cure.subject(), cure.share_label()))
        }
        Advice::Shapes(_) if is_apart => {
            Some("capacity: the request is for a table of pairs that the program can do without".to_owned())
        }
        Advice::NothingHelps(_) | Advice::Guess(..) if is_apart && !is_served => Some(format!(
            "capacity: {} is free in pieces, but no layout that was tried serves the request",
            size(oom.cached_bytes)
        )),
        Advice::GoOn(_) if oom.verdict == Verdict::Capacity => {
            Some("fragmentation: the same memory in another layout serves the request".to_owned())
        }
        _ => None,
    }
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
