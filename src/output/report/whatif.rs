//! The page of `oomscope whatif`, and its summary: what was tried, the best first, as one table for each device.

use super::notes::{add_notes, with_other_notes};
use super::tried::tried_table;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, size};
use crate::output::document::{Document, Table, Text, alarm, amount, code, faint, strong};
use crate::output::wording::{
    ESTIMATE, POSTPONES, STILL_GROWS, Summary, command_line, describe_outcome, growth_clause, outcome_clause,
    settings_action, settings_label,
};
use crate::stacks::frames::FrameReport;
use crate::study::LostHistory;
use crate::whatif::{
    JobOutcome, NOTICEABLE_PARTS, Requirement, TriedKind, TriedMark, TriedRow, WhatIfDevice, WhatIfReport, WhatIfRow,
};

/// Rows of all tables on the first screen.
const MAX_ROWS: usize = 24;
/// Devices on the first screen.
const MAX_DEVICES: usize = 4;

/// Lays out what was tried with settings and with the program.
pub fn whatif(report: &WhatIfReport) -> Document {
    let (mut document, mut sections) = (Document::default(), Document::default());
    let summary = report.summary();
    let shown_rows = MAX_ROWS / report.devices.len().clamp(1, MAX_DEVICES);
    for (index, device) in report.devices.iter().enumerate() {
        let rows: Vec<&WhatIfRow> = report.rows.iter().filter(|row| row.device == device.device).collect();
        let Some(recorded) = rows.first() else { continue }; // a device has the row of the recorded settings
        add_settings(&mut sections, device, &rows);
        if index >= MAX_DEVICES {
            continue;
        }
        let answer = fitting_headline(device, recorded).or_else(|| tried_headline(&device.tried));
        let context = within_reach(device.device, device.capacity_bytes, device.limit_bytes);
        document.headline(answer.unwrap_or_else(|| summary.answer.as_str().into()), faint(context));
        if index == 0 {
            add_notes(&mut document, &report.warnings);
        }
        if !device.tried.is_empty() {
            let recorded = Some((device, *recorded));
            document.table(tried_table(&device.tried, shown_rows, recorded, device.reserved_before_bytes));
        }
    }
    if report.devices.iter().any(|device| device.skips_program) {
        document.paragraph("Changes of the program were not tried, because the trace is long: --program tries them");
    }
    document.fields("do", summary.action);
    let copy = summary.copy.filter(|text| !text.starts_with("oomscope") && !text.contains(".py:"));
    document.fields("copy", copy.map(code));
    document.fields("next", command_line("analyze", &report.path).map(code));
    let mut sections = with_other_notes(sections, &report.warnings);
    sections.paragraph(format!("Replayed by the rules of PyTorch {}", report.torch_version));
    document.with_sections(sections)
}

/// `GPU 0, 5.86 GiB within reach`
fn within_reach(device: u64, capacity: Option<u64>, limit: Option<u64>) -> String {
    match [capacity, limit].into_iter().flatten().min() {
        Some(capacity) => format!("GPU {device}, {} within reach", size(capacity)),
        None => format!("GPU {device}, of unknown size"),
    }
}

/// Appends the figures of every setting.
fn add_settings(document: &mut Document, device: &WhatIfDevice, rows: &[&WhatIfRow]) {
    document.heading(format!("Settings on GPU {}", device.device));
    if device.reserved_before_bytes > 0 {
        document.paragraph(format!(
            "The recording started with {} reserved, which every replay keeps: a smaller device is never reported as \
             sufficient",
            size(device.reserved_before_bytes)
        ));
    }
    let table = Table::from_rows(rows)
        .text("settings", |row| match row.settings.as_str() {
            "" => "as recorded".into(),
            settings => code(settings.replace(',', ", ")),
        })
        .text("the job then", |row| describe_outcome(&row.then))
        .number("reserved", |row| amount(row.figures.peak_reserved_bytes))
        .number("fits from", |row| row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size))
        .number("allocs", |row| count(row.figures.device_allocs));
    document.table(table);
}

impl WhatIfReport {
    /// Summarizes the worst device: where nothing helps, or a request fails.
    pub fn summary(&self) -> Summary {
        // `max_by_key` takes the last of equals; the first one is wanted.
        let worst = self.devices.iter().rev().max_by_key(|device| {
            let fails = self.recorded_on(device).is_some_and(|recorded| !recorded.then.goes_on());
            (fails, fails && device.verdict.best_tried.is_none())
        });
        worst.map(|device| self.summarize_device(device)).unwrap_or_default() // a report has a device
    }

    fn recorded_on(&self, device: &WhatIfDevice) -> Option<&WhatIfRow> {
        self.rows.iter().find(|row| row.device == device.device)
    }

    fn summarize_device(&self, device: &WhatIfDevice) -> Summary {
        let (id, verdict) = (device.device, &device.verdict);
        let Some(recorded) = self.recorded_on(device) else {
            return Summary::from_answer(format!("nothing to replay on GPU {id}"));
        };
        if verdict.lost == Some(LostHistory::RingOfOne) {
            return Summary::from_ring_of_one(id);
        }
        if verdict.is_unreplayable {
            let answer = format!("no replay shows what helps on GPU {id}");
            return Summary::from_answer(format!("{answer}: one under the recorded settings serves the request too"));
        }
        let fits = fitting_headline(device, recorded).map(|fits| fits.raw());
        let answer = fits
            .or_else(|| describe_tried(&device.tried, device.exact))
            .unwrap_or_else(|| format!("nothing to try on GPU {id}; as recorded {}", outcome_clause(&recorded.then)));
        let change = verdict.best_tried.as_ref().filter(|row| row.kind == TriedKind::Program);
        // No setting frees what grows.
        let best = verdict.best.as_ref().filter(|_| device.growth_bytes_per_step.is_none());
        let assignment = best.map(|best| shell_assignment(&best.settings, self.recorded_settings.as_deref()));
        let (action, copy) = match (recorded.then.goes_on(), change, best) {
            (true, change, best) => match (best.and_then(|best| saving(best, recorded)), best, change) {
                (Some(bytes), Some(best), _) => {
                    (format!("{}, to reserve {} less", settings_action(&best.settings), size(bytes)), assignment)
                }
                (_, _, Some(change)) if change.mark == TriedMark::Helps => (change.label(), change.file_line()),
                _ => return Summary::from_answer(answer),
            },
            (false, Some(change), _) if change.mark == TriedMark::Helps => (change.label(), change.file_line()),
            (false, Some(change), _) => (format!("try it, and record again: {}", change.label()), change.file_line()),
            (false, None, Some(best)) => match best.then {
                JobOutcome::GoesOn { .. } => (settings_action(&best.settings), assignment),
                JobOutcome::NotKnown { .. } => (format!("try {}", settings_label(&best.settings)), assignment),
                JobOutcome::FailsAgain { .. } | JobOutcome::RequestFails { .. } => {
                    (POSTPONES.to_owned(), command_line("analyze", &self.path))
                }
            },
            (false, None, None) => (format!("it takes {}", describe_requirement(verdict.requirement)), None),
        };
        Summary { action: Some(action), copy, ..Summary::from_answer(answer) }
    }
}

/// The bytes that `best` reserves less than `recorded`, if that is noticeable and takes no larger device.
fn saving(best: &WhatIfRow, recorded: &WhatIfRow) -> Option<u64> {
    let peak = recorded.continued_peak_bytes;
    let needs_no_larger_device = match (best.smallest_capacity_bytes, recorded.smallest_capacity_bytes) {
        (Some(best), Some(recorded)) => best <= recorded,
        (best, _) => best.is_some(),
    };
    let is_noticeable = best.continued_peak_bytes.saturating_add(peak / NOTICEABLE_PARTS) < peak;
    (is_noticeable && needs_no_larger_device).then(|| peak - best.continued_peak_bytes)
}

/// `3 of 17 tried help: expandable_segments:True`; `None` if nothing was tried.
fn tried_headline(tried: &[TriedRow]) -> Option<Text> {
    let best = tried.first()?;
    let all = count(tried.len() as u64);
    let marked = [TriedMark::Helps, TriedMark::MayHelp].map(|mark| tried.iter().filter(|row| row.mark == mark).count());
    Some(match marked {
        [0, 0] if best.then.goes_on() => strong("nothing needs noticeably less").and(format!(" of {all} tried")),
        [0, 0] => alarm("nothing helps").and(format!(" of {all} tried")),
        [0, perhaps] => strong(format!("{perhaps} of {all} tried may help")).and(": ").and(code(best.label())),
        [1, _] => strong(format!("1 of {all} tried helps")).and(": ").and(code(best.label())),
        [helps, _] => strong(format!("{helps} of {all} tried help")).and(": ").and(code(best.label())),
    })
}

/// `fits as it is: 11.9 GiB of 14.5 GiB reserved; 5 of 25 tried need less`, or so far, if memory grows; `None` if the job does not go on as it is, or
/// the size of the device is unknown.
fn fitting_headline(device: &WhatIfDevice, recorded: &WhatIfRow) -> Option<Text> {
    let capacity = [device.capacity_bytes, device.limit_bytes].into_iter().flatten().min()?;
    let JobOutcome::GoesOn { headroom_bytes: Some(headroom), .. } = recorded.then else { return None };
    let helps = device.tried.iter().filter(|row| row.mark == TriedMark::Helps).count() as u64;
    let [peak, capacity] = [recorded.continued_peak_bytes, capacity].map(size);
    let less = format!("{} of {} tried need less", count(helps), count(device.tried.len() as u64));
    let (so_far, room) = match device.growth_bytes_per_step {
        Some(bytes) => ("fits so far", growth_clause(bytes)),
        None => ("fits as it is", format!("{} headroom", size(headroom))),
    };
    Some(strong(so_far).and(format!(": {peak} of {capacity} reserved, {room}; {less}")))
}

/// The headline, with the outcome of the job with the best that was tried.
fn describe_tried(tried: &[TriedRow], is_exact: bool) -> Option<String> {
    let estimate = if is_exact { "" } else { ESTIMATE };
    let then = outcome_clause(&tried.first()?.then);
    tried_headline(tried).map(|headline| format!("{}; {then}{estimate}", headline.raw()))
}

impl TriedRow {
    /// The settings, or the change and its place: `checkpoint each of 8 calls (model.py:44)`.
    pub fn label(&self) -> String {
        let frame = self.location.as_ref().and_then(|location| location.frame.as_ref());
        frame.map_or_else(|| self.what.clone(), |frame| format!("{} ({})", self.what, frame.brief_label()))
    }

    /// The outcome of the job; what it gains where it goes on as it is.
    pub(crate) fn describe_then(&self) -> String {
        let unchanged = self.unchanged_peak_reserved_bytes.filter(|_| self.then.goes_on());
        let Some(unchanged) = unchanged else { return describe_outcome(&self.then) };
        let bytes = self.peak_reserved_bytes.abs_diff(unchanged);
        match () {
            () if bytes < unchanged / NOTICEABLE_PARTS => "reserves about as much".to_owned(),
            () if self.peak_reserved_bytes > unchanged => format!("reserves {} more", size(bytes)),
            () if self.mark == TriedMark::NoHelp => STILL_GROWS.to_owned(),
            () => format!("reserves {} less", size(bytes)),
        }
    }

    /// The line to change, to copy.
    fn file_line(&self) -> Option<String> {
        self.location.as_ref()?.frame.as_ref().map(FrameReport::file_line)
    }
}

/// Describes what the program would need, if a request fails under every setting.
fn describe_requirement(requirement: Requirement) -> String {
    match requirement {
        Requirement::LessMemory => {
            "a smaller program or a larger device; no setting helps, because live memory alone exceeds the device"
                .to_owned()
        }
        Requirement::EarlierRecording => {
            "a recording from the program's start: more was reserved before this recording began than the device has"
                .to_owned()
        }
        Requirement::HigherLimit(bytes) => {
            format!("a higher limit of this process, set_per_process_memory_fraction(): {} is enough", size(bytes))
        }
        Requirement::Capacity(smallest) => format!("a device with {} available", size(smallest)),
        Requirement::OtherSettings => "other settings: under these, no device is large enough".to_owned(),
    }
}
