//! The limits as flags, made from the catalogue of figures.

use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id};

use crate::figures::Amount;
use crate::gate::{Limit, Limits};

/// The group of all these flags.
const GROUP: &str = "LimitArgs";

/// A flag for every [`Limit`]; each wins over the file's limit that fails.
#[derive(Debug)]
pub(super) struct LimitArgs(Limits);

impl LimitArgs {
    /// Those that were given.
    pub(super) fn limits(&self) -> &Limits {
        &self.0
    }
}

fn flag(limit: Limit) -> Arg {
    let heading = if limit.needs_baseline() { "Growth" } else { "Limits (a RATIO is 0.3 or 30%)" };
    Arg::new(limit.key())
        .long(limit.key())
        .value_name(limit.unit().placeholder())
        .value_parser(move |text: &str| limit.unit().read(text))
        .allow_hyphen_values(true)
        .help(limit.meanings().collect::<Vec<_>>().join("; "))
        .help_heading(heading)
}

impl Args for LimitArgs {
    fn group_id() -> Option<Id> {
        Some(Id::from(GROUP))
    }

    fn augment_args(command: Command) -> Command {
        let group = ArgGroup::new(GROUP).multiple(true).args(Limit::all().map(Limit::key));
        command.args(Limit::all().map(flag)).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut limits = Limits::default();
        for limit in Limit::all() {
            if let Some(most) = matches.get_one::<Amount>(limit.key()) {
                limits.set(limit, *most);
            }
        }
        Ok(Self(limits))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
