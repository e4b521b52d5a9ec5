//! Replays under many settings, compared: the JSON of `oomscope whatif`, and what it is made from.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use serde::Serialize;

use super::candidates::{Candidate, candidates};
use super::forecast::{Forecast, ForecastLength};
use super::outcome::{
    JobOutcome, TriedKind, TriedMark, TriedOn, TriedRow, free_of, growth_to_end, is_failure_unreplayable, sort_tried,
};
use super::overrides::{Overrides, apply_option, hypothesis_on, hypothesis_with};
use super::program::{ProgramDevice, is_tried_by_default, replay_changes};
use super::run::{OverriddenRun, recorded_figures};
use super::smallest_capacity::smallest_capacity;
use super::warnings::{divergence_warning, settings_changed_warning, settings_warning, single_entry_warning};
use crate::allocator::RunFigures;
use crate::allocator::conf::Settings;
use crate::allocator::device::UNBOUNDED;
use crate::base::warning::{Warning, Warnings};
use crate::study::{DeviceStudy, LostHistory, Study};

/// Selects what to try, and on which device.
#[derive(Debug, Clone, Copy, Default)]
pub struct WhatIfOptions<'a> {
    /// The options of each row; if empty, a built-in grid of settings.
    pub options: &'a [String],
    /// Bytes of device memory, in place of what the recording shows.
    pub capacity: Option<u64>,
    /// Settings, changes to the program, or both.
    pub tries: Tries,
}

/// The kinds of changes that a what-if tries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tries {
    /// Settings.
    #[default]
    Settings,
    /// Settings, and changes to the program unless the trace is long.
    Both,
    /// Changes to the program, however long the trace is.
    Program,
}

/// Replays the trace of every device under the recorded settings and under each of `options`. Calls `progress` with
/// the number of rows done and the number of all rows.
///
/// # Errors
/// One sentence, for an invalid option.
pub fn compare_settings(
    study: &Study<'_>,
    path: &str,
    options: WhatIfOptions<'_>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<WhatIfReport, String> {
    let verified = super::replay::verify_study(study, path);
    let mut warnings = Warnings::default();
    // Warnings that limit all figures come first.
    warnings.extend(study.devices().filter_map(divergence_warning));
    warnings.extend(study.devices().filter_map(settings_changed_warning));
    warnings.extend(verified.warnings);
    warnings.extend(study.devices().filter_map(single_entry_warning));
    let mut settings_by_device = Vec::new();
    for device in study.devices().filter(|device| !device.device().is_empty()) {
        settings_by_device.push((device, settings_to_try(device, options, &mut warnings)?));
    }
    let row_count = settings_by_device.iter().map(|(_, tried)| tried.len()).sum();
    let rows_done = AtomicUsize::new(0);
    let (mut rows, mut devices, mut programs) = (Vec::new(), Vec::new(), Vec::new());
    for (device, tried) in settings_by_device {
        let forecast = Forecast::from_device(device, ForecastLength::UntilFull(options.capacity));
        let replayed = tried.par_iter().map(|tried| {
            let row = replay_row(device, tried, forecast.as_ref());
            progress(rows_done.fetch_add(1, Ordering::Relaxed) + 1, row_count);
            row
        });
        let mut device_rows: Vec<WhatIfRow> = replayed.collect();
        if let [_, others @ ..] = device_rows.as_mut_slice() {
            others.sort_by_key(|r| {
                (r.ooms, Reverse(r.then.reach()), r.figures.peak_reserved_bytes, r.figures.device_allocs)
            });
        }
        let skips_program = options.tries == Tries::Both && !is_tried_by_default(device);
        let tries_program = options.tries != Tries::Settings && !skips_program;
        let program = tries_program.then(|| replay_changes(device, options.capacity));
        let report = compare_rows(device, &device_rows, program.as_ref(), forecast.as_ref(), options.capacity);
        devices.push(WhatIfDevice { skips_program, ..report });
        programs.extend(program);
        rows.append(&mut device_rows);
    }
    Ok(WhatIfReport {
        path: path.to_owned(),
        recorded_settings: study.snapshot().settings_string().map(str::to_owned),
        capacity_bytes: devices.iter().filter_map(|device| device.capacity_bytes).max(),
        torch_version: verified.torch_version,
        warnings: warnings.to_vec(),
        rows,
        lower_bound_bytes: devices.iter().map(|device| device.lower_bound_bytes).fold(0, u64::max),
        devices,
        program: (options.tries != Tries::Settings).then_some(programs),
    })
}

/// The report on `device` from its replays, `rows` and `program`.
fn compare_rows(
    device: DeviceStudy<'_, '_>,
    rows: &[WhatIfRow],
    program: Option<&ProgramDevice>,
    forecast: Option<&Forecast<'_>>,
    capacity: Option<u64>,
) -> WhatIfDevice {
    let is_unreplayable = is_failure_unreplayable(device);
    let lost = device.lost_history();
    let shows_nothing = is_unreplayable || lost == Some(LostHistory::RingOfOne);
    let tried = if shows_nothing { Vec::new() } else { tried_rows(device, rows, program) };
    let best_tried = tried.first().filter(|row| row.mark != TriedMark::NoHelp).cloned();
    let mut serving = tried.iter().filter(|row| !matches!(row.then, JobOutcome::RequestFails { .. }));
    let best = serving.find(|row| row.kind == TriedKind::Settings);
    let best = best.and_then(|best| rows.iter().find(|row| row.settings == best.what).cloned());
    let limit = hypothesis_with(device, &Overrides { capacity, ..Overrides::default() }).limit;
    let capacity = capacity.or(device.inferred_capacity());
    // No setting rounds a request to less than the default settings do.
    let (live, reserved_before) = (device.program().peak_bytes(&Settings::default()), device.reserved_before());
    let is_continued = rows.first().is_some_and(|recorded| recorded.then.goes_on());
    let continued = forecast.filter(|_| is_continued);
    let requirement = requirement(rows, capacity, limit, [live, reserved_before]);
    WhatIfDevice {
        device: device.id(),
        capacity_bytes: capacity,
        limit_bytes: limit,
        lower_bound_bytes: continued.map_or(live, |forecast| forecast.program.peak_bytes(&Settings::default())),
        reserved_before_bytes: reserved_before,
        exact: device.inferred().verification.is_exact(),
        growth_bytes_per_step: growth_to_end(device),
        some_row_serves: rows.iter().any(|row| row.ooms == 0),
        tried,
        skips_program: false,
        verdict: SettingsVerdict { best, best_tried, requirement, lost, is_unreplayable },
    }
}

/// The settings of each row, in the syntax of `PYTORCH_CUDA_ALLOC_CONF` and to replay with: first the recorded ones, with an
/// empty option, then those to try.
fn settings_to_try(
    device: DeviceStudy<'_, '_>,
    options: WhatIfOptions<'_>,
    warnings: &mut Warnings,
) -> Result<Vec<(String, Overrides)>, String> {
    let WhatIfOptions { options, capacity, tries } = options;
    let hypothesis = &device.inferred().hypothesis;
    let recorded = Overrides { capacity, ..Overrides::default() };
    let mut to_try = vec![(String::new(), recorded)];
    let candidates = if tries == Tries::Program {
        Vec::new()
    } else if options.is_empty() {
        candidates(device)
    } else {
        let candidates = options.iter().map(|option| {
            let settings = apply_option(device.snapshot(), hypothesis, option)?;
            Ok(Candidate { option: option.clone(), settings })
        });
        candidates.collect::<Result<Vec<_>, String>>()?
    };
    for Candidate { option, settings } in candidates {
        let is_limited = hypothesis.limit.is_some() || settings.0.per_process_memory_fraction < 1.0;
        warnings.extend(settings_warning(&settings.0, is_limited));
        to_try.push((option, Overrides { settings: Some(settings), capacity, ..Overrides::default() }));
    }
    Ok(to_try)
}

fn replay_row(
    device: DeviceStudy<'_, '_>,
    (option, overrides): &(String, Overrides),
    forecast: Option<&Forecast<'_>>,
) -> WhatIfRow {
    let run = OverriddenRun::new(device, overrides, None);
    let (then, continued_peak_bytes) = run.fate(device, forecast);
    let OverriddenRun { hypothesis, simulation } = run;
    let figures = simulation.figures();
    let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
    // A process limit that the recording shows applies to this row, but not to a device of another size.
    let is_limited = hypothesis.limit != hypothesis_on(device, capacity, overrides).limit;
    let peak_if_served = simulation.ooms.is_empty().then_some(figures.peak_reserved_bytes);
    let known = if is_limited { (0, None) } else { (capacity, peak_if_served) };
    let row = WhatIfRow {
        settings: option.clone(),
        device: device.id(),
        ooms: simulation.ooms.len(),
        first_oom_event: simulation.ooms.first().map(|(event, _)| *event),
        then,
        figures,
        continued_peak_bytes,
        smallest_capacity_bytes: smallest_capacity(device, overrides, known),
    };
    if !overrides.is_none() {
        return row;
    }
    // The model may not reproduce the recorded run.
    let figures = recorded_figures(device);
    let mut failed = device.device().failed_requests();
    WhatIfRow {
        first_oom_event: failed.next(),
        ooms: device.device().failed_requests().count(),
        figures,
        continued_peak_bytes: figures.peak_reserved_bytes,
        then: JobOutcome::recorded(device, free_of(&hypothesis, figures.peak_reserved_bytes)),
        ..row
    }
}

/// The settings of `rows`, of which the first has the recorded ones, and the changes to the `program`; the best first.
fn tried_rows(device: DeviceStudy<'_, '_>, rows: &[WhatIfRow], program: Option<&ProgramDevice>) -> Vec<TriedRow> {
    let Some((recorded, others)) = rows.split_first() else { return Vec::new() };
    let on = TriedOn::from_device(device);
    let unchanged = Some(recorded.continued_peak_bytes).filter(|_| recorded.then.goes_on());
    let settings =
        others.iter().map(|row| on.settings(row.settings.clone(), (&row.then, row.continued_peak_bytes), unchanged));
    let changes = program.into_iter().flat_map(|program| program.tried(on));
    sort_tried(settings.chain(changes).collect())
}

/// The requirement of `rows` on a device of `capacity` bytes, of which the process may have `limit` and `live` are live at the peak and `reserved` were
/// before the recording.
fn requirement(
    rows: &[WhatIfRow],
    capacity: Option<u64>,
    limit: Option<u64>,
    [live, reserved]: [u64; 2],
) -> Requirement {
    let capacity = capacity.unwrap_or(u64::MAX);
    let smallest = rows.iter().filter_map(|row| row.smallest_capacity_bytes).min();
    match smallest {
        _ if live > capacity => Requirement::LessMemory,
        _ if reserved > capacity => Requirement::EarlierRecording,
        Some(smallest) if smallest <= capacity && limit.is_some() => Requirement::HigherLimit(smallest),
        Some(smallest) => Requirement::Capacity(smallest),
        None => Requirement::OtherSettings,
    }
}

/// The JSON of `oomscope whatif`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct WhatIfReport {
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// The recorded settings string; `None` if the release does not record it.
    #[serde(skip)]
    pub recorded_settings: Option<String>,
    /// Device memory of the replays, the largest of all devices: `--capacity`, else what a failed request shows to be
    /// within reach; null if none failed.
    pub capacity_bytes: Option<u64>,
    /// The PyTorch releases whose rules the replay followed.
    pub torch_version: String,
    /// Problems of the snapshot, and limits of the replays.
    pub warnings: Vec<Warning>,
    /// One row for each device and setting: for each device the recorded settings first, which without `--capacity`
    /// have the figures of the recording. The others are sorted by `ooms`, `peak_reserved_bytes` and `device_allocs`.
    pub rows: Vec<WhatIfRow>,
    /// Peak of the live bytes, each request rounded, the largest of all devices: no setting needs less.
    pub lower_bound_bytes: u64,
    /// Bounds of the rows of each device.
    pub devices: Vec<WhatIfDevice>,
    /// The changes to the program of each device; absent if only settings were tried, and without devices whose trace is too
    /// long to try them by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Vec<ProgramDevice>>,
}

/// Bounds of the rows of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfDevice {
    /// Device index.
    pub device: u64,
    /// Device memory of the replays, in bytes; null if unbounded.
    pub capacity_bytes: Option<u64>,
    /// Bytes that the process may reserve of it; absent if nothing shows a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Peak of the live bytes, each request rounded: no setting needs less. Up to the end of one more iteration if a failure
    /// ended the recording and the job goes on.
    pub lower_bound_bytes: u64,
    /// Bytes reserved before the first trace entry: no smaller device is claimed to be enough.
    pub reserved_before_bytes: u64,
    /// Whether the model reproduces the recording; if not, every row is an estimate.
    pub exact: bool,
    /// Bytes by which memory grows in each step up to the end of the recording; absent if it does not, and after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_step: Option<u64>,
    /// Whether at least one setting, possibly the recorded ones, serves every request.
    pub some_row_serves: bool,
    /// Settings and changes to the program in one list, the best first.
    pub tried: Vec<TriedRow>,
    /// Whether changes to the program were not tried, because the trace is long; absent if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skips_program: bool,
    /// The result of all rows, for the summary.
    #[serde(skip)]
    pub verdict: SettingsVerdict,
}

/// The verdict of all rows of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsVerdict {
    /// The best row with which the last failed request is served, other than the recorded settings.
    pub best: Option<WhatIfRow>,
    /// The best of the settings and changes of the program, if anything helps or may help.
    pub best_tried: Option<TriedRow>,
    /// The needs of the program if requests fail in every row.
    pub requirement: Requirement,
    /// Why the start of the recording is missing.
    pub lost: Option<LostHistory>,
    /// Whether a replay under the recorded settings serves the last failed request.
    pub is_unreplayable: bool,
}

/// The needs of a program if requests fail under all settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// A higher limit of the process: on the device, this many bytes are enough.
    HigherLimit(u64),
    /// Less live memory, or a larger device: live memory alone exceeds the device.
    LessMemory,
    /// A recording that starts earlier: more was reserved before this one than the device has.
    EarlierRecording,
    /// A device with this many bytes available.
    Capacity(u64),
    /// Other settings: under these, no device is large enough.
    OtherSettings,
}

/// The replay of one device under one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfRow {
    /// The options tried, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; empty for the recorded settings.
    pub settings: String,
    /// Device index.
    pub device: u64,
    /// Number of requests that fail.
    pub ooms: usize,
    /// Entry index of the first failed request in the device's trace; null if none fails.
    pub first_oom_event: Option<usize>,
    /// The outcome of the job under these settings.
    pub then: JobOutcome,
    /// Peaks and numbers of device calls.
    #[serde(flatten)]
    pub figures: RunFigures,
    /// The peak of reserved bytes up to the end of one more iteration, if a failure ended the recording and the job goes on: what changes of
    /// the program are compared with.
    #[serde(skip)]
    pub continued_peak_bytes: u64,
    /// Smallest device memory with which no request fails, to within 2 MiB or 1/256; null if no device is large enough.
    pub smallest_capacity_bytes: Option<u64>,
}
