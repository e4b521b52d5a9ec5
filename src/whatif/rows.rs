//! Many settings at once: `oomscope/whatif/1`.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::answer::{WhatIfDevice, WhatIfReport, WhatIfRow};
use super::cautions::{caution, one_entry, parted, reconfigured};
use super::change::{WhatIf, changed, option_change};
use super::cost::Costs;
use super::grid::{COMMON, FINER, PLAIN};
use super::recorded::RecordedRun;
use super::smallest::{on, smallest_capacity, too_small_for};
use super::summary::{Circumstances, of_rows};
use crate::allocator::Entry;
use crate::allocator::conf::Settings;
use crate::allocator::device::UNBOUNDED;
use crate::base::warning::Warnings;
use crate::replay::calls::Prolonged;
use crate::replay::model::{Sink, simulate};
use crate::snapshot::Action;
use crate::study::{DeviceStudy, Study};

/// What to try.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// Options, a row each; a grid of them if there are none.
    pub options: &'a [String],
    /// Bytes of device memory, instead of what the recording shows.
    pub capacity: Option<u64>,
    /// What the device's calls cost, where that is known.
    pub costs: Option<&'a Costs>,
    /// How many rows of each device to keep, beside that of the recorded settings; all if not given.
    pub top: Option<usize>,
}

/// Replays the trace of every device under the recorded settings and under each of those `asked` for.
/// `progress` is told how many rows are done, of how many.
///
/// # Errors
/// One sentence, for an option that cannot be.
pub fn whatif(
    study: &Study<'_>,
    path: &str,
    asked: Asked<'_>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<WhatIfReport, String> {
    let verified = super::replay::verified(study, path);
    let mut warnings = Warnings::default();
    // What the figures are worth comes before them.
    warnings.extend(study.devices().filter_map(parted));
    warnings.extend(study.devices().filter_map(reconfigured));
    warnings.extend(verified.warnings);
    warnings.extend(study.devices().filter_map(one_entry));
    let mut tried = Vec::new();
    for device in study.devices().filter(|device| !device.device().is_empty()) {
        tried.push((device, changes(device, asked, &mut warnings)?));
    }
    let all = tried.iter().map(|(_, tried)| tried.len()).sum();
    let done = AtomicUsize::new(0);
    let (mut rows, mut devices, mut summaries) = (Vec::new(), Vec::new(), Vec::new());
    for (device, tried) in tried {
        let goes_on = device.goes_on();
        let mut of_device: Vec<WhatIfRow> = tried
            .into_par_iter()
            .map(|(option, change)| {
                let row = row(device, option, &change, (asked.costs, goes_on.as_ref()));
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
                row
            })
            .collect();
        if let [_, others @ ..] = of_device.as_mut_slice() {
            let order =
                |r: &WhatIfRow| (r.ooms, r.next_step_fails, r.peak_reserved_bytes, r.device_allocs);
            others.sort_by_key(order);
        }
        let of_it = WhatIfDevice {
            device: device.id(),
            capacity_bytes: asked.capacity.or(device.shown_capacity()),
            // Every setting rounds to at least as much as the default ones do.
            lower_bound_bytes: device.program().most_held(&Settings::default()),
            reserved_before_bytes: device.reserved_before(),
            exact: device.inferred().verification.is_exact(),
            some_row_serves: of_device.iter().any(|row| row.ooms == 0),
        };
        summaries.push(of_rows(&of_it, &of_device, circumstances(device, path)));
        devices.push(of_it);
        of_device.truncate(asked.top.unwrap_or(usize::MAX).saturating_add(1));
        rows.append(&mut of_device);
    }
    Ok(WhatIfReport {
        schema: "oomscope/whatif/1",
        // The first of equals.
        summary: summaries.into_iter().rev().max_by_key(|(bad, _)| *bad).unwrap_or_default().1,
        path: path.to_owned(),
        capacity_bytes: devices.iter().filter_map(|one| one.capacity_bytes).max(),
        torch_version: verified.torch_version,
        costs_of: asked.costs.map(Costs::measured_on),
        warnings: warnings.to_vec(),
        rows_tried: all,
        rows,
        lower_bound_bytes: devices.iter().map(|one| one.lower_bound_bytes).max().unwrap_or(0),
        devices,
    })
}

/// What the summary of `device` needs to know beside its rows.
fn circumstances<'s>(device: DeviceStudy<'s, '_>, path: &'s str) -> Circumstances<'s> {
    let trace = device.device();
    let last = trace.failed().last();
    let goes_on = |failed: usize| {
        (failed..trace.len()).any(|entry| trace.action(entry) == Some(Action::Alloc))
    };
    Circumstances {
        path,
        recorded: device.snapshot().settings.as_ref().map(|raw| raw.string.as_str()),
        lost: device.lost_history(),
        ends_at_failure: last.is_some_and(|failed| !goes_on(failed)),
    }
}

/// The recorded settings, then those to try with what they mean here.
fn changes(
    device: DeviceStudy<'_, '_>,
    asked: Asked<'_>,
    warnings: &mut Warnings,
) -> Result<Vec<(String, WhatIf)>, String> {
    let Asked { options, capacity, .. } = asked;
    let hypothesis = &device.inferred().hypothesis;
    let mut changes = vec![(String::new(), WhatIf { capacity, ..WhatIf::default() })];
    let is_grid = options.is_empty();
    let named = options.iter().map(String::as_str);
    let tried: Vec<&str> = if is_grid {
        [PLAIN].into_iter().chain(COMMON).chain(FINER).collect()
    } else {
        named.collect()
    };
    for option in tried {
        let settings = match option_change(device.snapshot(), hypothesis, option) {
            Ok(settings) => settings,
            Err(_) if is_grid => continue,
            Err(error) => return Err(error),
        };
        if is_grid && !is_worth_trying(&settings.0, device) {
            continue;
        }
        let is_limited = hypothesis.limit.is_some() || settings.0.per_process_memory_fraction < 1.0;
        warnings.extend(caution(&settings.0, is_limited));
        changes
            .push((option.to_owned(), WhatIf { settings: Some(settings), capacity, minor: None }));
    }
    Ok(changes)
}

/// Whether `settings` differ from what was recorded, do no harm of themselves, and apply to requests as
/// large as the program's.
pub(crate) fn is_worth_trying(settings: &Settings, device: DeviceStudy<'_, '_>) -> bool {
    let limit = settings.max_split_size;
    let recorded = &device.inferred().hypothesis;
    (!recorded.later.is_empty() || *settings != recorded.settings)
        && caution(settings, true).is_none()
        && (limit == u64::MAX || device.program().largest_request() >= limit)
}

fn row(
    device: DeviceStudy<'_, '_>,
    option: String,
    change: &WhatIf,
    (costs, goes_on): (Option<&Costs>, Option<&Prolonged<'_>>),
) -> WhatIfRow {
    let hypothesis = changed(device, change);
    let mut ns = 0u64;
    let mut add = |entry: &Entry, _: u64| {
        ns = ns.saturating_add(costs.map_or(0, |costs| costs.of(entry.action, entry.size)));
    };
    let keep = costs.map(|_| &mut add as &mut Sink<'_>);
    let mut done = simulate(device.program(), &hypothesis, keep);
    done.fails_at(change.capacity.and_then(|capacity| too_small_for(device, capacity, change)));
    let statistics = done.allocator.statistics();
    let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
    // A limit that the recording shows bounds this row, and is not the device's.
    let is_limited = hypothesis.limit != on(device, capacity, change).limit;
    let known = match done.ooms.is_empty() {
        _ if is_limited => (0, None),
        true => (capacity, Some(statistics.reserved_bytes.all.peak)),
        false => (capacity, None),
    };
    let row = WhatIfRow {
        settings: option,
        device: device.id(),
        ooms: done.ooms.len(),
        first_oom_event: done.ooms.first().map(|(event, _)| *event),
        next_step_fails: goes_on
            .filter(|_| done.ooms.is_empty() && !done.avoided.is_empty())
            .map(|goes_on| !simulate(&goes_on.program, &hypothesis, None).ooms.is_empty()),
        peak_reserved_bytes: statistics.reserved_bytes.all.peak,
        peak_allocated_bytes: statistics.allocated_bytes.all.peak,
        device_allocs: statistics.num_device_alloc,
        device_frees: statistics.num_device_free,
        device_time_us: costs.map(|_| ns / 1000),
        retries: statistics.num_alloc_retries,
        smallest_capacity_bytes: smallest_capacity(device, change, known),
    };
    if change.settings.is_some() || change.capacity.is_some() { row } else { recorded(device, row) }
}

/// The row of what was recorded, whatever the replay of it came to.
fn recorded(device: DeviceStudy<'_, '_>, replayed: WhatIfRow) -> WhatIfRow {
    let run = RecordedRun::of(device);
    let mut failed = device.device().failed();
    WhatIfRow {
        first_oom_event: failed.next(),
        ooms: device.device().failed().count(),
        peak_reserved_bytes: run.peak_reserved,
        peak_allocated_bytes: run.peak_allocated,
        device_allocs: run.device_allocs,
        device_frees: run.device_frees,
        retries: run.retries,
        ..replayed
    }
}
