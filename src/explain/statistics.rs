//! Evaluates the allocator's own statistics: healthy, fragmented or full.

use serde::Serialize;

use crate::base::units::{MIB, counted, escape_text, percent, ratio, size};
use crate::explain::message::{Gauge, Statistics};

/// Peak reserved memory beyond peak allocated memory counts as waste from this share on.
const MIN_WASTE_RATIO: f64 = 0.2;
/// A smaller waste is ignored: one surplus segment alone is 20 MiB.
const MIN_WASTE_BYTES: u64 = 512 * MIB;

/// Statistics of one device at one time, with an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatisticsReport {
    /// First line of the statistics in the log, from 1.
    pub line: u64,
    /// Rank of the process that printed the statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Other label of that process, such as a worker or host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The function that printed them: `memory_summary` or `memory_stats`.
    pub kind: &'static str,
    /// Device index; absent for `memory_stats`, which does not print it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// Bytes reserved from the device.
    pub reserved_bytes: u64,
    /// Peak of `reserved_bytes`.
    pub peak_reserved_bytes: u64,
    /// Bytes allocated to tensors.
    pub allocated_bytes: u64,
    /// Peak of `allocated_bytes`.
    pub peak_allocated_bytes: u64,
    /// Bytes freed by the program but still in use on another stream.
    pub pending_bytes: u64,
    /// Bytes free in the cache.
    pub free_bytes: u64,
    /// The part of `free_bytes` in segments with live blocks, which PyTorch calls non-releasable.
    pub inactive_split_bytes: u64,
    /// Bytes reserved by private pools; absent if not printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_pool_bytes: Option<u64>,
    /// Number of times that the device refused memory and the cache was emptied for a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Number of out-of-memory errors: the retry failed too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ooms: Option<u64>,
    /// 1 - peak allocated / peak reserved.
    pub waste_ratio: f64,
    /// Largest possible rounding error: tables print whole units, rounded down.
    pub error_bytes: u64,
    /// `healthy`, `fragmentation` (free memory in pieces builds up) or `full` (the device is).
    pub state: &'static str,
    /// The reason for `state`, in one or two sentences with the numbers.
    pub reason: String,
    /// Advice.
    pub advice: &'static str,
}

pub(super) fn evaluate(statistics: &Statistics) -> StatisticsReport {
    let now = |gauge: &Gauge| gauge.current.as_ref().map_or(0, |amount| amount.bytes);
    let peak = |gauge: &Gauge| gauge.peak.as_ref().map_or(now(gauge), |amount| amount.bytes);
    let gauges = [&statistics.reserved, &statistics.allocated, &statistics.inactive_split];
    let error_bytes = gauges
        .iter()
        .flat_map(|gauge| [&gauge.current, &gauge.peak])
        .flatten()
        .map(|amount| amount.error_bytes)
        .fold(0, u64::max);
    let (reserved, allocated) = (now(&statistics.reserved), now(&statistics.allocated));
    let active = now(&statistics.active).max(allocated);
    let (peak_reserved, peak_allocated) = (peak(&statistics.reserved), peak(&statistics.allocated));
    let mut report = StatisticsReport {
        line: statistics.line,
        rank: statistics.source.rank,
        source: statistics.source.label.as_deref().map(escape_text),
        kind: if statistics.is_table { "memory_summary" } else { "memory_stats" },
        device: statistics.device,
        reserved_bytes: reserved,
        peak_reserved_bytes: peak_reserved,
        allocated_bytes: allocated,
        peak_allocated_bytes: peak_allocated,
        pending_bytes: active - allocated,
        free_bytes: reserved.saturating_sub(active),
        inactive_split_bytes: now(&statistics.inactive_split),
        private_pool_bytes: statistics.private_pools,
        retries: statistics.retries,
        ooms: statistics.ooms,
        waste_ratio: ratio(peak_reserved.saturating_sub(peak_allocated), peak_reserved),
        error_bytes,
        state: "healthy",
        reason: String::new(),
        advice: "",
    };
    (report.state, report.reason) = health(&report);
    report.advice = match report.state {
        "healthy" => "Nothing.",
        "full" => {
            "Use less memory at the peak: a smaller batch, activation checkpointing, sharding. A \
             snapshot shows which lines hold the memory."
        }
        _ => {
            "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless already set; `oomscope \
             whatif` on a snapshot shows what each setting would reserve."
        }
    };
    report
}

fn retries_text(retries: u64) -> String {
    let times = counted(retries, "time");
    format!("the device refused memory {times}, and the cache was emptied for a retry, which is slow")
}

/// Combines two questions: did the device ever refuse memory, and how much more was reserved than ever allocated?
fn health(s: &StatisticsReport) -> (&'static str, String) {
    // Counters that the log cuts off count as 0, except where the text would claim that.
    let (retries, ooms) = (s.retries.unwrap_or(0), s.ooms.unwrap_or(0));
    let waste = s.peak_reserved_bytes.saturating_sub(s.peak_allocated_bytes);
    let is_wasteful = waste >= MIN_WASTE_BYTES && s.waste_ratio >= MIN_WASTE_RATIO;
    let peaks = format!(
        "reserved memory peaked at {}, allocated memory at {}: {} was never needed at once",
        size(s.peak_reserved_bytes),
        size(s.peak_allocated_bytes),
        percent(s.waste_ratio)
    );
    let refusals = match (retries, ooms) {
        (0, 0) if s.retries.is_none() => "these statistics do not show whether the device refused memory".to_owned(),
        (0, 0) => "the device never refused memory".to_owned(),
        (0, ooms) => {
            format!("the device refused memory, {} followed", counted(ooms, "out-of-memory error"))
        }
        (retries, 0) => format!("{}; no error followed", retries_text(retries)),
        (retries, ooms) => {
            format!("{}; {} followed", retries_text(retries), counted(ooms, "out-of-memory error"))
        }
    };
    match (is_wasteful, retries > 0 || ooms > 0) {
        (false, false) => ("healthy", format!("{refusals}, and {peaks}. Free memory in the cache is reused")),
        (true, has_refused) => {
            let split = if s.inactive_split_bytes > 0 {
                format!(
                    "; now {} is free in segments with live blocks ({} of reserved)",
                    size(s.inactive_split_bytes),
                    percent(ratio(s.inactive_split_bytes, s.reserved_bytes))
                )
            } else {
                String::new()
            };
            let effect =
                if has_refused { "The free pieces fill the device" } else { "Harmless until the device is full" };
            ("fragmentation", format!("{peaks}{split}. {effect}: {refusals}"))
        }
        (false, true) => {
            ("full", format!("{refusals}; {peaks}. The program needs the memory; a setting could free little of it"))
        }
    }
}
