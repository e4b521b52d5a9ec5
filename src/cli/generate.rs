//! `oomscope generate`: what a package installs beside the program.

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::exit::Done;
use super::output::Output;

/// Write the manual page, or a script that completes commands and options in a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope generate man > oomscope.1
  oomscope generate completions bash > ~/.local/share/bash-completion/completions/oomscope
  oomscope generate completions zsh > ~/.zfunc/_oomscope")]
pub(super) struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The manual page, with all commands
    Man,
    /// Completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Writes what was asked for about `command` to standard output.
pub(super) fn run(args: &Generate, mut command: clap::Command) -> anyhow::Result<Done> {
    let output = Output::open(None)?;
    match args.what {
        What::Man => {
            command.build();
            output.write_by(|mut out| {
                clap_mangen::Man::new(command.clone()).render(&mut out)?;
                let of_program = command.get_subcommands().filter(|it| it.get_name() != "help");
                of_program.cloned().try_for_each(|it| clap_mangen::Man::new(it).render(&mut out))
            })?;
        }
        What::Completions { shell } => output.write_by(|out| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "oomscope", &mut script);
            out.write_all(&script)
        })?,
    }
    Ok(Done::Well)
}
