//! `oomscope check --trend`: growth over weeks, in the results of many runs.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::args::Check;
use crate::base::input::decompress_reader;
use crate::base::units::counted;
use crate::cli::exit::Exit;
use crate::cli::inputs;
use crate::cli::output::Output;
use crate::compare::trend::{History, RunError, find_trends};
use crate::output::report;

pub(super) fn check_trend(args: &Check) -> anyhow::Result<Exit> {
    let files = inputs::expand_files(&args.snapshots, is_named_like_lines)?;
    for path in &files {
        args.output.as_ref().map_or(Ok(()), |output| inputs::refuse_output_over_input(path, output))?;
    }
    let output = Output::open(args.output.as_deref())?;
    let mut history = History::default();
    let (mut without_time, mut with_error) = (0, 0);
    for path in &files {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("{name} cannot be read"))?;
        let lines = decompress_reader(BufReader::new(file)).with_context(|| format!("{name} cannot be read"))?;
        for (number, line) in lines.lines().enumerate() {
            let line = line.with_context(|| format!("{name} cannot be read"))?;
            match history.add(&line) {
                _ if line.trim().is_empty() => {}
                Ok(()) => {}
                Err(RunError::NoTime) => without_time += 1,
                Err(RunError::Unreadable) => with_error += 1,
                Err(RunError::NotARun) => {
                    bail!("{name}: line {} is not one of `oomscope analyze --format jsonl`", number + 1)
                }
            }
        }
    }
    let report = find_trends(&history, args.trend.max_creep, [without_time, with_error]);
    if report.series == 0 {
        let without_time = match without_time {
            0 => String::new(),
            lines => format!("; {} without a time, as of a snapshot without a trace", counted(lines, "line")),
        };
        bail!(
            "a trend needs at least 8 runs of a rank; there are {} of all ranks{without_time}",
            counted(report.runs, "run")
        );
    }
    output.write_answer(args.format, &report, report::trend)?;
    Ok(if report.passed { Exit::Success } else { Exit::Failed })
}

fn is_named_like_lines(path: &Path) -> bool {
    let name: PathBuf = path.with_extension("");
    let plain = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "zst") => &*name,
        _ => path,
    };
    plain.extension().is_some_and(|extension| extension == "jsonl" || extension == "ndjson")
}
