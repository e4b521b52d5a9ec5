//! The summary of a log: the first lines of its page.

use super::Summary;
use crate::allocator::conf::{EXPANDABLE_SEGMENTS, shell_assignment};
use crate::base::units::{counted, percent, ratio, size};
use crate::explain::{ExplainReport, ExplainedFailure};

impl ExplainReport {
    /// Summarizes the first message, which ended the program; later ones often follow from it.
    pub fn summary(&self) -> Summary {
        let mut summary = match (self.failures.first(), self.statistics.last()) {
            (Some(first), _) => summarize_failure(first),
            (None, Some(last)) => Summary {
                answer: last.reason.clone(),
                who: None,
                variable: None,
                action: Some(last.advice.to_owned()).filter(|_| last.state != "healthy"),
                copy: (last.state == "fragmentation").then(|| shell_assignment(EXPANDABLE_SEGMENTS, None)),
            },
            (None, None) => Summary::from_answer(
                "no request failed: the device refused memory for expandable segments, and PyTorch emptied its cache",
            ),
        };
        let same = self.failures.iter().filter(|failure| failure.same_as.is_some()).count();
        if same > 0 {
            let ranks = counted(same as u64, "other rank");
            summary.answer = format!("{}; the same on {ranks}", summary.answer);
        }
        let others = self.failures.iter().skip(1).filter(|failure| failure.same_as.is_none()).count();
        if others > 0 {
            let others = counted(others as u64, "other message");
            summary.answer = format!("{}; {others} in this log", summary.answer);
        }
        summary
    }
}

fn summarize_failure(failure: &ExplainedFailure) -> Summary {
    let device = failure.device.map(|device| device.to_string());
    let title = failure.describe(device.as_deref());
    // The lines of a server that refuses to start are not the user's.
    let location = failure.culprit.as_ref().filter(|_| failure.kind != "serving");
    let location = location.map_or_else(String::new, |frame| format!(" at {} in {}", frame.file_line(), frame.name));
    let reason = match failure.system {
        Some(_) => failure.verdict_reason.clone(),
        None => failure.verdict.to_string(),
    };
    let free = failure.device_free_bytes.map(|bytes| format!("{} free on the device", size(bytes)));
    let numbers = failure.requested_bytes.map(|bytes| format!("{} requested", size(bytes)));
    let numbers: Vec<String> = numbers.into_iter().chain(free).chain(describe_host_memory(failure)).collect();
    let numbers = if failure.system.is_some() { String::new() } else { numbers.join(", ") };
    let numbers = if numbers.is_empty() { numbers } else { format!("; {numbers}") };
    Summary {
        answer: format!("{title}{location}: {reason}{numbers}"),
        who: largest_holder(failure),
        variable: None,
        action: failure.advice.first().cloned(),
        copy: failure.copy.clone(),
    }
}

/// Host memory that PyTorch took for device memory.
pub(crate) fn describe_host_memory(failure: &ExplainedFailure) -> Option<String> {
    let (reserved, capacity) = failure.reserved_bytes.zip(failure.capacity_bytes).filter(|_| failure.exceeds_device)?;
    let [reserved, capacity] = [reserved, capacity].map(size);
    Some(format!("{reserved} reserved on a device of {capacity}: the rest is slow host memory that Windows added"))
}

/// The largest part of the device's memory, and who holds it.
fn largest_holder(failure: &ExplainedFailure) -> Option<String> {
    let cached = failure.reserved_bytes.zip(failure.allocated_bytes);
    let holders = [
        (failure.allocated_bytes, "this program's tensors"),
        (cached.map(|(all, used)| all.saturating_sub(used)), "PyTorch's cache, free in pieces"),
        (failure.outside_bytes, "others, outside this process' allocator"),
    ];
    let known = holders.into_iter().filter_map(|(bytes, who)| Some((bytes?, who)));
    // `max_by_key` returns the last of equals; the first is wanted.
    let (bytes, who) = known.rev().max_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| *bytes > 0)?;
    let of = failure.capacity_bytes.filter(|capacity| *capacity >= bytes);
    let of = of.map_or_else(String::new, |all| format!(" of {} ({})", size(all), percent(ratio(bytes, all))));
    Some(format!("{who}: {}{of}", size(bytes)))
}
