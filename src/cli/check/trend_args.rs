//! The arguments of `oomscope check --trend`.

use clap::Args;

/// Growth over weeks, in place of limits.
#[derive(Debug, Args)]
pub(in crate::cli) struct TrendArgs {
    /// Find source lines that creep, in files of lines from `analyze --format jsonl`, as many runs left them
    ///
    /// Give the files, or directories of them, in place of snapshots: at least 8 runs of each rank, in any order. A line
    /// or peak fails that grows by 0.5% of its size a week or more. A step at one run is shown and does not fail.
    #[arg(
        long = "trend",
        id = "trend",
        help_heading = "Growth",
        conflicts_with_all = [
            "LimitArgs", "baseline", "entry", "add", "update", "save_baseline", "command", "config", "device", "ranks",
            "allow_missing", "torch_version"
        ]
    )]
    pub(super) is_given: bool,
}
