//! The pages about all snapshots of a job: a table with a row for each setting or device, the worst named.

use super::ranks::Names;
use super::summary::summary;
use super::timeline::add_devices;
use crate::analysis::Unreadable;
use crate::base::units::{count, counted, duration, size};
use crate::compare::fleet::{
    FleetReplayReport, FleetReplayRow, FleetTimelineReport, FleetTimelineRow, FleetWhatIfReport, FleetWhatIfRow,
    MemoryPeak,
};
use crate::output::document::{Cell, Document, Table, Text, code};
use crate::output::wording::Summary;

/// Maximum number of devices in a table.
const MAX_ROWS: usize = 20;

fn begin(snapshots: u64, directory: &str, answer: &Summary) -> Document {
    let mut document = Document::default();
    let number = counted(snapshots, "snapshot");
    document.title(match directory {
        "" => Text::from(number),
        directory => Text::from(format!("{number} in ")).and(code(directory)),
    });
    summary(&mut document, answer);
    document
}

fn add_unreadable(document: &mut Document, unreadable: &[Unreadable]) {
    if !unreadable.is_empty() {
        document.paragraph(format!("{} could not be used", counted(unreadable.len() as u64, "file")));
    }
}

/// `and 44 others; --format json has all`, if a table leaves rows out.
fn note(rows: usize) -> Option<String> {
    let others = rows.saturating_sub(MAX_ROWS) as u64;
    (others > 0).then(|| format!("and {}; --format json has all", counted(others, "other")))
}

/// Lays out the settings for all snapshots.
pub fn fleet_whatif(report: &FleetWhatIfReport) -> Document {
    let mut document = begin(report.snapshots, "", &report.summary());
    document.paragraph("A setting counts only if it serves every device. Figures are those of the worst device.");
    let header = ["serves", "fails", "peak reserved", "fits from", "allocs", "settings"];
    let rows = report.rows.iter().map(|row| setting_cells(row, report.devices));
    document.table(Table::new(&header, &[5], rows));
    if let Some(out @ 1..) = report.rows_tried.checked_sub(report.rows.len()) {
        document.paragraph(format!("{} left out by --top", counted(out as u64, "more row")));
    }
    let shown = |count: fn(&FleetWhatIfRow) -> u64| report.rows.iter().any(|row| count(row) > 0);
    if shown(|row| row.failing_later_devices) {
        document.paragraph("later: every recorded request is served, but the job fails again on so many devices");
    }
    if shown(|row| row.unknown_later_devices) {
        document
            .paragraph("unknown: on so many devices every recorded request is served, but what follows is not known");
    }
    if shown(|row| row.untried_devices) {
        document.paragraph("not tried: on so many devices the release lacks the setting, or it makes no difference");
    }
    add_unreadable(&mut document, &report.unreadable);
    document
}

fn setting_cells(row: &FleetWhatIfRow, devices: u64) -> Vec<Cell> {
    let fails = match row.failing_devices {
        0 => "no".to_owned(),
        failing => counted(failing, "device"),
    };
    let later = [
        (row.failing_later_devices, "later"),
        (row.unknown_later_devices, "unknown"),
        (row.untried_devices, "not tried"),
    ];
    let later = later.into_iter().filter(|(devices, _)| *devices > 0);
    let later = later.fold(String::new(), |text, (devices, word)| text + ", " + &count(devices) + " " + word);
    vec![
        format!("{} of {}", count(row.served_devices), count(devices)).into(),
        format!("{fails}{later}").into(),
        size(row.peak_reserved_bytes).into(),
        row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size).into(),
        count(row.device_allocs).into(),
        match row.settings.as_str() {
            "" => "as recorded".into(),
            settings => code(settings.replace(',', ", ")).into(),
        },
    ]
}

/// Lays out the replays of all snapshots.
pub fn fleet_replay(report: &FleetReplayReport) -> Document {
    let names = Names::from_paths(report.rows.iter().map(|row| &*row.path));
    let mut document = begin(report.snapshots, names.directory(), &report.summary());
    let is_what_if = report.mode == "what-if";
    let header: &[&str] = if is_what_if {
        &["snapshot", "device", "fails", "as recorded", "peak reserved", "as recorded"]
    } else {
        &["snapshot", "device", "reproduced", "failed", "peak reserved"]
    };
    let cells = report.rows.iter().take(MAX_ROWS).map(|row| replay_cells(row, &names, is_what_if));
    document.table(Table::new(header, &[0], cells).note(note(report.rows.len())));
    add_unreadable(&mut document, &report.unreadable);
    document
}

fn replay_cells(row: &FleetReplayRow, names: &Names, is_what_if: bool) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![code(names.shorten(&row.path)).into(), row.device.to_string().into()];
    if is_what_if {
        cells.extend([count(row.ooms), count(row.recorded_ooms)].map(Cell::from));
        cells.extend([size(row.peak_reserved_bytes), size(row.recorded_peak_reserved_bytes)].map(Cell::from));
        return cells;
    }
    let reproduced = match row.matched_events {
        Some(matched) if matched < row.recorded_events => {
            format!("{} of {}", count(matched), count(row.recorded_events))
        }
        _ => format!("all {}", count(row.recorded_events)),
    };
    cells.extend([reproduced, count(row.ooms), size(row.peak_reserved_bytes)].map(Cell::from));
    cells
}

/// Lays out the timelines of all snapshots: their peaks, and the charts of the worst.
pub fn fleet_timeline(report: &FleetTimelineReport) -> Document {
    let names = Names::from_paths(report.rows.iter().map(|row| &*row.path));
    let mut document = begin(report.snapshots, names.directory(), &report.summary());
    let header = [
        "snapshot",
        "device",
        "failed",
        "reclaims",
        "peak reserved",
        "at entry",
        "after",
        "peak allocated",
        "stranded",
    ];
    let cells = report.rows.iter().take(MAX_ROWS).map(|row| timeline_cells(row, &names));
    document.table(Table::new(&header, &[0], cells).optional_columns(&[3, 8, 7]).note(note(report.rows.len())));
    if let Some(worst) = &report.worst {
        document.paragraph(Text::from("The worst: ").and(code(&*worst.path)));
        add_devices(&mut document, worst);
    }
    add_unreadable(&mut document, &report.unreadable);
    document
}

fn timeline_cells(row: &FleetTimelineRow, names: &Names) -> Vec<Cell> {
    let MemoryPeak { bytes, event, after_us } = row.reserved;
    vec![
        code(names.shorten(&row.path)).into(),
        row.device.to_string().into(),
        count(row.oom_count).into(),
        count(row.reclaim_count).into(),
        size(bytes).into(),
        event.map_or_else(|| "before".to_owned(), count).into(),
        after_us.map_or_else(String::new, duration).into(),
        size(row.allocated.bytes).into(),
        size(row.stranded.bytes).into(),
    ]
}
