//! The limits as flags, built from the catalogue of figures.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::compare::gate::{Limit, Limits};
use crate::study::figures::{Amount, Unit};

/// A flag for every [`Limit`]; it overrides the limit in `oomscope.toml`.
#[derive(Debug)]
pub(super) struct LimitArgs(pub(super) Limits);

fn flag(limit: Limit) -> Arg {
    let heading = match limit.unit() {
        _ if limit.needs_baseline() => "Growth",
        Unit::Ratio => "Limits on fragmentation (a RATIO is 0.3 or 30%)",
        _ => "Limits",
    };
    Arg::new(limit.key())
        .long(limit.key())
        .value_name(limit.unit().placeholder())
        .value_parser(move |text: &str| limit.unit().parse(text))
        .allow_hyphen_values(true)
        .help(help(limit))
        .help_heading(heading)
}

/// A limit of one figure has the figure's meaning as its help.
fn help(limit: Limit) -> &'static str {
    match limit.key() {
        "max-growth" => "Growth of the peak of allocated or reserved memory over the baseline",
        "max-growth-ratio" => "Growth of the peak of allocated or reserved memory, relative to the baseline",
        _ => {
            let meaning = limit.meanings().next();
            debug_assert!(meaning.is_some(), "every limit is of a figure");
            meaning.unwrap_or_default()
        }
    }
}

impl Args for LimitArgs {
    fn augment_args(command: Command) -> Command {
        command.args(Limit::all().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let limits = Limit::all().filter_map(|limit| Some((limit, *matches.get_one::<Amount>(limit.key())?)));
        Ok(Self(limits.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_several_figures_has_a_help_of_its_own() {
        for limit in Limit::all().filter(|limit| limit.meanings().count() > 1) {
            assert!(!limit.meanings().any(|meaning| meaning == help(limit)), "{}", limit.key());
        }
    }
}
