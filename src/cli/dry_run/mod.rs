//! `oomscope dry-run`: `run`, with a stub of CUDA in place of a GPU.
//!
//! The stub is C (the directory `stub`), compiled in the program's own environment at first use, by Python
//! (`python/oomscope/_stub.py`): it is made for the torch that the program imports, which only its Python knows. Both
//! lie in this program as text and are put beside the recorder. Nothing here knows CUDA: a GPU is a row of
//! `device::GPUS`, told to the stub by environment variables.

mod alone;
mod args;
mod asked;
mod assumed;
mod sizes;
mod stub;

pub(super) use self::args::DryRun;
use super::exit::Done;
use super::run::{recorded, show};

/// Runs the command to its end, then says what it would have needed.
pub(super) fn run(args: &DryRun) -> anyhow::Result<Done> {
    if let Some(asked) = &args.fit {
        return sizes::run(args, asked);
    }
    let directory = args.prepare(args.output.as_deref())?;
    let (ended, seen, left) = recorded(&args.command, directory)?;
    show(&args.command, ended, &seen, &left);
    Ok(Done::As(ended.code()))
}
