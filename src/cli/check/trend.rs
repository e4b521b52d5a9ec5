//! `oomscope check --trend`: growth over weeks, in the results of many runs.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::args::Check;
use super::outputs::Outputs;
use crate::base::input::decompress_reader;
use crate::base::units::counted;
use crate::cli::args::Format;
use crate::cli::exit::Exit;
use crate::cli::inputs::{self, Input};
use crate::compare::trend::{History, RunError, find_trends};
use crate::output::report;

/// Growth per week from which on a line or peak fails, relative to its size before.
const MAX_CREEP: f64 = 0.005;

pub(super) fn check_trend(args: &Check) -> anyhow::Result<Exit> {
    let files = inputs::expand_files(&args.snapshots, is_named_like_lines)?;
    if files.is_empty() {
        bail!("no file of lines from `oomscope analyze --format jsonl` (.jsonl, .ndjson) in the directories given");
    }
    let mut inputs: Vec<Input> = files.iter().map(|path| Input::named(path)).collect();
    let outputs = Outputs::open(args, None, &mut inputs)?;
    let mut history = History::default();
    let (mut without_time, mut with_error) = (0, 0);
    for path in &files {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("{name} cannot be read"))?;
        let lines = decompress_reader(BufReader::new(file)).with_context(|| format!("{name} cannot be read"))?;
        for (number, line) in lines.lines().enumerate() {
            let line = match line {
                // Not text; `History` refuses it.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => "?".to_owned(),
                line => line.with_context(|| format!("{name} cannot be read"))?,
            };
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
    let report = find_trends(&history, MAX_CREEP, [without_time, with_error]);
    if report.series == 0 {
        let without_time = match without_time {
            0 => String::new(),
            lines => format!("; {} without a time, as of a snapshot without a trace", counted(lines, "line")),
        };
        let most = match report.runs_of_rank {
            runs if runs == report.runs => counted(runs, "run"),
            runs => format!("{} of the rank that has most", counted(runs, "run")),
        };
        bail!("a trend needs at least 8 runs of a rank; here: {most}{without_time}");
    }
    outputs.write_each(|format, output| match format {
        Format::Github | Format::Junit | Format::Sarif => {
            bail!("--trend has no {format:?} format: use markdown or json")
        }
        format => output.write_answer(format, &report, report::trend),
    })?;
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
