//! Which limits apply to which device of which snapshot.

use std::fmt;

use glob::{MatchOptions, Pattern};

use super::limits::{Limit, Limits};

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
        let matches_path = |pattern: &Pattern| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let text = if pattern.as_str().contains('/') { path } else { name };
            pattern.matches_with(text, options)
        };
        self.path.as_ref().is_none_or(matches_path) && self.device.is_none_or(|only| only == device)
    }
}

/// The conditions, as in `oomscope.toml`.
impl fmt::Display for LimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_ref().map(|path| format!("path = \"{path}\""));
        let device = self.device.map(|device| format!("device = {device}"));
        let conditions: Vec<String> = path.into_iter().chain(device).collect();
        f.write_str(&conditions.join(", "))
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
            limits[0].overlay(&rule.fail);
            limits[1].overlay(&rule.warn);
        }
        limits
    }

    /// The rules for some snapshots or devices that match none of `checked`.
    pub fn unmatched<'r>(&'r self, checked: &'r [(&'r str, u64)]) -> impl Iterator<Item = &'r LimitRule> {
        self.0.iter().filter(|rule| !checked.iter().any(|(path, device)| rule.matches(path, *device)))
    }

    /// Every limit that some rule sets.
    pub fn set_limits(&self) -> impl Iterator<Item = Limit> + '_ {
        self.0.iter().flat_map(|rule| rule.fail.iter().chain(rule.warn.iter())).map(|(limit, _)| limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::figures::Amount;

    #[test]
    fn stars_stay_within_a_directory() {
        let mut fail = Limits::default();
        fail.set(Limit::with_key("max-ooms").unwrap(), Amount::Count(1));
        let path = Some(Pattern::new("a/*.pickle").unwrap());
        let rules = LimitRules::new(vec![LimitRule { path, fail, ..LimitRule::default() }]);
        let applies = |path| !rules.limits(path, 0)[0].is_empty();
        assert!(applies("a/b.pickle") && applies("./a/b.pickle"));
        assert!(!applies("a/b/c.pickle") && !applies("b.pickle") && !applies("x/a/b.pickle"));
    }
}
