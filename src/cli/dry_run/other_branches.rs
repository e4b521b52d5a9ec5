//! Where unknown values decide about branches, runs the command again with other values, so that the other branches run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::analyzed_run::AnalyzedRun;
use super::args::DryRun;
use super::options::{ANOTHER, Intervention};
use crate::analysis::{DeviceReport, DryRunReason, DryRunReport, DryRunVerdict};
use crate::base::units::{counted, size};
use crate::cli::exit::print_stderr;
use crate::cli::run::{CommandOutput, Recorded, complete_snapshot, record};
use crate::snapshot::OTHER_BRANCHES;

/// Maximum number of further runs: the other branches may read further values.
const MAX_RUNS: usize = 2;
/// Runs whose peaks differ by no more than 1 in this do not depend on the branch.
const SAME_PEAK: u64 = 100;
/// With peaks that differ, a device must have this multiple: in a job, one branch may follow the other.
const AMPLE: u64 = 2;

/// If only the branch that a value takes is in doubt, runs the other branches. If they need no more memory, the snapshots
/// say so.
pub(super) fn run(args: &DryRun, directory: &Path, recorded: &Recorded) -> anyhow::Result<()> {
    let first = AnalyzedRun::read(recorded)?;
    let reason = first.job.dry_run.as_ref().map(|job| &job.reason);
    let Some(DryRunReason::Value(read)) = reason else { return Ok(()) };
    if !read.is_branch() || !args.options.machine.value.is_empty() || args.options.real_files {
        return Ok(());
    }
    let mut places = BTreeSet::new();
    let mut found = branch_places(&first);
    let mut reserved = 0;
    for number in 1..=MAX_RUNS {
        places.append(&mut found);
        let directory = directory.join(format!("other-values-{number}"));
        let log = directory.with_extension("txt");
        let label = read.location.label();
        print_stderr(&format!(
            "the value read at {label} decides how the program goes on: runs again with another; the output is in {}",
            log.display()
        ));
        let values = places.iter().map(|(file, line)| (file.clone(), u64::from(*line), ANOTHER.to_owned())).collect();
        let run_directory =
            args.options.prepare(Some(&directory), Intervention { values, ..Intervention::default() })?;
        let others = record(&args.command, run_directory, CommandOutput::Log(&log))?;
        let other = mark(&others.snapshots, 0).and_then(|()| AnalyzedRun::read(&others));
        // Beside the snapshots of the first run they would count as its processes.
        let _ = fs::remove_dir_all(&directory);
        let other = other?;
        // A program that ends with an error because of the value takes no more memory.
        let is_served = other.job.dry_run.as_ref().is_some_and(|job| match &job.reason {
            DryRunReason::Error(error) => error.after_read.is_some(),
            _ => job.verdict == DryRunVerdict::WouldFit,
        });
        let (peak, other_peak) = (most_reserved(&first), most_reserved(&other));
        let is_same = peak.abs_diff(other_peak) <= peak / SAME_PEAK;
        if !is_served || !is_same && peak.max(other_peak).saturating_mul(AMPLE) > usable_bytes(&first) {
            return Ok(());
        }
        let lines = counted(places.len() as u64, "line");
        print_stderr(&format!("with another value at {lines} it reserves {}", size(other_peak)));
        reserved = other_peak.max(reserved);
        found = branch_places(&other).difference(&places).cloned().collect();
        if found.is_empty() {
            return mark(&recorded.snapshots, reserved);
        }
    }
    Ok(())
}

/// Writes into the snapshots that other branches have run, and how much they reserved.
fn mark(snapshots: &[PathBuf], reserved: u64) -> anyhow::Result<()> {
    let digits = format!("{reserved:016}");
    snapshots.iter().try_for_each(|path| Ok(complete_snapshot(path, OTHER_BRANCHES, &digits)?))
}

fn dry_runs(run: &AnalyzedRun) -> impl Iterator<Item = &DryRunReport> {
    run.job.snapshots.iter().filter_map(|snapshot| snapshot.dry_run.as_ref())
}

/// The lines whose values decide about branches.
fn branch_places(run: &AnalyzedRun) -> BTreeSet<(String, u32)> {
    let reads = dry_runs(run).flat_map(|run| &run.reads).filter(|read| read.is_branch());
    reads.filter_map(|read| read.location.frame.as_ref()).map(|frame| (frame.file.clone(), frame.line)).collect()
}

fn most_reserved(run: &AnalyzedRun) -> u64 {
    run.job.devices().map(DeviceReport::peak_on_device).fold(0, u64::max)
}

fn usable_bytes(run: &AnalyzedRun) -> u64 {
    dry_runs(run).map(DryRunReport::usable_bytes).min().unwrap_or(0)
}
