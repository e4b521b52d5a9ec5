//! Limits: maximums of figures.

use itertools::Itertools as _;
use std::collections::BTreeMap;
use std::fmt;

use glob::{MatchOptions, Pattern};

use crate::study::figures::{Amount, Figure, FigureLimit, Unit};

/// Growth of the peaks over an entry of a baseline that passes without a limit.
const MAX_GROWTH_RATIO: f64 = 0.01;
/// Growth per step in bytes, beyond that of the entry, that passes without a limit.
const MAX_MORE_STEP_GROWTH: i128 = 1 << 20;

/// A flag of `oomscope check` and key of `oomscope.toml`. It limits all figures of the catalogue with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit {
    first: Figure,
    key: &'static str,
}

impl Limit {
    /// All limits, in the order of their findings.
    pub fn all() -> impl Iterator<Item = Self> {
        let limits = Figure::ALL.iter().filter_map(|f| Some(Self { first: *f, key: f.limit()?.key }));
        limits.filter(|limit| limit.figures().next() == Some(limit.first))
    }

    /// The limit with this key.
    pub fn with_key(key: &str) -> Option<Self> {
        Self::all().find(|limit| limit.key == key)
    }

    /// The figures that it limits.
    pub fn figures(self) -> impl Iterator<Item = Figure> {
        self.rows().map(|(figure, _)| figure)
    }

    /// The figures with their rows of the catalogue.
    fn rows(self) -> impl Iterator<Item = (Figure, FigureLimit)> {
        let rows = Figure::ALL.iter().filter_map(|figure| Some((*figure, figure.limit()?)));
        rows.filter(move |(_, row)| row.key == self.key)
    }

    /// The key in `oomscope.toml`; the flag without `--`.
    pub fn key(self) -> &'static str {
        self.key
    }

    /// A phrase for each figure that it limits.
    pub fn meanings(self) -> impl Iterator<Item = &'static str> {
        self.rows().map(|(_, row)| row.meaning)
    }

    /// The lines of an example `oomscope.toml` that explain and set it.
    pub fn example(self) -> String {
        let mut lines: Vec<String> = self.meanings().map(|text| format!("# {text}\n")).collect();
        lines.extend(self.first.limit().map(|row| format!("{} = {}\n", row.key, row.example)));
        lines.concat()
    }

    /// Whether it compares with a baseline.
    pub fn needs_baseline(self) -> bool {
        self.first.needs_baseline()
    }

    /// The unit of its value.
    pub fn unit(self) -> Unit {
        self.first.unit()
    }
}

/// Maximums by limit, each in the limit's unit.
pub type Limits = BTreeMap<Limit, Amount>;

/// Adds the limits that apply to an entry of a baseline, unless others of the kind are set. Memory grew by `step_growth`
/// bytes a step before.
pub(super) fn add_defaults_for_entry(limits: &mut Limits, step_growth: u64) {
    if !limits.keys().any(|limit| limit.needs_baseline())
        && let Some(limit) = Limit::with_key("max-growth-ratio")
    {
        limits.insert(limit, Amount::Ratio(MAX_GROWTH_RATIO));
    }
    if let Some(limit) = Limit::with_key("max-step-growth") {
        limits.entry(limit).or_insert_with(|| Amount::Bytes(i128::from(step_growth) + MAX_MORE_STEP_GROWTH));
    }
}

/// Limits for the snapshots and devices that match.
#[derive(Debug, Clone, Default)]
pub struct LimitRule {
    /// The snapshot's path, or its file name if the pattern has no `/`; `None` matches every snapshot.
    pub path: Option<Pattern>,
    /// The device; `None` matches every device.
    pub device: Option<u64>,
    /// Limits whose violation fails the check.
    pub fail: Limits,
    /// Limits whose violation is a warning.
    pub warn: Limits,
}

/// Rules in order: of those that match, the last wins, limit by limit.
#[derive(Debug, Clone, Default)]
pub struct LimitRules(Vec<LimitRule>);

impl LimitRule {
    fn matches(&self, path: &str, device: u64) -> bool {
        let path = path.trim_start_matches("./");
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        let matches_path = self.path.as_ref().is_none_or(|pattern| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let text = if pattern.as_str().contains('/') { path } else { name };
            pattern.matches_with(text, options)
        });
        matches_path && self.device.is_none_or(|only| only == device)
    }
}

/// The conditions, as in `oomscope.toml`.
impl fmt::Display for LimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_ref().map(|path| format!("path = \"{path}\""));
        let device = self.device.map(|device| format!("device = {device}"));
        write!(f, "{}", path.into_iter().chain(device).format(", "))
    }
}

impl LimitRules {
    /// Rules of which later ones override earlier ones.
    pub fn new(rules: Vec<LimitRule>) -> Self {
        Self(rules)
    }

    /// The limits for a device of the snapshot at `path`: those that fail the check, those that warn.
    pub fn limits(&self, path: &str, device: u64) -> [Limits; 2] {
        let mut limits = [Limits::default(), Limits::default()];
        for rule in self.0.iter().filter(|rule| rule.matches(path, device)) {
            limits[0].extend(&rule.fail);
            limits[1].extend(&rule.warn);
        }
        limits
    }

    /// The rules for some snapshots or devices that match none of `checked`.
    pub fn unmatched<'r>(&'r self, checked: &'r [(&'r str, u64)]) -> impl Iterator<Item = &'r LimitRule> {
        self.0.iter().filter(|rule| !checked.iter().any(|(path, device)| rule.matches(path, *device)))
    }

    /// Every limit that some rule sets.
    pub fn set_limits(&self) -> impl Iterator<Item = Limit> + '_ {
        self.0.iter().flat_map(|rule| rule.fail.keys().chain(rule.warn.keys())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::figures::Amount;

    #[test]
    fn stars_stay_within_a_directory() {
        let mut fail = Limits::default();
        fail.insert(Limit::with_key("max-ooms").unwrap(), Amount::Count(1));
        let path = Some(Pattern::new("a/*.pickle").unwrap());
        let rules = LimitRules::new(vec![LimitRule { path, fail, ..LimitRule::default() }]);
        let paths = ["a/b.pickle", "./a/b.pickle", "a/b/c.pickle", "b.pickle", "x/a/b.pickle"];
        let applies = paths.map(|path| !rules.limits(path, 0)[0].is_empty());
        assert_eq!(applies, [true, true, false, false, false]);
    }
}
