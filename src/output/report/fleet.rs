//! The pages about all snapshots of a job: a table with a row for each setting or rank, the worst first.

use super::summary::add_action;
use crate::base::units::{count, counted, size};
use crate::base::warning::Code;
use crate::compare::fleet::{FleetWhatIfReport, FleetWhatIfRow};
use crate::output::document::{Cell, Document, Judgement, Table, amount, code, faint, strong};

/// Rows of a table, at most.
const MAX_ROWS: usize = 10;

/// Lays out the settings for all snapshots.
pub fn fleet_whatif(report: &FleetWhatIfReport) -> Document {
    let mut document = Document::default();
    let summary = report.summary();
    document.headline(strong(&*summary.answer), "");
    if report.inexact_devices > 0 {
        let recordings = counted(report.inexact_devices, "recording");
        document.warning(Code::ModelParted.word(), format!("estimates for {recordings}: the model diverges"));
    }
    let others = report.rows.len().saturating_sub(MAX_ROWS) as u64;
    let note = (others > 0).then(|| faint(format!("and {}", counted(others, "other"))));
    let table = Table::from_rows(report.rows.iter().take(MAX_ROWS))
        .text("tried in a replay", |row| settings(row))
        .text("the jobs then", |row| describe_jobs(row, report.devices))
        .number("peak reserved", |row| amount(row.peak_reserved_bytes))
        .number("fits from", |row| row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size))
        .number("device allocs", |row| count(row.device_allocs))
        .optional();
    document.table(table.wide().note(note));
    if !report.unreadable.is_empty() {
        document.field("missing", format!("{} could not be used", counted(report.unreadable.len() as u64, "file")));
    }
    let mut sections = Document::default();
    let unreadable = report.unreadable.iter().map(|file| code(&*file.path).and(format!(": {}", file.message)));
    sections.list_under("Not used", unreadable);
    document.add_sections(sections);
    add_action(&mut document, &summary);
    document
}

/// The devices whose jobs do not go on, by kind.
fn kinds(row: &FleetWhatIfRow) -> [(u64, &'static str); 4] {
    [
        (row.failing_devices, "fail"),
        (row.failing_later_devices, "fail later"),
        (row.unknown_later_devices, "not known"),
        (row.untried_devices, "not tried"),
    ]
}

fn settings(row: &FleetWhatIfRow) -> Cell {
    let mark = match kinds(row).map(|(devices, _)| devices) {
        [0, 0, 0, 0] => Judgement::Good,
        [0, 0, _, 0] => Judgement::Perhaps,
        _ => Judgement::Bad,
    };
    let settings = match row.settings.as_str() {
        "" => "as recorded".into(),
        settings => code(settings.replace(',', ", ")),
    };
    Cell::Marked(mark, settings)
}

fn describe_jobs(row: &FleetWhatIfRow, devices: u64) -> String {
    let kinds = kinds(row).into_iter().filter(|(devices, _)| *devices > 0);
    let kinds: Vec<String> = kinds.map(|(of, word)| format!("{} of {} {word}", count(of), count(devices))).collect();
    if kinds.is_empty() { "all go on".to_owned() } else { kinds.join(", ") }
}
