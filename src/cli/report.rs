//! `oomscope report`

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args;

use super::args::{WindowArgs, parse_capacity, parse_moment, parse_release};
use super::config::Config;
use super::exit::Done;
use super::gathered::gathered;
use super::inputs;
use super::output::Output;
use crate::analysis::{Options, SnapshotReport, analyze_study};
use crate::output::page::{self, PageData, SnapshotData};
use crate::study::{PositionSelector, Study};
use crate::whatif::{WhatIfOptions, compare_settings};

/// Write one HTML page to look at: the analysis, and every allocation over time, in memory and by stack
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope report snapshot.pickle -o report.html           one file: no server, no network
  oomscope report snapshot.pickle -o report.html --open    and show it in the browser
  oomscope report ranks/ -o report.html                    64 ranks, the worst first
  oomscope report --around-oom 20000 s.pickle -o r.html    only what led to the failure

The page holds what `oomscope analyze --format json` prints, and the data of every allocation. It runs a script of \
its own and nothing else; without scripts it shows the answer of `oomscope analyze`.

Exit codes: 0 done, whether or not a request failed; 2 wrong usage or an unreadable file.")]
pub(super) struct Report {
    /// Snapshot files (.pickle, .pkl, .json; optionally .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<PathBuf>,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show the page in the browser
    #[arg(long, requires = "output")]
    open: bool,

    /// Show only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Number of stacks, lines and segments to list; the rest is summed up
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Begin at this moment: after an ENTRY (index from 0, per device), at the peak, or at the last failure
    #[arg(long, value_name = "ENTRY|peak|failure", value_parser = parse_moment)]
    at: Option<PositionSelector>,

    /// Total device memory, e.g. 80GiB, which no snapshot records; shows how much is used outside PyTorch
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    capacity: Option<u64>,

    /// PyTorch release that recorded the snapshots; default: inferred from the files
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    /// Replay the trace under other settings as well, as 'oomscope whatif' does: a table of them
    #[arg(long)]
    whatif: bool,

    /// Leave directories out of all paths, for a page that leaves the house
    #[arg(long)]
    strip_paths: bool,

    /// Read categories of your own from FILE; default: oomscope.toml in this directory or the nearest parent
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    window: WindowArgs,
}

/// Reads, analyzes, packs and writes.
pub(super) fn run(args: &Report) -> anyhow::Result<Done> {
    let (config, config_path) = Config::find(args.config.as_deref())?;
    let options = Options {
        device: args.device,
        top: args.top,
        window: args.window.window()?,
        at: args.at,
        capacity: args.capacity,
        request: None,
        rules: &config.categories,
        layers: true,
        minor: args.torch_version,
        strip_paths: args.strip_paths,
    };
    let mut inputs = inputs::expand(&args.snapshots)?;
    match &args.output {
        Some(path) => {
            inputs::spare(&mut inputs, path)?;
            config_path.as_ref().map_or(Ok(()), |config| inputs::spare_one(config, path))?;
        }
        None if io::stdout().is_terminal() => bail!("give the page a file: -o report.html"),
        None => {}
    }
    let output = Output::open(args.output.as_deref())?;
    let (read, mut unreadable) = inputs::read_all(&inputs, |snapshot, path, bytes| {
        let study = Study::new(snapshot, options.scope());
        let report = analyze_study(&study, path, bytes, options);
        let budget = page::budget(inputs.len() * report.devices.len());
        let devices = study.devices().zip(&report.devices);
        let devices = devices.map(|(device, report)| PageData::of(device, report, budget));
        let asked = WhatIfOptions { capacity: args.capacity, ..WhatIfOptions::default() };
        let tried = args.whatif && !snapshot.entries.is_empty();
        let tried = tried.then(|| compare_settings(&study, path, asked, &|_, _| ())).transpose();
        let data = SnapshotData {
            devices: devices.collect::<io::Result<Vec<PageData>>>()?,
            whatif: tried.map_err(anyhow::Error::msg)?,
        };
        anyhow::Ok((report, data))
    });
    let read = read.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let (mut snapshots, mut data): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    if args.strip_paths {
        strip(snapshots.iter_mut().map(|one: &mut SnapshotReport| &mut one.path));
        strip(unreadable.iter_mut().map(|one| &mut one.path));
        for (report, data) in snapshots.iter().zip(&mut data) {
            if let Some(tried) = &mut data.whatif {
                tried.path.clone_from(&report.path);
            }
        }
    }
    let Some((report, done)) = gathered(snapshots, unreadable, options)? else {
        return Ok(Done::Partly);
    };
    output.write_by(|out| page::write(&report, &data, env!("CARGO_PKG_VERSION"), out))?;
    if let Some(path) = args.output.as_deref().filter(|_| args.open) {
        open(path)?;
    }
    Ok(done)
}

/// Leaves the directories of `paths` out; names that several then have are numbered, to tell one from another.
fn strip<'p>(paths: impl Iterator<Item = &'p mut String>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for path in paths {
        let name = path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        *path = if *times == 1 { name } else { format!("{times}/{name}") };
    }
}

/// Shows the file at `path` with the program that the user's desktop has for it.
fn open(path: &Path) -> anyhow::Result<()> {
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    // An absolute path is no option, whatever it is called.
    let path = std::path::absolute(path)?;
    let shown = Command::new(program).arg(&path).stdin(std::process::Stdio::null()).spawn();
    shown.map(|_| ()).with_context(|| {
        format!("{program} cannot be run to show {}; open it in a browser", path.display())
    })
}
