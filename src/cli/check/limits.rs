//! The limits as flags, made from the catalogue of figures.

use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id};

use crate::compare::gate::{Limit, Limits};
use crate::study::figures::Amount;

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
        .value_parser(move |text: &str| limit.unit().parse(text))
        .allow_hyphen_values(true)
        .help(limit.meanings().map(str::to_owned).reduce(|a, b| either(&a, &b)).unwrap_or_default())
        .help_heading(heading)
}

/// One sentence for two that differ in a word or a few.
fn either(a: &str, b: &str) -> String {
    let [a, b] = [a, b].map(|text| text.split(' ').collect::<Vec<_>>());
    let alike = |(a, b): &(&&str, &&str)| a == b;
    let before = a.iter().zip(&b).take_while(alike).count();
    let [rest_a, rest_b] = [&a[before..], &b[before..]];
    let after = rest_a.iter().rev().zip(rest_b.iter().rev()).take_while(alike).count();
    let [own_a, own_b] = [rest_a, rest_b].map(|rest| rest[..rest.len() - after].join(" "));
    let own = [own_a, "or".to_owned(), own_b];
    let words = a[..before].iter().copied().chain(own.iter().map(String::as_str));
    words.chain(a[a.len() - after..].iter().copied()).collect::<Vec<_>>().join(" ")
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
