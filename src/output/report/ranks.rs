//! The table of ranks: devices of one or several snapshots, one row each.

use crate::allocator::verdict::Verdict;
use crate::analysis::{RankRow, Ranks};
use crate::base::units::{counted, percent, size};
use crate::output::document::{Cell, Document, Table, code};

/// The paths of rows without their common directory and ending.
pub(super) struct Names {
    directory: String,
    ending: String,
}

impl Names {
    pub(super) fn from_paths<'p>(paths: impl Iterator<Item = &'p str> + Clone) -> Self {
        let common = paths.clone().reduce(common_prefix);
        let directory = common.and_then(|common| Some(&common[..=common.rfind('/')?]));
        Self { directory: directory.unwrap_or_default().to_owned(), ending: common_ending(paths) }
    }

    /// The common directory of all paths, including its slash.
    pub(super) fn directory(&self) -> &str {
        &self.directory
    }

    pub(super) fn shorten<'p>(&self, path: &'p str) -> &'p str {
        let name = path.strip_prefix(&self.directory).unwrap_or(path);
        name.strip_suffix(&self.ending).unwrap_or(name)
    }
}

fn common_prefix<'p>(a: &'p str, b: &'p str) -> &'p str {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    &a[..same.map(|(c, _)| c.len_utf8()).sum()]
}

/// The common ending of all paths, such as `.pickle.gz`; empty if they have different ones, or none of these.
fn common_ending<'p>(mut paths: impl Iterator<Item = &'p str> + Clone) -> String {
    let ending = |path: &'p str| {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let start = [".pickle", ".pkl", ".json"].iter().find_map(|ending| name.rfind(ending))?;
        Some(&name[start..])
    };
    let first = paths.clone().next().and_then(ending);
    first.filter(|ending| paths.all(|path| path.ends_with(ending))).unwrap_or_default().to_owned()
}

/// One row; the path as short as `names` allow.
fn cells(rank: &RankRow, names: &Names) -> Vec<Cell> {
    vec![
        code(names.shorten(&rank.path)).into(),
        rank.device.to_string().into(),
        rank.verdict.map_or("no failure", Verdict::word).into(),
        size(rank.peak_allocated_bytes).into(),
        size(rank.peak_reserved_bytes).into(),
        size(rank.allocated_bytes).into(),
        size(rank.reserved_bytes).into(),
        percent(rank.gap_ratio).into(),
        capacity(rank).into(),
    ]
}

/// The capacity of the device, or a lower bound.
fn capacity(rank: &RankRow) -> String {
    match (rank.capacity_bytes, rank.reach_bytes) {
        (Some(bytes), _) => size(bytes),
        (None, Some(bytes)) => format!(">= {}", size(bytes)),
        (None, None) => String::new(),
    }
}

/// The first `top` rows of the table, worst first.
pub(super) fn table(document: &mut Document, ranks: &Ranks, top: usize) {
    let rows = &ranks.rows;
    let names = Names::from_paths(rows.iter().map(|row| &*row.path));
    let is_one = rows.iter().all(|row| Some(&row.path) == rows.first().map(|first| &first.path));
    let header = [
        "snapshot",
        "device",
        "verdict",
        "peak allocated",
        "peak reserved",
        "allocated",
        "reserved",
        "gap",
        "capacity",
    ];
    let is_known = rows.iter().any(|row| !capacity(row).is_empty());
    let others = rows.len().saturating_sub(top) as u64;
    let note = (others > 0).then(|| format!("and {}; --top shows more", counted(others, "other")));
    let cells = rows.iter().take(top).map(|rank| cells(rank, &names));
    let table = Table::new(&header, &[0, 2], cells).optional_columns(&[5, 4, 7]).note(note);
    let table = if is_known { table } else { table.without_column(8) };
    document.table(if is_one { table.without_column(0) } else { table });
    if ranks.earlier_dumps > 0 {
        let dumps = counted(ranks.earlier_dumps, "earlier snapshot");
        document.paragraph(format!("{dumps} of the same processes left out"));
    }
}
