//! The table of what was tried in replays: settings and changes to the program, the best first.

use crate::base::units::{counted, size};
use crate::output::document::{Cell, Mark, Table, code, faint, source_location};
use crate::output::wording::describe_outcome;
use crate::whatif::{TriedCertainty, TriedMark, TriedRow};

/// The first `shown` of `tried`, and what the others come to; `None` if nothing was tried.
pub(super) fn tried_table(tried: &[TriedRow], shown: usize) -> Option<Table> {
    let helpful = tried.iter().filter(|row| row.mark != TriedMark::NoHelp).count();
    // Rows that do not help are worth a line if they get further than others, or if nothing helps.
    let shown = tried.len().min(shown);
    let rows: Vec<Vec<Cell>> = tried.iter().take(shown).map(cells).collect();
    let others = (tried.len() - shown) as u64;
    let note = (others > 0).then(|| {
        let better = if helpful > shown { "" } else { ": none helps" };
        faint(format!("{}{better}", counted(others, "other")))
    });
    let header = ["tried in a replay", "the job then", "peak reserved", "sure"];
    let table = Table::new(&header, &[0, 1, 3], rows).optional_columns(&[3]).wide().note(note);
    (!tried.is_empty()).then_some(table)
}

fn cells(row: &TriedRow) -> Vec<Cell> {
    let mark = match row.mark {
        TriedMark::Helps => Mark::Good,
        TriedMark::MayHelp => Mark::Perhaps,
        TriedMark::NoHelp => Mark::Bad,
    };
    let frame = row.location.as_ref().and_then(|location| location.frame.as_ref());
    let place = frame.map(|frame| faint("  ").and(source_location(&frame.file, &format!(":{}", frame.line))));
    let what = code(row.what.replace(',', ", "));
    let sure = if row.sure == TriedCertainty::Exact { "" } else { row.sure.word() };
    vec![
        Cell::Marked(mark, place.into_iter().fold(what, crate::output::document::Text::and)),
        describe_outcome(&row.then).into(),
        size(row.peak_reserved_bytes).into(),
        sure.into(),
    ]
}
