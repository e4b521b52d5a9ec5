//! `oomscope generate`: manual pages and completions, for packages.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::exit::Exit;
use super::output::Output;

/// Write manual pages, or a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/generate.txt"))]
pub(super) struct Generate {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// A manual page for each command, in DIR
    Man {
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Completion script for a shell
    Completions {
        /// Name of the shell
        shell: Shell,
    },
}

pub(super) fn run(args: &Generate, mut command: clap::Command) -> anyhow::Result<Exit> {
    match &args.target {
        Target::Man { directory } => std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(command, directory))
            .map(|()| Exit::Success)
            .with_context(|| format!("{}: cannot be written", directory.display())),
        Target::Completions { shell } => Output::open(None)?.write_with(|out| {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "oomscope", &mut script);
            out.write_all(&script)
        }),
    }
}
