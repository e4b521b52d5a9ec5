//! What a log comes to, in the lines that its page begins with.

use super::answer::{ExplainReport, Failure};
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::EXPANDABLE_SEGMENTS;
use crate::base::summary::Summary;
use crate::base::units::{counted, percent, ratio, size};

/// Of all that was found: the first message is the one that ended the program, others often follow from it.
pub(super) fn of(report: &ExplainReport) -> Summary {
    let mut summary = match (report.failures.first(), report.statistics.last()) {
        (Some(first), _) => of_failure(first),
        (None, Some(last)) => Summary {
            answer: last.reason.clone(),
            who: None,
            action: Some(last.advice.to_owned()).filter(|_| last.state != "healthy"),
            copy: (last.state == "fragmentation")
                .then(|| shell_assignment(EXPANDABLE_SEGMENTS, None)),
        },
        (None, None) => Summary::from_answer(
            "no request failed: the device refused memory for expandable segments, and PyTorch emptied its cache",
        ),
    };
    let alike = report.failures.iter().filter(|failure| failure.same_as.is_some()).count();
    if alike > 0 {
        let ranks = counted(alike as u64, "other rank");
        summary.answer = format!("{}; the same on {ranks}", summary.answer);
    }
    let others = report.failures.iter().skip(1).filter(|failure| failure.same_as.is_none()).count();
    if others > 0 {
        let others = counted(others as u64, "other message");
        summary.answer = format!("{}; {others} in this log", summary.answer);
    }
    summary
}

fn of_failure(failure: &Failure) -> Summary {
    let device = failure.device.map(|device| device.to_string());
    let what = failure.what(device.as_deref());
    let at = failure.culprit.as_ref();
    let at =
        at.map(|frame| format!(" at {} in {}", frame.file_line(), frame.name)).unwrap_or_default();
    let why = match failure.system {
        Some(_) => failure.verdict_reason.clone(),
        None => failure.verdict.to_string(),
    };
    let free = failure.device_free_bytes.map(|bytes| format!("{} free on the device", size(bytes)));
    let numbers = failure.requested_bytes.map(|bytes| format!("{} requested", size(bytes)));
    let numbers: Vec<String> = numbers.into_iter().chain(free).collect();
    let numbers = if failure.system.is_some() { String::new() } else { numbers.join(", ") };
    let numbers = if numbers.is_empty() { numbers } else { format!("; {numbers}") };
    Summary {
        answer: format!("{what}{at}: {why}{numbers}"),
        who: who(failure),
        action: failure.advice.first().cloned(),
        copy: failure.copy.clone(),
    }
}

/// Who holds most of the device.
fn who(failure: &Failure) -> Option<String> {
    let cached = failure.reserved_bytes.zip(failure.allocated_bytes);
    let holders = [
        (failure.allocated_bytes, "this program's tensors"),
        (cached.map(|(all, used)| all.saturating_sub(used)), "PyTorch's cache, free in pieces"),
        (failure.outside_bytes, "others, outside this process' allocator"),
    ];
    let known = holders.into_iter().filter_map(|(bytes, who)| Some((bytes?, who)));
    // The first of equals.
    let (bytes, who) =
        known.rev().max_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| *bytes > 0)?;
    let of = failure.capacity_bytes.filter(|capacity| *capacity >= bytes);
    let of = of.map(|all| format!(" of {} ({})", size(all), percent(ratio(bytes, all))));
    Some(format!("{who}: {}{}", size(bytes), of.unwrap_or_default()))
}
