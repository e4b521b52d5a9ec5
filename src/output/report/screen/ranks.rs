//! The ranks of a job, the worst first, and what the worst one says.

use super::{add_next, failure};
use crate::analysis::{AnalyzeReport, DeviceReport, RankRow, Ranks, SnapshotReport};
use crate::base::units::{counted, percent, ratio, size};
use crate::output::document::{Cell, Document, Mark, Table, alarm, code, faint, strong};
use crate::output::report::ranks::Names;
use crate::output::wording::{command_line, describe_cause};

/// Rows of the table, at most.
const MAX_ROWS: usize = 10;

/// Appends the table of all ranks, why the `worst` failed, and what to do.
pub(crate) fn screen_of_ranks(
    document: &mut Document,
    report: &AnalyzeReport,
    ranks: &Ranks,
    (snapshot, device): (&SnapshotReport, &DeviceReport),
) {
    let rows = &ranks.rows;
    let failed = rows.iter().filter(|row| row.oom_count > 0 || row.has_recorded_failure).count() as u64;
    let all = rows.len() as u64;
    let total = strong(counted(all, "rank"));
    let answer = match failed {
        0 => total.and(": no request failed"),
        _ if failed == all => total.and(": ").and(alarm("all ran out of memory")),
        _ => {
            total.and(": ").and(alarm(format!("{failed} ran out of memory"))).and(format!(", {} did not", all - failed))
        }
    };
    document.headline(answer, faint("worst first"));
    document.table(table(ranks, report));
    document.field("peaks", &*ranks.peaks);
    match device.ooms.last() {
        Some(oom) => {
            document.field("worst", failure::headline(device, oom));
            document.field("", describe_cause(oom, device));
            failure::add_action(document, snapshot, device, oom);
        }
        None => add_next(document, command_line("analyze", &snapshot.path)),
    }
}

fn table(ranks: &Ranks, report: &AnalyzeReport) -> Table {
    let names = Names::from_paths(ranks.rows.iter().map(|row| &*row.path));
    let are_several = report.snapshots.iter().any(|snapshot| snapshot.devices.len() > 1);
    let name = |row: &RankRow| {
        let name = names.shorten(&row.path);
        if are_several { format!("{name} GPU {}", row.device) } else { name.to_owned() }
    };
    let row = |(index, row): (usize, &RankRow)| -> Vec<Cell> {
        let line = ranks.failures.iter().find(|group| group.rows.contains(&index));
        let line = line.map_or("", |group| &*group.line);
        let mark = if row.oom_count > 0 { Mark::Bad } else { Mark::Good };
        let result = row.verdict.map_or("no failure", |verdict| verdict.word());
        let capacity = row.capacity_bytes.or(row.reach_bytes);
        vec![
            Cell::Marked(mark, code(name(row))),
            result.into(),
            line.into(),
            size(row.peak_reserved_bytes).into(),
            capacity.map_or_else(String::new, |bytes| percent(ratio(row.peak_reserved_bytes, bytes))).into(),
        ]
    };
    let shown = ranks.rows.iter().enumerate().take(report.top.min(MAX_ROWS));
    let others = ranks.rows.len().saturating_sub(report.top.min(MAX_ROWS)) as u64;
    let note = (others > 0).then(|| faint(format!("and {}", counted(others, "other"))));
    let header = ["rank", "result", "at", "peak reserved", "of device"];
    Table::new(&header, &[0, 1, 2], shown.map(row)).wide().note(note)
}
