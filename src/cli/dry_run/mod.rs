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
use super::exit::{Done, complain};
use super::run::{recorded, show};

/// Runs the command to its end, then says what it would have needed.
pub(super) fn run(args: &DryRun) -> anyhow::Result<Done> {
    if let Some(asked) = &args.fit {
        return sizes::run(args, asked);
    }
    let directory = args.prepare(args.output.as_deref())?;
    let (ended, seen, left) = recorded(&args.command, directory)?;
    show(&args.command, ended, &seen, &left);
    if !left.is_empty() && ended.code() != 0 {
        complain(&format!(
            "the command ended with exit code {}: unless that was for want of GPU memory, it did not come to its end, \
             and what is said above is of the part that ran",
            ended.code()
        ));
    }
    Ok(Done::As(ended.code()))
}
