//! `oomscope schema`: the JSON Schema of the commands' answers.

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::exit::Exit;
use super::output::Output;

/// Each command with a schema. `tests/suite/schemas.rs` writes the files.
macro_rules! schemas {
    ($($command:literal),* $(,)?) => {
        &[$(($command, include_str!(concat!("../../docs/schema/", $command, ".json")))),*]
    };
}

const SCHEMAS: &[(&str, &str)] =
    schemas!["analyze", "check", "diff", "dry-run", "explain", "fit", "live", "plan", "replay", "timeline", "whatif",];

/// Print the JSON Schema of what a command writes
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/schema.txt"))]
pub(super) struct Schema {
    /// Name of the command; without it, the names are listed
    #[arg(value_parser = PossibleValuesParser::new(SCHEMAS.iter().map(|(command, _)| *command)))]
    command: Option<String>,
}

pub(super) fn run(args: &Schema) -> anyhow::Result<Exit> {
    Output::open(None)?.write_with(|out| match &args.command {
        None => SCHEMAS.iter().try_for_each(|(command, _)| writeln!(out, "{command}")),
        Some(name) => {
            let mut named = SCHEMAS.iter().filter(|(command, _)| command == name);
            named.try_for_each(|(_, schema)| out.write_all(schema.as_bytes()))
        }
    })
}
