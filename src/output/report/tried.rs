//! The table of what was tried in replays: settings and changes to the program, the best first.

use crate::base::units::{counted, size};
use crate::output::document::{Cell, Judgement, Table, Text, code, faint, source_location};
use crate::output::wording::describe_outcome;
use crate::whatif::{JobOutcome, NOTICEABLE_PARTS, TriedCertainty, TriedKind, TriedMark, TriedRow};

/// The program as recorded.
#[derive(Clone, Copy)]
pub(super) struct Baseline<'a> {
    pub(super) outcome: &'a JobOutcome,
    pub(super) reserved_bytes: u64,
    /// Peak of live bytes: no setting needs less.
    pub(super) live_bytes: u64,
    pub(super) reserved_before_bytes: u64,
}

/// The first `shown` of `tried`, and what the others come to; with `baseline` between the bounds of what is possible.
/// `reserved_before` bytes were reserved before the recording.
pub(super) fn tried_table(
    tried: &[TriedRow],
    shown: usize,
    baseline: Option<Baseline<'_>>,
    reserved_before: u64,
) -> Table {
    let helpful = tried.iter().filter(|row| row.mark != TriedMark::NoHelp).count();
    let listed: Vec<&TriedRow> = tried.iter().take(shown).collect();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    if let Some(Baseline { outcome, reserved_bytes, .. }) = baseline {
        rows.push(plain("as recorded", describe_outcome(outcome), reserved_bytes));
    }
    rows.extend(listed.iter().map(|row| cells(row)));
    if let Some(Baseline { live_bytes, .. }) = baseline {
        rows.push(plain("lower bound as recorded, all served", String::new(), live_bytes));
    }
    let others = (tried.len() - listed.len()) as u64;
    let better = if helpful > listed.len() { "" } else { ": none helps" };
    let others = (others > 0).then(|| format!("{}{better}", counted(others, "other")));
    let has_changes = listed.iter().any(|row| row.kind == TriedKind::Program);
    let changed = if has_changes { "; changes of the program start without it" } else { "" };
    let kept = (reserved_before > 0).then(|| {
        let before = size(reserved_before);
        format!("each replay keeps the {before} reserved before the recording as it was{changed}")
    });
    let notes: Vec<String> = others.into_iter().chain(kept).collect();
    let note = (!notes.is_empty()).then(|| faint(notes.join("; ")));
    let header = ["tried in a replay", "the job then", "reserved", "sure"];
    let table = Table::new(&header, &[0, 1, 3], rows).wide().note(note);
    let is_sure = listed.iter().all(|row| row.sure == TriedCertainty::Exact);
    if is_sure { table.without_column(3) } else { table }
}

/// A row without a mark, below those with one.
fn plain(name: &str, outcome: String, bytes: u64) -> Vec<Cell> {
    vec![faint(format!("  {name}")).into(), outcome.into(), size(bytes).into(), "".into()]
}

fn cells(row: &TriedRow) -> Vec<Cell> {
    let mark = match row.mark {
        TriedMark::Helps => Judgement::Good,
        TriedMark::MayHelp => Judgement::Perhaps,
        TriedMark::NoHelp => Judgement::Bad,
    };
    let frame = row.location.as_ref().and_then(|location| location.frame.as_ref());
    let place = frame.map(|frame| faint("  ").and(source_location(&frame.file, &format!(":{}", frame.line))));
    let what = match row.kind {
        TriedKind::Settings => code(row.what.replace(',', ", ")),
        TriedKind::Program => row.what.as_str().into(),
    };
    let sure = if row.sure == TriedCertainty::Exact { "" } else { row.sure.word() };
    // A change is replayed without a limit: if the job fails on the device, it never reserves that much.
    let gain = row.reserved_gain_bytes.filter(|_| row.then.goes_on());
    let is_reached = row.kind == TriedKind::Settings || row.then.goes_on();
    let reserved = if is_reached { size(row.peak_reserved_bytes) } else { String::new() };
    vec![
        Cell::Marked(mark, place.into_iter().fold(what, Text::and)),
        gain.map_or_else(|| describe_outcome(&row.then), |gain| describe_gain(row, gain)).into(),
        reserved.into(),
        sure.into(),
    ]
}

/// The gain of a row where the job goes on as it is.
fn describe_gain(row: &TriedRow, gain: i64) -> String {
    let bytes = gain.unsigned_abs();
    let unchanged = row.peak_reserved_bytes.saturating_add_signed(gain);
    match () {
        () if bytes < unchanged / NOTICEABLE_PARTS => "reserves about as much".to_owned(),
        () if gain < 0 => format!("reserves {} more", size(bytes)),
        () if row.mark == TriedMark::NoHelp => "still grows".to_owned(),
        () => format!("reserves {} less", size(bytes)),
    }
}
