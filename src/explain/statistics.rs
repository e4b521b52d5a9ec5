//! What the allocator's own statistics say about its health.

use serde::Serialize;

use crate::base::units::{MIB, counted, escape_text, percent, ratio, size};
use crate::explain::message::{Gauge, Statistics};

/// From here on what was reserved beyond the most ever allocated counts as waste.
const WASTE_RATIO: f64 = 0.2;
/// Less than this is not worth a word: one segment too many is 20 MiB.
const WASTE_BYTES: u64 = 512 * MIB;

/// Statistics of one device at one moment, and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatisticsReport {
    /// The line of the log where they begin, from 1.
    pub line: u64,
    /// The rank that printed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Another label of who printed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `memory_summary` or `memory_stats`.
    pub kind: &'static str,
    /// The device's index; `memory_stats()` does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// Held from the device.
    pub reserved_bytes: u64,
    /// The most that was.
    pub peak_reserved_bytes: u64,
    /// Held by the program.
    pub allocated_bytes: u64,
    /// The most that was.
    pub peak_allocated_bytes: u64,
    /// Freed by the program, in use on another stream.
    pub pending_bytes: u64,
    /// In the cache.
    pub free_bytes: u64,
    /// The part of it in segments that are partly in use: "non-releasable".
    pub inactive_split_bytes: u64,
    /// Held by private pools, where that is printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_pool_bytes: Option<u64>,
    /// Refusals after which the cache was emptied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Refusals after that: errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ooms: Option<u64>,
    /// 1 - most allocated / most reserved.
    pub waste_ratio: f64,
    /// Numbers of a table are cut to whole units: each is at most so many bytes too small.
    pub error_bytes: u64,
    /// `healthy`, `fragmentation` (building up), `full` (the device).
    pub state: &'static str,
    /// One or two sentences with the numbers.
    pub reason: String,
    /// What to do.
    pub advice: &'static str,
}

/// Says what `statistics` come to.
pub(super) fn report(statistics: &Statistics) -> StatisticsReport {
    let now = |gauge: &Gauge| gauge.current.as_ref().map_or(0, |amount| amount.bytes);
    let peak = |gauge: &Gauge| gauge.peak.as_ref().map_or(now(gauge), |amount| amount.bytes);
    let gauges = [&statistics.reserved, &statistics.allocated, &statistics.inactive_split];
    let error_bytes = gauges
        .iter()
        .flat_map(|gauge| [&gauge.current, &gauge.peak])
        .flatten()
        .map(|amount| amount.error_bytes)
        .max()
        .unwrap_or(0);
    let (reserved, allocated) = (now(&statistics.reserved), now(&statistics.allocated));
    let active = now(&statistics.active).max(allocated);
    let (most_reserved, most_allocated) = (peak(&statistics.reserved), peak(&statistics.allocated));
    let mut report = StatisticsReport {
        line: statistics.line,
        rank: statistics.source.rank,
        source: statistics.source.label.as_deref().map(escape_text),
        kind: if statistics.is_table { "memory_summary" } else { "memory_stats" },
        device: statistics.device,
        reserved_bytes: reserved,
        peak_reserved_bytes: most_reserved,
        allocated_bytes: allocated,
        peak_allocated_bytes: most_allocated,
        pending_bytes: active - allocated,
        free_bytes: reserved.saturating_sub(active),
        inactive_split_bytes: now(&statistics.inactive_split),
        private_pool_bytes: statistics.private_pools,
        retries: statistics.retries,
        ooms: statistics.ooms,
        waste_ratio: ratio(most_reserved.saturating_sub(most_allocated), most_reserved),
        error_bytes,
        state: "healthy",
        reason: String::new(),
        advice: "",
    };
    (report.state, report.reason) = state(&report);
    report.advice = match report.state {
        "healthy" => "Nothing.",
        "full" => {
            "Hold less at the peak: a smaller batch, activation checkpointing, sharding. A \
             snapshot shows which lines hold the memory."
        }
        _ => {
            "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless already set; `oomscope \
             whatif` on a snapshot shows what each setting would reserve."
        }
    };
    report
}

fn retried(retries: u64) -> String {
    let times = counted(retries, "time");
    format!(
        "the device refused memory {times}, and the cache was emptied for a retry, which is slow"
    )
}

/// Two questions: has the device ever refused, and how much more was reserved than was ever needed?
fn state(s: &StatisticsReport) -> (&'static str, String) {
    let (retries, ooms) = (s.retries.unwrap_or(0), s.ooms.unwrap_or(0));
    let waste = s.peak_reserved_bytes.saturating_sub(s.peak_allocated_bytes);
    let is_wasteful = waste >= WASTE_BYTES && s.waste_ratio >= WASTE_RATIO;
    let peaks = format!(
        "reserved memory peaked at {}, allocated memory at {}: {} was never needed at once",
        size(s.peak_reserved_bytes),
        size(s.peak_allocated_bytes),
        percent(s.waste_ratio)
    );
    let refusals = match (retries, ooms) {
        (0, 0) => "the device never refused memory".to_owned(),
        (0, ooms) => {
            format!("the device refused memory, {} followed", counted(ooms, "out-of-memory error"))
        }
        (retries, 0) => format!("{}; no error followed", retried(retries)),
        (retries, ooms) => {
            format!("{}; {} followed", retried(retries), counted(ooms, "out-of-memory error"))
        }
    };
    match (is_wasteful, retries + ooms > 0) {
        (false, false) => {
            ("healthy", format!("{refusals}, and {peaks}. Free memory in the cache is reused"))
        }
        (true, refused) => {
            let split = if s.inactive_split_bytes > 0 {
                format!(
                    "; now {} is free in segments with live blocks ({} of reserved)",
                    size(s.inactive_split_bytes),
                    percent(ratio(s.inactive_split_bytes, s.reserved_bytes))
                )
            } else {
                String::new()
            };
            let so = if refused {
                "The free pieces fill the device"
            } else {
                "Harmless until the device is full"
            };
            ("fragmentation", format!("{peaks}{split}. {so}: {refusals}"))
        }
        (false, true) => (
            "full",
            format!(
                "{refusals}; {peaks}. The program needs the memory, and settings have little to \
                 join"
            ),
        ),
    }
}
