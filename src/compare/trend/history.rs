//! The figures of many runs, by rank and source line.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxBuildHasher;
use serde::Deserialize;

/// A line of `analyze --format jsonl`, as far as a trend needs it.
#[derive(Deserialize)]
struct Run {
    path: String,
    #[serde(default)]
    rank: Option<u32>,
    #[serde(default)]
    time_us: Option<u64>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    peak_allocated_bytes: u64,
    #[serde(default)]
    peak_reserved_bytes: u64,
    #[serde(default)]
    top_lines: Vec<RunLine>,
}

#[derive(Deserialize)]
struct RunLine {
    line: String,
    bytes: u64,
}

/// Why a line of a file counts as no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunError {
    /// It is not a line of `analyze --format jsonl`.
    NotARun,
    /// It has the error of a file that could not be read.
    Unreadable,
    /// It has no time: the snapshot has no trace, or is of a release before PyTorch 2.2.
    NoTime,
}

/// The peak of allocated memory, as the subject of a series.
pub(super) const PEAK_ALLOCATED: &str = "peak allocated";
/// The peak of reserved memory, as the subject of a series.
pub(super) const PEAK_RESERVED: &str = "peak reserved";

/// A value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Observation {
    pub(super) time_us: u64,
    pub(super) bytes: u64,
    /// Index of the run's path.
    pub(super) path: usize,
}

/// The runs of one job over time.
#[derive(Debug, Default)]
pub struct History {
    pub(super) paths: Vec<String>,
    /// The names of ranks and subjects: each is stored once.
    names: Vec<String>,
    by_name: HashMap<String, usize, FxBuildHasher>,
    /// The observations of each rank and subject, by the indexes of their names.
    series: BTreeMap<(usize, usize), Vec<Observation>>,
    pub(super) range_us: Option<(u64, u64)>,
}

impl History {
    /// Adds `line` of a file.
    ///
    /// # Errors
    /// Returns why the line is no run.
    pub fn add(&mut self, line: &str) -> Result<(), RunError> {
        let run: Run = serde_json::from_str(line).map_err(|_| RunError::NotARun)?;
        if run.error.is_some() {
            return Err(RunError::Unreadable);
        }
        let time_us = run.time_us.ok_or(RunError::NoTime)?;
        let rank = self.name(&rank_of(&run));
        let figures = [(PEAK_ALLOCATED, run.peak_allocated_bytes), (PEAK_RESERVED, run.peak_reserved_bytes)];
        let lines = run.top_lines.iter().map(|line| (&*line.line, line.bytes));
        let path = self.paths.len();
        for (subject, bytes) in figures.into_iter().chain(lines) {
            let subject = self.name(subject);
            self.series.entry((rank, subject)).or_default().push(Observation { time_us, bytes, path });
        }
        let (first, last) = self.range_us.unwrap_or((time_us, time_us));
        self.range_us = Some((first.min(time_us), last.max(time_us)));
        self.paths.push(run.path);
        Ok(())
    }

    fn name(&mut self, name: &str) -> usize {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// Rank, subject and observations of every series, the observations in order of time.
    pub(super) fn series(&self) -> impl Iterator<Item = (&str, &str, Vec<Observation>)> {
        self.series.iter().filter_map(|((rank, subject), observations)| {
            let mut sorted = observations.clone();
            sorted.sort_unstable();
            Some((self.names.get(*rank)?.as_str(), self.names.get(*subject)?.as_str(), sorted))
        })
    }
}

/// The name of the rank in every run: its number, else the file name without numbers and directories, which differ from
/// run to run.
fn rank_of(run: &Run) -> String {
    if let Some(rank) = run.rank {
        return format!("rank {rank}");
    }
    let name = run.path.rsplit(['/', '\\']).next().unwrap_or(&run.path);
    let mut pattern = String::new();
    for c in name.chars() {
        match c {
            '0'..='9' if pattern.ends_with('#') => {}
            '0'..='9' => pattern.push('#'),
            c => pattern.push(c),
        }
    }
    pattern
}
