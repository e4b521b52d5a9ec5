//! Many settings at once: `oomscope/whatif/1`.

use rayon::prelude::*;
use serde::Serialize;

use super::replay::{WhatIf, changed, option_change};
use crate::conf::Settings;
use crate::replay::{Inference, Inferred, Simulation, UNBOUNDED, fits, shown_capacity, simulate};
use crate::snapshot::{Snapshot, Warning};
use crate::units::MIB;

/// Options that are tried when none are named. Rows that set what is in effect already, or an option
/// that the release does not have, are left out.
const GRID: [&str; 20] = [
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:False",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "max_split_size_mb:1024",
    "max_split_size_mb:64,roundup_power2_divisions:8",
    "max_split_size_mb:128,roundup_power2_divisions:8",
    "max_split_size_mb:256,roundup_power2_divisions:8",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.98",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
    "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
];
/// The smallest capacity is found to within this, or to a part of itself.
const CAPACITY_STEP: u64 = 2 * MIB;
/// See [`CAPACITY_STEP`].
const CAPACITY_PARTS: u64 = 256;

/// The JSON of `oomscope whatif`.
#[derive(Debug, Serialize)]
pub struct WhatIfReport {
    /// `oomscope/whatif/1`
    pub schema: &'static str,
    /// As given.
    pub path: String,
    /// Bytes of device memory replayed on; `None` where nothing bounds them.
    pub capacity_bytes: Option<u64>,
    /// The releases whose rules were followed.
    pub torch_version: String,
    /// What was odd about the file.
    pub warnings: Vec<Warning>,
    /// Of each device the recorded settings first, then the others, best first.
    pub rows: Vec<WhatIfRow>,
    /// The most that the program held at once, in rounded bytes: no setting needs less. The largest of
    /// all devices.
    pub lower_bound_bytes: u64,
}

/// One setting on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfRow {
    /// The options tried; empty for the recorded settings.
    pub settings: String,
    /// Device number.
    pub device: u64,
    /// Requests that fail.
    pub ooms: usize,
    /// Index of the first of them in the device's trace.
    pub first_oom_event: Option<usize>,
    /// The most that is held from the device.
    pub peak_reserved_bytes: u64,
    /// The most that the program holds.
    pub peak_allocated_bytes: u64,
    /// Calls that take memory from the device.
    pub device_allocs: u64,
    /// Calls that give memory back.
    pub device_frees: u64,
    /// Requests for which everything free is given back first.
    pub retries: u64,
    /// The smallest device on which no request fails, to within 2 MiB or 1/256.
    pub smallest_capacity_bytes: u64,
}

/// Replays the trace of every device under the recorded settings and under each of `options`, or under
/// a grid of them if there are none.
///
/// # Errors
/// One sentence, for an option that cannot be.
pub fn whatif(
    snapshot: &Snapshot,
    path: &str,
    inference: &Inference,
    options: &[String],
    capacity: Option<u64>,
) -> Result<WhatIfReport, String> {
    let verified = super::replay::verified(snapshot, path, inference);
    let mut rows = Vec::new();
    let mut shown = None;
    let mut lower_bound_bytes = 0;
    for one in &inference.devices {
        let mut changes = vec![(String::new(), WhatIf { capacity, ..WhatIf::default() })];
        let named = options.iter().map(String::as_str);
        let tried: Vec<&str> = if options.is_empty() { GRID.to_vec() } else { named.collect() };
        for option in tried {
            match option_change(snapshot, &one.hypothesis, option) {
                Ok(settings) if settings.0 == one.hypothesis.settings && options.is_empty() => {}
                Ok(settings) => {
                    let settings = Some(settings);
                    let change = WhatIf { settings, capacity, minor: None };
                    changes.push((option.to_owned(), change));
                }
                Err(error) if !options.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        let mut of_device: Vec<WhatIfRow> = changes
            .into_par_iter()
            .map(|(option, change)| row(snapshot, one, option, &change))
            .collect();
        if let [_, others @ ..] = of_device.as_mut_slice() {
            others.sort_by_key(|r| (r.ooms, r.peak_reserved_bytes, r.device_allocs));
        }
        rows.append(&mut of_device);
        let reach = shown_capacity(snapshot, one.device, one.verification.reserved_before);
        shown = shown.max(reach);
        // Blocks cut to the 512 bytes that every setting rounds to, on a device without bounds.
        let tightest = Settings { expandable_segments: true, ..Settings::default() };
        let change = WhatIf { settings: Some((tightest, String::new())), ..WhatIf::default() };
        let held =
            unbounded(snapshot, one, &change).allocator.statistics().allocated_bytes.all.peak;
        lower_bound_bytes = lower_bound_bytes.max(held);
    }
    Ok(WhatIfReport {
        schema: "oomscope/whatif/1",
        path: path.to_owned(),
        capacity_bytes: capacity.or(shown),
        torch_version: verified.torch_version,
        warnings: verified.warnings,
        rows,
        lower_bound_bytes,
    })
}

/// The same on a device without bounds.
fn unbounded(snapshot: &Snapshot, one: &Inferred, change: &WhatIf) -> Simulation {
    let unbounded = WhatIf { capacity: Some(UNBOUNDED), ..change.clone() };
    let hypothesis = changed(snapshot, one, &unbounded);
    simulate(snapshot, one.device, &one.hypothesis, &hypothesis, None)
}

fn row(snapshot: &Snapshot, one: &Inferred, option: String, change: &WhatIf) -> WhatIfRow {
    let hypothesis = changed(snapshot, one, change);
    let mut done = unbounded(snapshot, one, change);
    let peaks = done.allocator.statistics();
    let peaks = (peaks.reserved_bytes.all.peak, peaks.allocated_bytes.all.peak);
    let smallest_capacity_bytes = smallest_capacity(snapshot, one, change, peaks);
    let bound = [hypothesis.capacity, hypothesis.limit].into_iter().flatten().min();
    // What never meets a bound does not differ; a limit also arms garbage collection.
    let collects = hypothesis.settings.garbage_collection_threshold > 0.0;
    if collects || bound.is_some_and(|bound| peaks.0 > bound) {
        done = simulate(snapshot, one.device, &one.hypothesis, &hypothesis, None);
    }
    let statistics = done.allocator.statistics();
    WhatIfRow {
        settings: option,
        device: one.device as u64,
        ooms: done.ooms.len(),
        first_oom_event: done.ooms.first().map(|(event, _)| *event),
        peak_reserved_bytes: statistics.reserved_bytes.all.peak,
        peak_allocated_bytes: statistics.allocated_bytes.all.peak,
        device_allocs: statistics.num_device_alloc,
        device_frees: statistics.num_device_free,
        retries: statistics.num_alloc_retries,
        smallest_capacity_bytes,
    }
}

/// The smallest device on which no request fails. A failure tells what it lacked, which is the next
/// guess; where guesses come too slowly, the rest is halved.
fn smallest_capacity(
    snapshot: &Snapshot,
    one: &Inferred,
    change: &WhatIf,
    (reserved, allocated): (u64, u64),
) -> u64 {
    let try_on = |capacity: u64| {
        let change = WhatIf { capacity: Some(capacity), ..change.clone() };
        fits(snapshot, one.device, &one.hypothesis, &changed(snapshot, one, &change))
    };
    let whole = |bytes: u64| bytes.next_multiple_of(CAPACITY_STEP);
    // Never enough, and always: unless a fraction of the device leaves less than the device. What was
    // held before the recording began has to fit as well.
    let least = allocated.max(one.verification.reserved_before);
    let (mut low, mut high) = (least / CAPACITY_STEP * CAPACITY_STEP, whole(reserved.max(least)));
    while try_on(high).is_err() && high < UNBOUNDED / 2 {
        low = high;
        high = whole(high + high / 16 + CAPACITY_STEP);
    }
    let mut guess = whole(least);
    for tries in 0.. {
        if high.saturating_sub(low) <= whole(high / CAPACITY_PARTS) {
            break;
        }
        let middle = whole(low + (high - low) / 2);
        let is_good = tries < 4 && guess > low && guess < high;
        let capacity = if is_good { guess } else { middle };
        if capacity >= high {
            break;
        }
        match try_on(capacity) {
            Ok(peak) => high = whole(peak).min(capacity),
            Err(needed) => {
                low = capacity;
                guess = whole(needed).max(low + CAPACITY_STEP);
            }
        }
    }
    high
}
