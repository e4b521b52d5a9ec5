//! The table of what was tried in replays: settings and changes to the program, the best first.

use itertools::Itertools as _;

use crate::base::units::{counted, size};
use crate::output::document::{Cell, Judgement, Table, TableOf, Text, amount, code, faint, source_location};
use crate::output::wording::{STILL_GROWS, describe_outcome};
use crate::whatif::{Sureness, TriedKind, TriedMark, TriedRow, WhatIfDevice, WhatIfRow};

/// The first `shown` of `tried`, and what the others come to; with the program as `recorded` on a device between the bounds
/// of what is possible. `reserved_before` bytes were reserved before the recording.
pub(super) fn tried_table(
    tried: &[TriedRow],
    shown: usize,
    recorded: Option<(&WhatIfDevice, &WhatIfRow)>,
    reserved_before: u64,
) -> TableOf<ShownRow> {
    let helpful = tried.iter().filter(|row| row.mark != TriedMark::NoHelp).count();
    let listed: Vec<&TriedRow> = tried.iter().take(shown).collect();
    let as_recorded = recorded.map(|(device, row)| {
        let grows = device.growth_bytes_per_step.filter(|_| row.then.goes_on());
        let then = grows.map_or_else(|| describe_outcome(&row.then), |_| STILL_GROWS.to_owned());
        plain("as recorded", then, row.continued_peak_bytes)
    });
    let mut rows: Vec<ShownRow> = as_recorded.into_iter().collect();
    for group in listed.chunk_by(|a, b| have_equal_outcomes(a, b)) {
        match group {
            [first, others @ ..] if others.len() > 1 => {
                rows.extend([ShownRow::from(*first), others_row(first, others)]);
            }
            few => rows.extend(few.iter().map(|row| ShownRow::from(*row))),
        }
    }
    // Peak of live bytes: no setting needs less.
    rows.extend(
        recorded
            .map(|(device, _)| plain("lower bound as recorded, all served", String::new(), device.lower_bound_bytes)),
    );
    let others = (tried.len() - listed.len()) as u64;
    let better = if helpful > listed.len() { "" } else { ": none helps" };
    let others = (others > 0).then(|| format!("{}{better}", counted(others, "other")));
    let has_changes = listed.iter().any(|row| row.kind == TriedKind::Program);
    let changed = if has_changes { "; changes of the program start without it" } else { "" };
    let kept = (reserved_before > 0).then(|| {
        let before = size(reserved_before);
        format!("each replay keeps the {before} reserved before the recording as it was{changed}")
    });
    let note = Some(others.into_iter().chain(kept).join("; ")).filter(|note| !note.is_empty()).map(faint);
    let is_sure = listed.iter().all(|row| row.sure == Sureness::Checked);
    Table::from_rows(rows)
        .text("tried in a replay", |row| row.name.clone())
        .text("the job then", |row| row.outcome.clone())
        .number("reserved", |row| row.reserved.clone())
        .text("sure", |row| if row.sure == Sureness::Checked { "" } else { row.sure.word() })
        .only_if(!is_sure)
        .wide()
        .note(note)
}

/// The cells of a row.
pub(super) struct ShownRow {
    name: Cell,
    outcome: String,
    reserved: Text,
    sure: Sureness,
}

/// A row without a mark, below those with one.
fn plain(name: &str, outcome: String, bytes: u64) -> ShownRow {
    ShownRow { name: faint(format!("  {name}")).into(), outcome, reserved: amount(bytes), sure: Sureness::Checked }
}

/// Whether both are settings that do not help, with the same outcome.
fn have_equal_outcomes(a: &TriedRow, b: &TriedRow) -> bool {
    [a, b].iter().all(|row| row.kind == TriedKind::Settings && row.mark == TriedMark::NoHelp)
        && a.sure == b.sure
        && a.describe_then() == b.describe_then()
}

/// One row for `others`, settings like `first` above them.
fn others_row(first: &TriedRow, others: &[&TriedRow]) -> ShownRow {
    let reserved = others.iter().map(|row| size(row.peak_reserved_bytes)).all_equal_value().unwrap_or_default();
    let what = faint(counted(others.len() as u64, "other setting"));
    ShownRow { name: Cell::marked(Judgement::Bad, what), reserved: reserved.into(), ..first.into() }
}

impl From<&TriedRow> for ShownRow {
    fn from(row: &TriedRow) -> Self {
        let mark = match row.mark {
            TriedMark::Helps => Judgement::Good,
            TriedMark::MayHelp => Judgement::Perhaps,
            TriedMark::NoHelp => Judgement::Bad,
        };
        let frame = row.location.as_ref().and_then(|location| location.frame.as_ref());
        let place = frame.map(|frame| faint("  ").and(source_location(&frame.file, &format!(":{}", frame.line))));
        let is_code = row.kind == TriedKind::Settings;
        let what = if is_code { code(row.what.replace(',', ", ")) } else { row.what.as_str().into() };
        Self {
            name: Cell::marked(mark, place.into_iter().fold(what, Text::and)),
            outcome: row.describe_then(),
            reserved: row.reached_reserved_bytes().map_or_else(Text::default, |bytes| size(bytes).into()),
            sure: row.sure,
        }
    }
}
