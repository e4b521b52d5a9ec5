//! Why a request failed, in one sentence that begins with the verdict. The bar of memory beside it has the totals.

use crate::allocator::verdict::{Certainty, Verdict};
use crate::analysis::failure::OomReport;
use crate::analysis::{Advice, DeviceReport};
use crate::base::units::{counted, size};
use crate::study::iterations::GrowthKind;

/// Why `oom`, the last failure of `device`, happened.
pub(crate) fn describe_cause(oom: &OomReport, device: &DeviceReport) -> String {
    let conclusion = device.conclusion.unwrap_or(oom.verdict); // a device with a failure has one
    let is_overruled = conclusion != oom.verdict;
    let first = device.advice.first();
    // A setting that serves the input needs no word about it.
    let needs_less = matches!(first, Some(Advice::LimitInput(_) | Advice::Change(..)));
    // The size of an input does not explain why free memory could not be used.
    let input = oom.unusual_input.as_ref().filter(|_| needs_less && conclusion == Verdict::Capacity);
    let why = match (first, device.explaining_growth(oom), input) {
        (_, Some(bytes), _) => describe_growth(oom, device, bytes),
        (Some(Advice::Cure(cure)), ..) => cure.describe_holder(),
        (Some(Advice::Shapes(_)), ..) if is_overruled => {
            "the request is for a table of pairs that the program can do without".to_owned()
        }
        (Some(Advice::GoOn(_)), ..) if is_overruled => {
            "the same memory in another layout serves the request".to_owned()
        }
        _ if is_overruled => {
            format!("{} is free in pieces, but no layout that was tried serves the request", size(oom.cached_bytes))
        }
        (Some(Advice::RequestLess(_)), ..) => "the request itself is too large".to_owned(),
        (.., Some(input)) => input.to_string(),
        _ => {
            let certainty = if oom.confidence == Certainty::Certain { "" } else { ", probably" };
            let alone = if concerns_one_request(oom) { "; what follows this request is not known" } else { "" };
            return format!("{conclusion}{certainty}: {}{alone}", oom.verdict_reason);
        }
    };
    format!("{conclusion}: {why}")
}

fn describe_growth(oom: &OomReport, device: &DeviceReport, bytes_per_step: u64) -> String {
    let is_replaced = device.leaks.kind == Some(GrowthKind::Replaced);
    let what = if is_replaced { "what is made anew each step is larger by" } else { "each step keeps" };
    let so_far = oom.growth.map_or_else(String::new, |growth| {
        format!(", {} in the last {}", size(growth.bytes), counted(growth.steps, "step"))
    });
    format!("{what} {}{so_far}; no setting helps for long", size(bytes_per_step))
}

/// Whether the verdict blames free memory that this request could not use, and nothing shows whether the program would
/// go on with it.
fn concerns_one_request(oom: &OomReport) -> bool {
    use Verdict::{Fragmentation, OtherStream, PendingFree, PrivatePool};
    oom.is_rest_unknown && matches!(oom.verdict, Fragmentation | OtherStream | PendingFree | PrivatePool)
}
