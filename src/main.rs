//! The `oomscope` command: see [`oomscope::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    oomscope::cli::run(std::env::args_os())
}
