//! `oomscope explain`

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use super::args::OutputArgs;
use super::exit::{Done, complain};
use super::inputs;
use super::output::Output;
use crate::base::input::{Source, decompress_reader, with_size_limit};
use crate::explain::explain;
use crate::explain::message::{Log, read};
use crate::output::report;
use crate::snapshot::pickle::looks_like_pickle;

/// Explain out-of-memory messages in a log: each number, why the request failed, what to do
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope explain train.log                   every out-of-memory message in a log, of all ranks
  srun -l python train.py 2>&1 | oomscope explain
  oomscope explain                             paste the message, then Ctrl-D
  oomscope explain --format json train.log.gz  for a script; keys are stable

Finds OutOfMemoryError messages of every PyTorch release (CUDA, HIP, XPU, NPU, MPS, cudaMallocAsync); messages \
of cuBLAS, cuDNN, NCCL and the driver, of vLLM, SGLang, TGI, TensorRT-LLM and llama.cpp, of JAX, TensorFlow, \
Triton and ONNX Runtime, of the kernel, Slurm and Kubernetes about host memory; tables of \
torch.cuda.memory_summary(), and torch.cuda.memory_stats() as JSON or as Python prints it. It needs no snapshot \
and says what only a snapshot can show. Nothing in the log is executed.

Exit codes: 0 something was found and explained, 2 nothing was found, wrong usage or an unreadable file.")]
pub(super) struct Explain {
    /// Log file (plain, .gz or .zst); - or nothing for standard input
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    file: PathBuf,

    /// Messages to explain in full; of others a row each
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,

    #[command(flatten)]
    output: OutputArgs,
}

/// Reads, explains and writes.
pub(super) fn run(args: &Explain) -> anyhow::Result<Done> {
    let path = args.file.display().to_string();
    if let Some(written) = &args.output.output {
        inputs::spare_one(&args.file, written)?;
    }
    let output = Output::open(args.output.output.as_deref())?;
    let log = log(&args.file).with_context(|| path.clone())?;
    let Some(report) = explain(&log, &path) else {
        let name = if path == "-" { "standard input" } else { &path };
        if is_pickle(&args.file) {
            bail!("{name}: is a pickle, not a log; `oomscope analyze` reads snapshots");
        }
        bail!(
            "{name}: no out-of-memory message, memory_summary table or memory_stats found; oomscope \
             looks for the words that PyTorch and other systems print, such as 'CUDA out of memory. Tried to allocate 2.00 GiB'"
        );
    };
    output.write_answer(args.output.format, &report, |report| report::explain(report, args.top))?;
    Ok(Done::Well)
}

/// Whether somebody meant `oomscope analyze`.
fn is_pickle(path: &Path) -> bool {
    !inputs::is_stdin(path) && Source::open(path).is_ok_and(|bytes| looks_like_pickle(&bytes))
}

fn log(path: &Path) -> anyhow::Result<Log> {
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            complain("reading standard input: paste the message, then end with Ctrl-D");
        }
        return Ok(read(decompress_reader(with_size_limit(io::stdin().lock()))?)?);
    }
    if path.is_dir() {
        bail!("is a directory; this command takes one log");
    }
    let file = File::open(path).context("cannot be read")?;
    if !file.metadata()?.is_file() {
        return Ok(read(decompress_reader(with_size_limit(file))?)?);
    }
    Ok(read(decompress_reader(BufReader::new(file))?)?)
}
