//! `oomscope report`

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::args::{POSITION, WindowArgs, gpu_or, parse_capacity};
use super::config::Config;
use super::exit::Exit;
use super::guess::hint_for_file;
use super::inputs;
use super::output::Output;
use super::source::SourceArgs;
use crate::analysis::{Options, SnapshotReport, analyze_study};
use crate::output::page::{self, PageData, PageOrder};
use crate::study::{PositionSelector, Scope, Study};

/// Stacks, source lines and segments in a list.
const TOP: usize = 10;

/// Write an HTML page with every allocation, by time, address and stack
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/report.txt"))]
pub(super) struct Report {
    /// Snapshot files (.pickle, .pkl, .json; optionally .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<PathBuf>,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Open the page at this point of the trace
    ///
    /// ENTRY is after the trace entry with this index (from 0, per device), `peak` when most was allocated, `failure`
    /// when the last failed request was made, `end` after the last entry.
    #[arg(long, value_name = "ENTRY|step:N|peak|failure|end", value_parser = POSITION, hide_possible_values = true)]
    at: Option<PositionSelector>,

    /// Total device memory: 80GiB, or a GPU such as h100
    ///
    /// Snapshots do not record it. With it, the page shows how much memory is used outside PyTorch.
    #[arg(long, visible_alias = "gpu", value_name = "SIZE|GPU", value_parser = gpu_or(parse_capacity), hide_possible_values = true)]
    capacity: Option<u64>,

    /// Compare two snapshots: the page opens with what grew from the first file's peak to the second's
    #[arg(long)]
    diff: bool,

    /// Remove directories from all paths, for a page to share
    #[arg(long, conflicts_with = "source")]
    strip_paths: bool,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    window: WindowArgs,
}

pub(super) fn run(args: &Report) -> anyhow::Result<Exit> {
    let (config, config_path) = Config::load(None)?;
    let (device, window, capacity) = (args.device, args.window.window()?, args.capacity);
    let scope = Scope { device, window, capacity, strip_paths: args.strip_paths, ..Scope::default() };
    let options =
        Options { scope, top: TOP, at: args.at, request: None, keeps_lifetimes: true, rules: &config.categories };
    let mut inputs = inputs::expand_paths(&args.snapshots)?;
    inputs::keep_latest(&mut inputs);
    let output = args.output.as_deref();
    if output.is_none() && io::stdout().is_terminal() {
        bail!("name a file for the page: -o report.html");
    }
    if let Some(path) = output.filter(|path| path.extension().is_none_or(|extension| extension != "html"))
        && let Some(hint) = hint_for_file(path)
    {
        bail!("{}: {hint}", path.display());
    }
    inputs::refuse_output_over_inputs(&mut inputs, output)?;
    config_path.as_ref().map_or(Ok(()), |config| inputs::refuse_output_over_input(config, output))?;
    if args.diff && inputs.len() != 2 {
        let here = if inputs.len() == 1 { "is one".to_owned() } else { format!("are {}", inputs.len()) };
        bail!("--diff compares two snapshots, and here {here}");
    }
    let source = args.source.open_at(false)?;
    let output = Output::open(output)?;
    let (read, mut unreadable) = inputs::read_all(&inputs, |snapshot, path, bytes| {
        source.add_to(snapshot);
        let study = Study::new(snapshot, scope);
        let mut report = analyze_study(&study, path, bytes, options);
        let data = PageData::from_study(&study, &mut report, inputs.len())?;
        anyhow::Ok((report, data))
    });
    let read = read.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let (mut snapshots, data): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    if args.strip_paths {
        strip_directories(snapshots.iter_mut().map(|report: &mut SnapshotReport| &mut report.path));
        strip_directories(unreadable.iter_mut().map(|file| &mut file.path));
    }
    let Some((report, exit)) = inputs::combine_snapshots(snapshots, unreadable, options)? else {
        return Ok(Exit::Unreadable); // each file was reported when it could not be read
    };
    let order = if args.diff { PageOrder::Compared } else { PageOrder::WorstFirst };
    output.write_with(|out| page::write(&report, &data, order, env!("CARGO_PKG_VERSION"), out))?;
    Ok(exit)
}

/// Removes the directories of `paths`, and numbers names that are then equal.
fn strip_directories<'p>(paths: impl Iterator<Item = &'p mut String>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for path in paths {
        let name = path.rsplit_once(['/', '\\']).map_or(path.as_str(), |(_, name)| name).to_owned();
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        *path = if *count == 1 { name } else { format!("{count}/{name}") };
    }
}
