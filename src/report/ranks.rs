//! Several snapshots, a row each.

use super::style::{Style, tail, wrap};
use super::table::table;
use crate::analysis::{Rank, Ranks};
use crate::units::{count, percent, plain, size};

/// The directory that all paths begin with, its slash included.
pub(super) fn common_directory(rows: &[Rank]) -> String {
    let mut paths = rows.iter().map(|r| r.path.as_str());
    let mut common = paths.next().unwrap_or_default();
    for path in paths {
        let same = common.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
        // A byte that differs may lie inside a character.
        let same = (0..=same).rev().find(|i| common.is_char_boundary(*i)).unwrap_or(0);
        common = common.get(..same).unwrap_or_default();
    }
    common.rfind('/').and_then(|slash| common.get(..=slash)).unwrap_or_default().to_owned()
}

/// The ending that all paths have, such as `.pickle.gz`.
pub(super) fn common_ending(rows: &[Rank]) -> String {
    let ending = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        [".pickle", ".pkl", ".json"]
            .iter()
            .find_map(|e| name.rfind(e).and_then(|at| name.get(at..).map(str::to_owned)))
            .unwrap_or_default()
    };
    let first = rows.first().map(|r| ending(&r.path)).unwrap_or_default();
    if rows.iter().all(|r| r.path.ends_with(&first)) { first } else { String::new() }
}

/// The cells of one row, the path without the directory and the ending that all have.
pub(super) fn cells(rank: &Rank, directory: &str, ending: &str) -> Vec<String> {
    let name = rank.path.strip_prefix(directory).unwrap_or(&rank.path);
    vec![
        plain(name.strip_suffix(ending).unwrap_or(name)),
        rank.device.to_string(),
        if rank.oom_count == 0 { "no".to_owned() } else { count(rank.oom_count) },
        size(rank.peak_allocated_bytes),
        size(rank.peak_reserved_bytes),
        size(rank.reserved_bytes),
        percent(rank.gap_ratio),
    ]
}

/// The heads of [`cells`].
pub(super) const HEADER: [&str; 7] =
    ["snapshot", "device", "oom", "peak allocated", "peak reserved", "reserved", "gap"];

/// The table, the worst first, and the finding.
pub(super) fn ranks(ranks: &Ranks, style: Style) -> String {
    let (directory, ending) = (common_directory(&ranks.rows), common_ending(&ranks.rows));
    let room = style.width.saturating_sub(64).max(14);
    let rows = ranks
        .rows
        .iter()
        .map(|rank| {
            let mut cells = cells(rank, &directory, &ending);
            if let Some(path) = cells.first_mut() {
                *path = tail(path, room, style);
            }
            cells
        })
        .collect();
    let title = match directory.as_str() {
        "" => format!("{} snapshots, the worst first", ranks.rows.len()),
        directory => {
            format!("{} snapshots in {}, the worst first", ranks.rows.len(), plain(directory))
        }
    };
    format!(
        "{}\n{}\n{}\n",
        style.heading(&title),
        table(style, &HEADER, &[0], rows),
        wrap(&plain(&ranks.summary), style.width, "")
    )
}
