//! The series that grow, and whether one creeps too fast: `oomscope/trend/1`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::history::{History, Observation, PEAK_ALLOCATED, PEAK_RESERVED};
use super::shape::{Point, Shape, median, shape};

/// Fewer runs show no trend.
const MIN_RUNS: usize = 8;
/// Maximum number of points of a fit, which compares all pairs. Longer series are divided into parts, each with its median.
const MAX_POINTS: usize = 64;
const WEEK_US: f64 = 7.0 * 24.0 * 3600.0 * 1e6;
/// A step smaller than this share of the level is not shown.
const MIN_STEP_RATIO: f64 = 0.01;

/// The JSON of `oomscope check --trend`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct TrendReport {
    /// Whether nothing creeps.
    pub passed: bool,
    /// The growth per week from which on a line creeps, relative to its size before.
    pub max_creep_ratio: f64,
    /// Number of lines that count as runs.
    pub runs: u64,
    /// Number of lines without a time, which do not count.
    pub without_time: u64,
    /// Number of lines with an error, which do not count.
    pub with_error: u64,
    /// Time of the first run, in microseconds since the epoch; null if there is none.
    pub first_us: Option<u64>,
    /// Time of the last run, in microseconds since the epoch; null if there is none.
    pub last_us: Option<u64>,
    /// Number of runs of the rank that has most.
    pub runs_of_rank: u64,
    /// Number of series with enough runs: one for each rank and source line, and two peaks for each rank.
    pub series: u64,
    /// The source lines and peaks that creep, most bytes per week first, then those that stepped up.
    pub rows: Vec<TrendRow>,
}

/// How a series grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrendKind {
    /// A little with every week, by the limit or more.
    Creep,
    /// At one run; this does not fail the check.
    Step,
}

/// A source line, or a peak, that grows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrendRow {
    /// How it grows.
    pub growth: TrendKind,
    /// Label of the source line; `peak allocated` or `peak reserved`.
    pub line: String,
    /// Whether this is a source line, not a peak.
    pub is_line: bool,
    /// The rank on which it grows most; the file name without numbers if the rank is not known.
    pub rank: String,
    /// Number of ranks on which it grows.
    pub ranks: u64,
    /// Number of runs of that rank that have it.
    pub runs: u64,
    /// Time from which on it grows, in microseconds since the epoch.
    pub since_us: u64,
    /// Path of the first run that is larger.
    pub since: String,
    /// Size before, in bytes.
    pub before_bytes: u64,
    /// Size at the last run, in bytes, without noise.
    pub after_bytes: u64,
    /// Growth per week in bytes; 0 for a step.
    pub bytes_per_week: u64,
    /// Growth per week, relative to the size before; 0 for a step.
    pub ratio_per_week: f64,
}

impl TrendRow {
    fn growth_bytes(&self) -> u64 {
        self.after_bytes.saturating_sub(self.before_bytes)
    }
}

/// Finds the series of `history` that grow by `max_creep_ratio` of their size a week or more. `[without_time,
/// with_error]` are the lines that do not count.
pub fn find_trends(history: &History, max_creep_ratio: f64, [without_time, with_error]: [u64; 2]) -> TrendReport {
    let mut by_line: BTreeMap<(TrendKind, String), TrendRow> = BTreeMap::new();
    let (mut series, mut runs_of_rank) = (0, 0);
    for (rank, subject, observations) in history.series() {
        runs_of_rank = runs_of_rank.max(observations.len() as u64);
        if observations.len() < MIN_RUNS {
            continue;
        }
        series += 1;
        let Some(row) = grown(history, rank, subject, &observations, max_creep_ratio) else { continue };
        let kept =
            by_line.entry((row.growth, row.line.clone())).or_insert_with(|| TrendRow { ranks: 0, ..row.clone() });
        let ranks = kept.ranks + 1;
        if (kept.bytes_per_week, kept.growth_bytes()) < (row.bytes_per_week, row.growth_bytes()) {
            *kept = row;
        }
        kept.ranks = ranks;
    }
    let mut rows: Vec<TrendRow> = by_line.into_values().collect();
    rows.sort_by_key(|row| {
        let size = std::cmp::Reverse((row.bytes_per_week, row.growth_bytes()));
        // A line says more than the peak that it moves.
        (row.growth, !row.is_line, size)
    });
    TrendReport {
        passed: rows.iter().all(|row| row.growth != TrendKind::Creep),
        max_creep_ratio,
        runs: history.paths.len() as u64,
        without_time,
        with_error,
        first_us: history.range_us.map(|(first, _)| first),
        last_us: history.range_us.map(|(_, last)| last),
        runs_of_rank,
        series,
        rows,
    }
}

fn grown(
    history: &History,
    rank: &str,
    subject: &str,
    observations: &[Observation],
    max_creep_ratio: f64,
) -> Option<TrendRow> {
    let first_us = observations.first()?.time_us;
    let parts = parts(observations);
    let point = |part: &&[Observation]| -> Point {
        let weeks = part.iter().map(|run| (run.time_us - first_us) as f64 / WEEK_US).collect();
        (median(weeks), median(part.iter().map(|run| run.bytes as f64).collect()))
    };
    let points: Vec<Point> = parts.iter().map(point).collect();
    let (growth, at, before, after, per_week) = match shape(&points) {
        // Growth that a week has not yet shown is not extrapolated: the runs may be minutes apart.
        Shape::Creep { at, before, after, per_week }
            if per_week.min(after - before) >= max_creep_ratio * before.max(1.0) =>
        {
            (TrendKind::Creep, at, before, after, per_week)
        }
        Shape::Step { at, before, after } if after - before >= MIN_STEP_RATIO * before.max(1.0) => {
            (TrendKind::Step, at, before, after, 0.0)
        }
        _ => return None,
    };
    let since = parts.get(at)?.first()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of memory, saturating")]
    let bytes = |value: f64| value.round() as u64;
    Some(TrendRow {
        growth,
        line: subject.to_owned(),
        is_line: ![PEAK_ALLOCATED, PEAK_RESERVED].contains(&subject),
        rank: rank.to_owned(),
        ranks: 1,
        runs: observations.len() as u64,
        since_us: since.time_us,
        since: history.paths.get(since.path)?.clone(),
        before_bytes: bytes(before),
        after_bytes: bytes(after),
        bytes_per_week: bytes(per_week),
        ratio_per_week: per_week / before.max(1.0),
    })
}

/// At most [`MAX_POINTS`] parts of about the same length.
fn parts(observations: &[Observation]) -> Vec<&[Observation]> {
    let count = observations.len().min(MAX_POINTS);
    let bound = |part: usize| part * observations.len() / count.max(1);
    (0..count).filter_map(|part| observations.get(bound(part)..bound(part + 1))).collect()
}
