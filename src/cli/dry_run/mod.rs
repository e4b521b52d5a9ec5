//! `oomscope dry-run`: `oomscope run` with a stub of CUDA instead of a GPU.
//!
//! The stub is C (the directory `stub`). Python (`python/oomscope/_stub.py`) compiles it at first use in the program's
//! own environment, because it must match the torch that the program imports. Both are embedded here as text and
//! written next to the recorder. Nothing here knows CUDA: a GPU is a row of `device::GPUS`, which environment variables
//! pass to the stub.

mod analyzed_run;
mod args;
mod engine_remedies;
mod options;
mod other_branches;
mod size_run;
mod size_search;
mod trials;
mod written_files;

use std::fs;

pub(super) use self::analyzed_run::AnalyzedRun;
pub(super) use self::args::DryRun;
use self::args::ExitCode;
pub(super) use self::options::{DryRunOptions, Intervention, MachineArgs, parse_known_gpu};
pub(super) use self::size_run::SizeRun;
pub(super) use self::size_search::{SizeSearch, fill_placeholder, find_placeholder};
use super::args::Format;
use super::exit::{Exit, print_stderr};
use super::output::{Output, print_page};
use super::run::{CommandOutput, print_result, record};
use crate::output::report;
use crate::stacks::engines::Engine;

/// Exit code under `--exit-code verdict` if there is none.
const NO_VERDICT: u8 = 2;

pub(super) fn run(args: &DryRun) -> anyhow::Result<Exit> {
    args.options.machine.check_memory()?;
    let command = &args.command;
    let mut directory = args.options.prepare(args.output.as_deref(), Intervention::default())?;
    let name = directory.chosen.path.clone();
    directory.environment.extend(trials::compiled_code(&name));
    if !args.options.real_files {
        print_stderr(&written_files::announce(&name));
    }
    // The output of the program must not mix with that of `--format`, nor an engine's log come before its answer.
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let is_server = Engine::is_server(&words);
    let log = (args.format != Format::Human || is_server).then(|| name.join("output.txt"));
    if let Some(log) = log.as_ref().filter(|_| is_server) {
        print_stderr(&format!("the output is in {}", log.display()));
    }
    let output = log.as_deref().map_or(CommandOutput::Inherited, CommandOutput::Log);
    let recorded = record(command, directory, output)?;
    if let Err(error) = other_branches::run(args, &name, &recorded) {
        print_stderr(&format!("the other branches did not run: {error:#}"));
    }
    let (verdict, code) = (print_result(command, &recorded), recorded.end.code());
    if is_server && code != 0 {
        print_stderr(&format!("the server ended with exit code {code}; its output says why"));
    }
    if let Some(list) = written_files::list(&name) {
        print_stderr(&list);
    }
    let is_page = args.format == Format::Human;
    if args.tries || recorded.status.has_engine && is_page {
        let report = trials::run(args, &name, &recorded, log.as_deref())?;
        if !is_page {
            Output::open(None)?.write_answer(args.format, &report, report::trials)?;
        } else if report.runs.len() > 1 {
            // With one run nothing failed, so nothing was tried.
            print_page(report::trials(&report));
        }
    } else if !is_page {
        let job = AnalyzedRun::read(&recorded)?.job;
        Output::open(None)?.write_answer(args.format, &job, report::analyze)?;
    }
    // It is for this run alone: the next one compiles again, so that it has the same answer.
    let _ = fs::remove_dir_all(name.join(trials::CACHE));
    Ok(Exit::Code(match args.exit_code {
        ExitCode::Command => code,
        ExitCode::Verdict => verdict.unwrap_or(NO_VERDICT),
    }))
}
