//! `oomscope export`

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::args::{POSITION, SnapshotArgs, WindowArgs};
use super::atomic_file::AtomicFile;
use super::exit::{Exit, print_stderr, report_unreadable};
use super::inputs::{self, Input};
use super::output::Output;
use crate::output::export::{
    CsvTable, FoldedWriter, ParquetTable, PerfettoWriter, Recording, Table, TableSet, TableSink, write_window,
};
use crate::study::{PositionSelector, Scope, Study};

/// Write tables, a Perfetto trace, flame graphs, or a part of it
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/export.txt"))]
pub(super) struct Export {
    #[command(flatten)]
    snapshots: SnapshotArgs,

    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    format: ExportFormat,

    /// Write to this file [default: standard output]; tables go to this directory
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// Export only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Position of the live memory in folded stacks [default: peak]
    ///
    /// ENTRY is after the trace entry with this index (from 0, per device), `peak` when most was allocated, `failure`
    /// when the last failed request was made, `end` after the last entry.
    #[arg(long, value_name = "ENTRY|step:N|peak|failure|end", value_parser = POSITION, hide_possible_values = true)]
    at: Option<PositionSelector>,

    #[command(flatten)]
    window: WindowArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// A directory of Parquet tables: allocations, events, stacks, segments, run
    Parquet,
    /// The same tables as CSV
    Csv,
    /// A trace for ui.perfetto.dev: memory over time by category, steps, phases, failures
    Perfetto,
    /// Folded stacks with bytes, for flame graphs
    Folded,
    /// A window as a snapshot that PyTorch's own viewer opens
    Pickle,
}

pub(super) fn run(args: &Export) -> anyhow::Result<Exit> {
    let scope = Scope { device: args.device, window: args.window.window()?, ..Scope::default() };
    if args.at.is_some() && args.format != ExportFormat::Folded {
        bail!("--at is for --format folded; --from and --to select a part of the trace for every format");
    }
    let at = args.at.unwrap_or(PositionSelector::Peak);
    let inputs = args.snapshots.inputs(args.output.as_deref().filter(|path| !path.is_dir()))?;
    let job = Job { inputs: &inputs, scope };
    match args.format {
        ExportFormat::Parquet => {
            in_directory(args, |directory| job.write_tables(directory, "parquet", ParquetTable::new))
        }
        ExportFormat::Csv => in_directory(args, |directory| job.write_tables(directory, "csv", CsvTable::new)),
        ExportFormat::Perfetto => write_perfetto(args, &job),
        ExportFormat::Pickle => write_pickle(args, &job),
        ExportFormat::Folded => {
            let output = Output::open(args.output.as_deref())?;
            let mut writer = FoldedWriter::new(at, inputs.len() > 1);
            let Some(exit) = job.add_positions(&mut writer, at)? else { return Ok(Exit::Unreadable) };
            output.write_with(|out| writer.finish(out))?;
            Ok(exit)
        }
    }
}

/// Calls `write` with the directory for tables, which is removed again if it is new and nothing was written.
fn in_directory(args: &Export, write: impl FnOnce(&Path) -> anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    let directory = match args.output.as_deref() {
        Some(path) if path != Path::new("-") && (path.is_dir() || !path.exists()) => path,
        Some(path) if path.exists() => {
            bail!("{}: is no directory; the tables are several files: -o tables/", path.display())
        }
        _ => bail!("name a directory for the tables: -o tables/"),
    };
    let is_new = !directory.exists();
    fs::create_dir_all(directory).with_context(|| format!("{} cannot be created", directory.display()))?;
    let written = write(directory);
    if is_new {
        let _ = fs::remove_dir(directory);
    }
    written
}

fn write_perfetto(args: &Export, job: &Job<'_>) -> anyhow::Result<Exit> {
    open_binary(args.output.as_deref(), "trace.pftrace")?.write_streamed(|out| {
        let mut writer = PerfettoWriter::new(out);
        let exit = job.each(|recording| Ok(writer.add(recording)?))?;
        writer.finish()?;
        Ok(exit)
    })
}

fn write_pickle(args: &Export, job: &Job<'_>) -> anyhow::Result<Exit> {
    let [_] = job.inputs else {
        bail!("--format pickle takes one snapshot, and here are {}", job.inputs.len());
    };
    let output = open_binary(args.output.as_deref(), "window.pickle")?;
    output.write_streamed(|out| job.each(|recording| Ok(write_window(recording, out)?)))
}

/// Opens the destination of a binary format, which is no terminal.
fn open_binary(output: Option<&Path>, example: &str) -> anyhow::Result<Output> {
    if output.is_none_or(|path| path == Path::new("-")) && io::stdout().is_terminal() {
        bail!("the format is binary: name a file, -o {example}, or redirect standard output");
    }
    Output::open(output)
}

struct Job<'j> {
    inputs: &'j [Input],
    scope: Scope,
}

impl Job<'_> {
    /// Calls `add` with each recording. `None` if no file could be read.
    fn each(&self, mut add: impl FnMut(&Recording<'_, '_>) -> anyhow::Result<()>) -> anyhow::Result<Option<Exit>> {
        let (mut read, mut with_devices, mut outside) = (Vec::new(), 0, 0);
        let unreadable = inputs::read_in_turn(self.inputs, |snapshot, path| {
            let study = Study::new(snapshot, self.scope);
            let recording = Recording::new(&study, path);
            read.push(path.to_owned());
            with_devices += usize::from(study.devices().next().is_some());
            outside += usize::from(recording.is_outside_of_trace());
            add(&recording)
        })?;
        let exit = report_unreadable(&unreadable, read.len())?;
        if let Some(device) = self.scope.device.filter(|_| with_devices == 0)
            && let Some(message) = inputs::missing_device(read.iter().map(String::as_str), device)
        {
            bail!(message);
        }
        if outside == read.len()
            && let Some(paths) = inputs::describe_paths(read.iter().map(String::as_str))
        {
            bail!("{paths}: no trace entry in the selected part of the trace");
        }
        Ok(exit)
    }

    /// Adds the recordings to `writer`. Names the snapshots that do not have its position `at`; fails if none does.
    fn add_positions(&self, writer: &mut FoldedWriter, at: PositionSelector) -> anyhow::Result<Option<Exit>> {
        let (mut without, mut added) = (Vec::new(), 0);
        let exit = self.each(|recording| {
            if writer.add(recording) {
                added += 1;
            } else {
                without.push(recording.path.to_owned());
            }
            Ok(())
        })?;
        if let Some(paths) = inputs::describe_paths(without.iter().map(String::as_str)) {
            let message = format!("{paths}: {}", at.describe_missing());
            match at {
                _ if added > 0 => print_stderr(&format!("{message}; left out")),
                PositionSelector::Failure => bail!("{message}; give --at peak, --at end or an entry"),
                _ => bail!(message),
            }
        }
        Ok(exit)
    }

    fn write_tables<S: TableSink + Send>(
        &self,
        directory: &Path,
        extension: &str,
        sink: impl Fn(Table, BufWriter<File>) -> io::Result<S>,
    ) -> anyhow::Result<Exit> {
        let failure = format!("{} cannot be written", directory.display());
        let mut files = Vec::new();
        let tables = TableSet::open(|table| {
            let file = AtomicFile::open(&directory.join(format!("{}.{extension}", table.name)))?;
            let handle = file.handle();
            files.push(file);
            sink(table, BufWriter::new(handle?))
        });
        let mut tables = tables.with_context(|| failure.clone())?;
        let Some(exit) = self.each(|recording| tables.add(recording).with_context(|| failure.clone()))? else {
            return Ok(Exit::Unreadable);
        };
        tables.finish().with_context(|| failure.clone())?;
        drop(tables);
        AtomicFile::finish_all(files).context(failure)?;
        Ok(exit)
    }
}
