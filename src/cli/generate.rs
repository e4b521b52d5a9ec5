//! `oomscope generate`: the manual page and completions, for packages.

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::exit::Exit;
use super::output::Output;

/// Write the manual page, or a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope generate man > oomscope.1
  oomscope generate completions bash > ~/.local/share/bash-completion/completions/oomscope
  oomscope generate completions zsh > ~/.zfunc/_oomscope")]
pub(super) struct Generate {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// Manual page with all commands
    Man,
    /// Completion script for a shell
    Completions {
        /// Name of the shell
        shell: Shell,
    },
}

pub(super) fn run(args: &Generate, mut command: clap::Command) -> anyhow::Result<Exit> {
    let output = Output::open(None)?;
    match args.target {
        Target::Man => {
            command.build();
            output.write_with(|mut out| {
                clap_mangen::Man::new(command.clone()).render(&mut out)?;
                let commands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
                commands.cloned().try_for_each(|sub| clap_mangen::Man::new(sub).render(&mut out))
            })?;
        }
        Target::Completions { shell } => output.write_with(|out| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "oomscope", &mut script);
            out.write_all(&script)
        })?,
    }
    Ok(Exit::Success)
}
