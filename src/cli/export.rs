//! `oomscope export`

use std::io::{self, BufWriter, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};

use super::args::{ExportWindowArgs, SnapshotArgs, parse_position, parse_release};
use super::atomic_file::AtomicFile;
use super::exit::{Exit, print_stderr};
use super::inputs::{self, Input};
use super::output::Output;
use crate::output::export::TableSink;
use crate::output::export::{CsvTable, FoldedWriter, NoPosition, PprofWriter, Recording, TABLES, Table, TableSet};
use crate::study::{PositionSelector, Scope, Study};

/// Write a recording in the formats of other tools: tables, pprof, flame graphs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope export s.pickle --to csv -o tables/       allocations, events, stacks, segments and run as CSV
  oomscope export s.pickle --to pprof -o peak.pb.gz  then: go tool pprof -http=: peak.pb.gz
  oomscope export s.pickle --to folded | inferno-flamegraph > peak.svg
  oomscope export s.pickle --to folded --at failure  what held the memory when a request failed

All figures are those of the replayed allocator: blocks have the sizes that PyTorch rounds requests to. docs/export.md \
describes the tables.

Exit codes: 0 success; 2 wrong usage or an unreadable file.")]
pub(super) struct Export {
    #[command(flatten)]
    snapshots: SnapshotArgs,

    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    to: ExportFormat,

    /// Write to this file [default: standard output]; tables go to this directory
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// Export only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Position of the live memory in pprof and folded
    ///
    /// ENTRY is after the trace entry with this index (from 0, per device), `peak` when most was allocated, `failure`
    /// when the last failed request was made, `end` after the last entry.
    #[arg(long, value_name = "ENTRY|peak|failure|end", value_parser = parse_position, default_value = "peak")]
    at: PositionSelector,

    /// PyTorch release that recorded the snapshots [default: inferred from the files]
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    #[command(flatten)]
    window: ExportWindowArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// A directory of CSV tables: allocations, events, stacks, segments, run
    Csv,
    /// A profile for pprof: memory in use, and memory allocated, by stack
    Pprof,
    /// Folded stacks with bytes, for flame graphs
    Folded,
}

pub(super) fn run(args: &Export) -> anyhow::Result<Exit> {
    let scope =
        Scope { device: args.device, window: args.window.window()?, minor: args.torch_version, ..Scope::default() };
    let mut inputs = args.snapshots.inputs(None)?;
    if let Some(path) = args.output.as_deref().filter(|path| !path.is_dir()) {
        inputs::refuse_output_over_inputs(&mut inputs, path)?;
    }
    let job = Job { inputs: &inputs, scope };
    match args.to {
        ExportFormat::Csv => {
            let Some(directory) = &args.output else {
                bail!("name a directory for the tables: -o tables/");
            };
            job.write_tables(directory, "csv", CsvTable::new)
        }
        ExportFormat::Pprof => {
            refuse_terminal(args.output.as_deref(), "peak.pb.gz")?;
            let output = Output::open(args.output.as_deref())?;
            let mut writer = PprofWriter::new(args.at);
            let Some(exit) = job.add_positions(|recording| writer.add(recording))? else { return Ok(Exit::Unreadable) };
            output.write_with(|out| writer.finish(out))?;
            Ok(exit)
        }
        ExportFormat::Folded => {
            let output = Output::open(args.output.as_deref())?;
            let mut writer = FoldedWriter::new(args.at, inputs.len() > 1);
            let Some(exit) = job.add_positions(|recording| writer.add(recording))? else { return Ok(Exit::Unreadable) };
            output.write_with(|out| writer.finish(out))?;
            Ok(exit)
        }
    }
}

fn refuse_terminal(output: Option<&Path>, example: &str) -> anyhow::Result<()> {
    if output.is_none() && io::stdout().is_terminal() {
        bail!("the format is binary: name a file, -o {example}, or redirect standard output");
    }
    Ok(())
}

struct Job<'j> {
    inputs: &'j [Input],
    scope: Scope,
}

impl Job<'_> {
    /// Calls `add` with each recording. `None` if no file could be read.
    fn each(
        &self,
        mut add: impl FnMut(&Recording<'_, '_>) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<Option<Exit>> {
        let (mut read, mut with_devices) = (Vec::new(), 0);
        let unreadable = inputs::read_in_turn(self.inputs, |snapshot, path| {
            let study = Study::new(snapshot, self.scope);
            let recording = Recording::new(&study, path);
            read.push(path.to_owned());
            with_devices += usize::from(study.devices().next().is_some());
            add(&recording)
        })?;
        for file in &unreadable {
            print_stderr(&format!("{}: {}", file.path, file.message));
        }
        if read.is_empty() && unreadable.is_empty() {
            bail!("no snapshot among the files given");
        }
        if let Some(device) = self.scope.device.filter(|_| with_devices == 0)
            && let Some(message) = inputs::missing_device(read.iter().map(String::as_str), device)
        {
            bail!(message);
        }
        let exit = if unreadable.is_empty() { Exit::Success } else { Exit::Unreadable };
        Ok((!read.is_empty()).then_some(exit))
    }

    /// Like [`Self::each`] for a writer of one position. Names the snapshots that do not have it; fails if none does.
    fn add_positions(
        &self,
        mut add: impl FnMut(&Recording<'_, '_>) -> Result<(), NoPosition> + Send,
    ) -> anyhow::Result<Option<Exit>> {
        let (mut without, mut added) = (Vec::new(), 0);
        let exit = self.each(|recording| {
            match add(recording) {
                Ok(()) => added += 1,
                Err(missing) => without.push(format!("{}: {missing}", recording.path())),
            }
            Ok(())
        })?;
        match without.first() {
            Some(message) if added == 0 => Err(anyhow!("{message}")),
            _ => {
                for message in &without {
                    print_stderr(&format!("{message}; left out"));
                }
                Ok(exit)
            }
        }
    }

    fn write_tables<S: TableSink + Send>(
        &self,
        directory: &Path,
        extension: &str,
        sink: impl Fn(Table, BufWriter<std::fs::File>) -> io::Result<S>,
    ) -> anyhow::Result<Exit> {
        let is_new = !directory.exists();
        let failed = || format!("{} cannot be written", directory.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        let written = self.write_tables_in(directory, extension, sink);
        if is_new && !matches!(written, Ok(Some(_))) {
            // Removes it only if it is empty.
            let _ = std::fs::remove_dir(directory);
        }
        Ok(written?.unwrap_or(Exit::Unreadable))
    }

    fn write_tables_in<S: TableSink + Send>(
        &self,
        directory: &Path,
        extension: &str,
        sink: impl Fn(Table, BufWriter<std::fs::File>) -> io::Result<S>,
    ) -> anyhow::Result<Option<Exit>> {
        let mut files = Vec::new();
        let mut open = |table: Table| -> anyhow::Result<S> {
            let path = directory.join(format!("{}.{extension}", table.name));
            let failed = || format!("{} cannot be written", path.display());
            let file = AtomicFile::open(&path).with_context(failed)?;
            let sink = file.handle().and_then(|handle| sink(table, BufWriter::new(handle))).with_context(failed)?;
            files.push(file);
            Ok(sink)
        };
        let [allocations, events, stacks, segments, run] = TABLES;
        let sinks = [open(allocations)?, open(events)?, open(stacks)?, open(segments)?, open(run)?];
        let mut tables = TableSet::new(sinks);
        let failed = || format!("{} cannot be written", directory.display());
        let exit = self.each(|recording| tables.add(recording).with_context(failed))?;
        if exit.is_some() {
            tables.finish().with_context(failed)?;
            drop(tables);
            files.into_iter().try_for_each(AtomicFile::finish).with_context(failed)?;
        }
        Ok(exit)
    }
}
