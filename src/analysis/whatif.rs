//! Many settings at once: `oomscope/whatif/1`.

use rayon::prelude::*;
use serde::Serialize;

use super::replay::{WhatIf, changed, option_change};
use crate::conf::Settings;
use crate::replay::{
    Hypothesis, Inference, Inferred, Program, UNBOUNDED, enough, fits, shown_capacity, simulate,
};
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
    /// The smallest device on which no request fails, to within 2 MiB or 1/256; `None` where none is
    /// large enough.
    pub smallest_capacity_bytes: Option<u64>,
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
        let program = Program::of(snapshot, one.device, &one.hypothesis.settings);
        let recorded = Recorded { snapshot, one, program };
        let mut of_device: Vec<WhatIfRow> = changes
            .into_par_iter()
            .map(|(option, change)| row(&recorded, option, &change))
            .collect();
        if let [_, others @ ..] = of_device.as_mut_slice() {
            others.sort_by_key(|r| (r.ooms, r.peak_reserved_bytes, r.device_allocs));
        }
        rows.append(&mut of_device);
        let reach = shown_capacity(snapshot, one.device, one.verification.reserved_before);
        shown = shown.max(reach);
        // Every setting rounds to at least as much as the default ones do.
        let held = recorded.program.most_held(&Settings::default());
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

/// One device's calls, and how they came about.
struct Recorded<'a> {
    snapshot: &'a Snapshot,
    one: &'a Inferred,
    program: Program<'a>,
}

impl Recorded<'_> {
    /// What is taken for granted under `change` on a device of `capacity` bytes.
    fn on(&self, capacity: u64, change: &WhatIf) -> Hypothesis {
        let change = WhatIf { capacity: Some(capacity), ..change.clone() };
        changed(self.snapshot, self.one, &change)
    }
}

fn row(recorded: &Recorded<'_>, option: String, change: &WhatIf) -> WhatIfRow {
    let hypothesis = changed(recorded.snapshot, recorded.one, change);
    let done = simulate(&recorded.program, &hypothesis, None);
    let statistics = done.allocator.statistics();
    let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
    // A limit that the recording shows bounds this row, and is not the device's.
    let is_limited = hypothesis.limit != recorded.on(capacity, change).limit;
    let known = match done.ooms.is_empty() {
        _ if is_limited => (0, None),
        true => (capacity, Some(statistics.reserved_bytes.all.peak)),
        false => (capacity, None),
    };
    WhatIfRow {
        settings: option,
        device: recorded.one.device as u64,
        ooms: done.ooms.len(),
        first_oom_event: done.ooms.first().map(|(event, _)| *event),
        peak_reserved_bytes: statistics.reserved_bytes.all.peak,
        peak_allocated_bytes: statistics.allocated_bytes.all.peak,
        device_allocs: statistics.num_device_alloc,
        device_frees: statistics.num_device_free,
        retries: statistics.num_alloc_retries,
        smallest_capacity_bytes: smallest_capacity(recorded, change, known),
    }
}

fn whole(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(CAPACITY_STEP).unwrap_or(bytes)
}

/// The smallest device on which no request fails; `known` is the most that was reserved on one, if
/// nothing failed there. A replay on a device that gets more memory each time it runs out tells where to
/// begin. Once a size holds, it is made smaller until it does not, in strides that grow; what is left
/// is halved.
fn smallest_capacity(
    recorded: &Recorded<'_>,
    change: &WhatIf,
    known: (u64, Option<u64>),
) -> Option<u64> {
    let fits_on = |capacity| fits(&recorded.program, &recorded.on(capacity, change));
    let Hypothesis { settings, .. } = recorded.on(UNBOUNDED, change);
    let fraction = settings.per_process_memory_fraction;
    // How many addresses are reserved, and how much may be, goes by the size of the device; if neither
    // matters, a device that has no more than was reserved sees the same run.
    let is_plain = !settings.expandable_segments && fraction >= 1.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let device_for = |bytes: u64| whole((bytes as f64 / fraction).ceil() as u64).min(UNBOUNDED);
    let high_of = |capacity, peak| if is_plain { device_for(peak) } else { capacity };
    let precision = |bytes: u64| whole(bytes / CAPACITY_PARTS).max(CAPACITY_STEP);

    // Sizes are multiples of the step from here on, so that what is left always has a middle.
    let held = recorded.program.most_held(&settings);
    let least = device_for(held.max(recorded.one.verification.reserved_before));
    let (mut low, mut high) = (least.saturating_sub(CAPACITY_STEP), UNBOUNDED);
    match known {
        (capacity, Some(peak)) => high = high_of(capacity, peak),
        (capacity, None) => low = low.max(capacity / CAPACITY_STEP * CAPACITY_STEP),
    }
    if high.saturating_sub(low) <= precision(high) {
        return Some(high);
    }
    let on_least = recorded.on(least, change);
    let is_limited = on_least.limit.is_some();
    let grown = enough(&recorded.program, &Hypothesis { limit: None, ..on_least });
    if grown == least && !is_limited && low < least {
        return Some(least);
    }
    let mut guess = device_for(grown).max(low.saturating_add(CAPACITY_STEP));
    let (mut up, mut down) = (precision(low), precision(low));
    while high.saturating_sub(low) > precision(high) {
        let middle = low + (high - low) / 2;
        let is_guess = low < guess && guess < high;
        let next = if is_guess { guess } else { whole(middle.max(high.saturating_sub(down))) };
        if let Some(peak) = fits_on(next) {
            down = if is_guess { precision(next) } else { down.saturating_mul(2) };
            (high, guess) = (high_of(next, peak), UNBOUNDED);
        } else {
            guess = if is_guess { next.saturating_add(up) } else { UNBOUNDED };
            (low, up, down) = (next, up.saturating_mul(2), UNBOUNDED);
        }
    }
    (high < UNBOUNDED).then_some(high)
}
