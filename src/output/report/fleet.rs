//! The pages about all snapshots of a job: a table with a row for each setting or rank, the worst first.

use super::ranks::Names;
use super::summary::add_action;
use super::timeline::add_devices;
use crate::analysis::Unreadable;
use crate::base::units::{count, counted, duration, size};
use crate::base::warning::Code;
use crate::compare::fleet::{
    FleetReplayReport, FleetReplayRow, FleetTimelineReport, FleetTimelineRow, FleetWhatIfReport, FleetWhatIfRow,
};
use crate::output::document::{Cell, Document, Judgement, Table, Text, alarm, code, faint, strong};
use crate::output::wording::describe_outcome;

/// Rows of a table, at most.
const MAX_ROWS: usize = 10;

/// Appends the files that could not be read: their number, and below the first screen each with the reason.
fn add_unreadable(document: &mut Document, unreadable: &[Unreadable]) {
    if !unreadable.is_empty() {
        document.field("missing", format!("{} could not be used", counted(unreadable.len() as u64, "file")));
    }
    let mut sections = Document::default();
    sections.list_under("Not used", unreadable.iter().map(|file| code(&*file.path).and(format!(": {}", file.message))));
    document.add_sections(sections);
}

/// The table of the first of `all` rows, and the number of the others.
fn shorten(table: Table, all: usize) -> Table {
    let others = all.saturating_sub(MAX_ROWS) as u64;
    table.wide().note((others > 0).then(|| faint(format!("and {}", counted(others, "other")))))
}

/// Lays out the settings for all snapshots.
pub fn fleet_whatif(report: &FleetWhatIfReport) -> Document {
    let mut document = Document::default();
    let summary = report.summary();
    document.headline(strong(&*summary.answer), "");
    if report.inexact_devices > 0 {
        let recordings = counted(report.inexact_devices, "recording");
        document.warning(Code::ModelParted.word(), format!("estimates for {recordings}: the model diverges"));
    }
    let header = ["tried in a replay", "the jobs then", "peak reserved", "fits from", "device allocs"];
    let rows = report.rows.iter().take(MAX_ROWS).map(|row| setting_cells(row, report.devices));
    let table = Table::new(&header, &[0, 1], rows).optional_columns(&[4]);
    document.table(shorten(table, report.rows_tried));
    add_unreadable(&mut document, &report.unreadable);
    add_action(&mut document, &summary);
    document
}

fn setting_cells(row: &FleetWhatIfRow, devices: u64) -> Vec<Cell> {
    let kinds = [
        (row.failing_devices, "fail"),
        (row.failing_later_devices, "fail later"),
        (row.unknown_later_devices, "not known"),
        (row.untried_devices, "not tried"),
    ];
    let mark = match kinds.map(|(devices, _)| devices) {
        [0, 0, 0, 0] => Judgement::Good,
        [0, 0, _, 0] => Judgement::Perhaps,
        _ => Judgement::Bad,
    };
    let kinds = kinds.into_iter().filter(|(devices, _)| *devices > 0);
    let kinds: Vec<String> = kinds.map(|(of, word)| format!("{} of {} {word}", count(of), count(devices))).collect();
    let settings = match row.settings.as_str() {
        "" => "as recorded".into(),
        settings => code(settings.replace(',', ", ")),
    };
    vec![
        Cell::Marked(mark, settings),
        if kinds.is_empty() { "all go on".to_owned() } else { kinds.join(", ") }.into(),
        size(row.peak_reserved_bytes).into(),
        row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size).into(),
        count(row.device_allocs).into(),
    ]
}

/// The snapshot and the GPU of a row.
fn rank_label(names: &Names, path: &str, device: u64, are_several: bool) -> Text {
    let name = names.shorten(path);
    code(if are_several { format!("{name} GPU {device}") } else { name.to_owned() })
}

/// Lays out the replays of all snapshots.
pub fn fleet_replay(report: &FleetReplayReport) -> Document {
    let mut document = Document::default();
    let rows = &report.rows;
    let names = Names::from_paths(rows.iter().map(|row| &*row.path));
    let are_several = rows.len() as u64 > report.snapshots;
    let is_what_if = report.mode == "what-if";
    let summary = report.summary();
    let diverges = !is_what_if && rows.iter().any(|row| row.exact == Some(false));
    let answer = if diverges { alarm(&*summary.answer) } else { strong(&*summary.answer) };
    document.headline(answer, faint(names.directory()));
    let header: &[&str] = if is_what_if {
        &["rank", "the job then", "reserved as recorded", "what-if"]
    } else {
        &["rank", "entries reproduced", "failed requests", "peak reserved"]
    };
    let cells = |row| replay_cells(row, rank_label(&names, &row.path, row.device, are_several), is_what_if);
    let text_columns: &[usize] = if is_what_if { &[0, 1] } else { &[0] };
    document.table(shorten(Table::new(header, text_columns, rows.iter().take(MAX_ROWS).map(cells)), rows.len()));
    document.fields("why", rows.first().and_then(|worst| worst.why.as_deref()));
    add_unreadable(&mut document, &report.unreadable);
    add_action(&mut document, &summary);
    document
}

fn replay_cells(row: &FleetReplayRow, rank: Text, is_what_if: bool) -> Vec<Cell> {
    if let Some(then) = row.then.as_ref().filter(|_| is_what_if) {
        let mark = if then.goes_on() { Judgement::Good } else { Judgement::Bad };
        let peaks = [row.recorded_peak_reserved_bytes, row.peak_reserved_bytes].map(|bytes| Cell::from(size(bytes)));
        return [Cell::Marked(mark, rank), describe_outcome(then).into()].into_iter().chain(peaks).collect();
    }
    let (mark, reproduced) = match row.matched_events {
        Some(matched) if matched < row.recorded_events => {
            (Judgement::Bad, format!("{} of {}", count(matched), count(row.recorded_events)))
        }
        _ => (Judgement::Good, format!("all {}", count(row.recorded_events))),
    };
    vec![Cell::Marked(mark, rank), reproduced.into(), count(row.ooms).into(), size(row.peak_reserved_bytes).into()]
}

/// Lays out the timelines of all snapshots: their peaks, and below the charts of the worst.
pub fn fleet_timeline(report: &FleetTimelineReport) -> Document {
    let mut document = Document::default();
    let rows = &report.rows;
    let names = Names::from_paths(rows.iter().map(|row| &*row.path));
    let are_several = rows.len() as u64 > report.snapshots;
    let summary = report.summary();
    let failed = rows.iter().any(|row| row.oom_count > 0);
    let answer = if failed { alarm(&*summary.answer) } else { strong(&*summary.answer) };
    document.headline(answer, faint(names.directory()));
    let header = ["rank", "failed", "peak allocated", "peak reserved", "at entry", "after"];
    let cells = |row| timeline_cells(row, rank_label(&names, &row.path, row.device, are_several));
    let table = Table::new(&header, &[0], rows.iter().take(MAX_ROWS).map(cells)).optional_columns(&[4, 5]);
    document.table(shorten(table, rows.len()));
    add_unreadable(&mut document, &report.unreadable);
    add_action(&mut document, &summary);
    if let Some(worst) = &report.worst {
        let mut sections = Document::default();
        sections.paragraph(Text::from("The worst: ").and(code(&*worst.path)));
        add_devices(&mut sections, worst, None);
        document.add_sections(sections);
    }
    document
}

fn timeline_cells(row: &FleetTimelineRow, rank: Text) -> Vec<Cell> {
    let mark = if row.oom_count > 0 { Judgement::Bad } else { Judgement::Good };
    vec![
        Cell::Marked(mark, rank),
        count(row.oom_count).into(),
        size(row.allocated.bytes).into(),
        size(row.reserved.bytes).into(),
        row.reserved.event.map_or_else(|| "before".to_owned(), count).into(),
        row.reserved.after_us.map_or_else(String::new, duration).into(),
    ]
}
