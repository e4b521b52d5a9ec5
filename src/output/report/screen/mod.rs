//! The first screen of a snapshot: what happened, where the memory is, who holds it, what was tried, what to do.
//!
//! In: the report of one snapshot. Out: blocks that fit on a screen of 100 columns and 40 lines. Each fact has one place:
//! a location is complete only in the headline, figures of the device are in the bar.

mod failure;
mod holders;
mod ranks;
mod serving;
mod usage;

pub(super) use self::failure::callers;
use self::failure::show_failure;
pub(super) use self::holders::add_blockers;
pub(super) use self::ranks::{rank_table, screen_of_ranks};
use self::serving::show_engine;
use self::usage::{requested, usage};
use crate::analysis::{DeviceReport, DryRunReport, SnapshotReport};
use crate::output::document::Document;

/// Appends the screen of `device`, the one of `snapshot` to look at first; `rows` limits the rows of each table.
pub(super) fn screen(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, rows: usize) {
    let rows = rows.min(MAX_ROWS);
    let serving = snapshot.dry_run.as_ref().and_then(DryRunReport::server);
    match device.ooms.last() {
        _ if device.request.is_some() => requested(document, snapshot, device, rows),
        Some(oom) if device.moment.is_none() => show_failure(document, snapshot, device, oom, rows),
        _ => match serving.filter(|serving| device.moment.is_none() && serving.budget_bytes.is_some()) {
            Some(serving) => show_engine(document, snapshot, serving),
            None => usage(document, snapshot, device, rows),
        },
    }
}

/// Rows of a table on the first screen.
const MAX_ROWS: usize = 5;
