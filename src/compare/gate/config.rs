//! `oomscope.toml`: from its text to limits, for every snapshot and for some, and to categories of one's own.

use std::ops::Range;
use std::sync::LazyLock;

use glob::{MatchOptions, Pattern};
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::limits::{Limit, Limits};
use crate::study::held::Rule;

/// A configuration with every limit in it, and what it means.
pub static EXAMPLE: LazyLock<String> = LazyLock::new(|| {
    let limits: Vec<String> = Limit::all().map(Limit::explained).collect();
    include_str!("oomscope.toml").replace("# LIMITS\n", &limits.join("\n"))
});

/// Keys beside the limits: at the top, and under `[[override]]`.
const TOP: [&str; 4] = ["baseline", "warn", "override", "category"];
const OVERRIDE: [&str; 3] = ["path", "device", "warn"];
/// Keys under `[[category]]`.
const CATEGORY: [&str; 4] = ["name", "file", "function", "annotation"];

/// Words are taken for misspelt ones if they are more alike than this (1: the same).
const LIKE: f64 = 0.8;

/// What is wrong with a configuration.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{line}: {message}")]
pub struct ConfigError {
    /// The line, from 1.
    pub line: usize,
    /// One sentence.
    pub message: String,
}

/// What a file asks for.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// What to compare with, as written: relative to the file.
    pub baseline: Option<String>,
    /// Categories of memory beside those that are built in; the first that fits counts.
    pub categories: Vec<Rule>,
    /// The limits for all come first; of those that apply the last wins.
    rules: Vec<RuleTable>,
}

#[derive(Debug, Clone, Default)]
struct RuleTable {
    path: Option<Pattern>,
    device: Option<u64>,
    fail: Limits,
    warn: Limits,
}

impl RuleTable {
    fn applies_to(&self, path: &str, device: u64) -> bool {
        let path = path.trim_start_matches("./");
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        let fits = |pattern: &Pattern| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let text = if pattern.as_str().contains('/') { path } else { name };
            pattern.matches_with(text, options)
        };
        self.path.as_ref().is_none_or(fits) && self.device.is_none_or(|only| only == device)
    }
}

impl Config {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is not understood, or that contradicts another.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let reader = TomlReader { text };
        let table = DeTable::parse(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            reader.error(&error.span().unwrap_or_default(), message)
        })?;
        let table = table.get_ref();
        let mut config = Self { rules: vec![reader.rule(table, &TOP)?], ..Self::default() };
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "baseline" => config.baseline = Some(reader.string("baseline", value)?.to_owned()),
                "override" => {
                    for one in reader.tables("override", value)? {
                        config.rules.push(reader.particular_rule(one)?);
                    }
                }
                "category" => {
                    for one in reader.tables("category", value)? {
                        config.categories.push(reader.category(one)?);
                    }
                }
                _ => {}
            }
        }
        Ok(config)
    }

    /// The limits for a device of the snapshot at `path`: those that fail the gate, those that warn.
    pub fn limits(&self, path: &str, device: u64) -> [Limits; 2] {
        let mut limits = [Limits::default(), Limits::default()];
        for rule in self.rules.iter().filter(|rule| rule.applies_to(path, device)) {
            limits[0].overlay(&rule.fail);
            limits[1].overlay(&rule.warn);
        }
        limits
    }

    /// Every limit that is set somewhere.
    pub fn set_limits(&self) -> impl Iterator<Item = Limit> + '_ {
        let of_rule = |rule: &RuleTable| {
            let set: Vec<_> = rule.fail.iter().chain(rule.warn.iter()).map(|(t, _)| t).collect();
            set
        };
        self.rules.iter().flat_map(of_rule)
    }
}

type TomlValue<'a> = Spanned<DeValue<'a>>;

struct TomlReader<'a> {
    text: &'a str,
}

impl TomlReader<'_> {
    fn error(&self, span: &Range<usize>, message: String) -> ConfigError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        ConfigError { line: before.matches('\n').count() + 1, message }
    }

    fn string<'v>(&self, key: &str, value: &'v TomlValue<'_>) -> Result<&'v str, ConfigError> {
        let wrong = || self.error(&value.span(), format!("{key} is a string in quotes"));
        value.get_ref().as_str().ok_or_else(wrong)
    }

    fn tables<'v, 'i>(
        &self,
        key: &str,
        value: &'v TomlValue<'i>,
    ) -> Result<Vec<&'v TomlValue<'i>>, ConfigError> {
        let wrong = || self.error(&value.span(), format!("write [[{key}]], in two brackets"));
        let array = value.get_ref().as_array().ok_or_else(wrong)?;
        let tables: Vec<_> = array.iter().filter(|one| one.get_ref().is_table()).collect();
        if tables.len() < array.len() { Err(wrong()) } else { Ok(tables) }
    }

    /// The limits of a table, in which `others` may stand too.
    fn rule(&self, table: &DeTable<'_>, others: &[&str]) -> Result<RuleTable, ConfigError> {
        let mut rule = RuleTable { fail: self.limits(table, others)?, ..RuleTable::default() };
        let Some(value) = table.get("warn") else { return Ok(rule) };
        let Some(warn) = value.get_ref().as_table() else {
            let message = "warn is a table of limits: write [warn] and limits below it";
            return Err(self.error(&value.span(), message.to_owned()));
        };
        rule.warn = self.limits(warn, &[])?;
        for (limit, warns) in rule.warn.iter() {
            if let Some(fails) = rule.fail.get(limit).filter(|fails| warns >= *fails) {
                let key = limit.key();
                return Err(self.error(
                    &warn.get(key).map(Spanned::span).unwrap_or_default(),
                    format!(
                        "the warning at {key} {warns} is never reached: the check already fails at \
                         {fails}"
                    ),
                ));
            }
        }
        Ok(rule)
    }

    fn limits(&self, table: &DeTable<'_>, others: &[&str]) -> Result<Limits, ConfigError> {
        let mut limits = Limits::default();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if others.contains(&name) {
                continue;
            }
            let Some(limit) = Limit::of_key(name) else {
                return Err(self.error(&key.span(), unknown(name, others)));
            };
            let text = match value.get_ref() {
                DeValue::String(text) => text.as_ref(),
                DeValue::Float(number) => number.as_str(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
                _ => "",
            };
            let most = if text.is_empty() {
                Err("expected a number, or a string in quotes".to_owned())
            } else {
                limit.unit().read(text)
            };
            let most = most.map_err(|e| self.error(&value.span(), format!("{name}: {e}")))?;
            limits.set(limit, most);
        }
        Ok(limits)
    }

    fn pattern(&self, table: &DeTable<'_>, key: &str) -> Result<Option<Pattern>, ConfigError> {
        let Some(value) = table.get(key) else { return Ok(None) };
        let wrong = |e: glob::PatternError| self.error(&value.span(), format!("{key}: {}", e.msg));
        Pattern::new(self.string(key, value)?).map(Some).map_err(wrong)
    }

    /// A `[[category]]`.
    fn category(&self, value: &TomlValue<'_>) -> Result<Rule, ConfigError> {
        let wrong = |message: &str| Err(self.error(&value.span(), message.to_owned()));
        let Some(table) = value.get_ref().as_table() else { return Ok(Rule::default()) };
        for key in table.keys() {
            if !CATEGORY.contains(&key.get_ref().as_ref()) {
                let message = format!(
                    "unknown key {}; a [[category]] has {}",
                    key.get_ref(),
                    CATEGORY.join(", ")
                );
                return Err(self.error(&key.span(), message));
            }
        }
        let name = table.get("name").map(|name| self.string("name", name)).transpose()?;
        let rule = Rule {
            name: name.unwrap_or_default().trim().to_owned(),
            file: self.pattern(table, "file")?,
            function: self.pattern(table, "function")?,
            annotation: self.pattern(table, "annotation")?,
        };
        if rule.name.is_empty() {
            return wrong("a [[category]] has a name");
        }
        if rule.file.is_none() && rule.function.is_none() && rule.annotation.is_none() {
            return wrong("a [[category]] has a file, a function or an annotation to match");
        }
        Ok(rule)
    }

    /// An `[[override]]`.
    fn particular_rule(&self, value: &TomlValue<'_>) -> Result<RuleTable, ConfigError> {
        let wrong = |span: Range<usize>, message: String| Err(self.error(&span, message));
        let Some(table) = value.get_ref().as_table() else { return Ok(RuleTable::default()) };
        let mut rule = self.rule(table, &OVERRIDE)?;
        rule.path = self.pattern(table, "path")?;
        if let Some(device) = table.get("device") {
            let number = device.get_ref().as_integer().map(toml::de::DeInteger::as_str);
            match number.map(str::parse) {
                Some(Ok(number)) => rule.device = Some(number),
                _ => return wrong(device.span(), "device is a number such as 0".to_owned()),
            }
        }
        if rule.path.is_none() && rule.device.is_none() {
            let message = "an [[override]] names a path, a device, or both".to_owned();
            return wrong(value.span(), message);
        }
        if rule.fail.is_empty() && rule.warn.is_empty() {
            return wrong(value.span(), "this [[override]] sets no limit".to_owned());
        }
        Ok(rule)
    }
}

/// Names the nearest key, if one is near.
fn unknown(name: &str, others: &[&str]) -> String {
    if name == "baseline" {
        return "baseline stands at the top of the file, before the first [table]".to_owned();
    }
    let keys = Limit::all().map(|limit| -> &str { limit.key() }).chain(others.iter().copied());
    // Every limit begins alike, which says nothing; nor do case and what is between the words.
    let rest = |key: &str| {
        let key = key.to_ascii_lowercase().replace(['_', '-'], "");
        key.trim_start_matches("max").to_owned()
    };
    let near = keys.map(|key| (strsim::jaro_winkler(&rest(name), &rest(key)), key));
    match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, key)) if likeness > LIKE => {
            format!("unknown key {name}; did you mean {key}?")
        }
        _ => format!("unknown key {name}; `oomscope check --print-config` shows all of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::figures::Amount;

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_example_is_read_and_has_every_key() {
        let config = Config::parse(&EXAMPLE).unwrap();
        let [fail, warn] = config.limits("ranks/rank_1.pickle", 0);
        assert!(Limit::all().all(|limit| fail.get(limit).is_some()));
        let gap_ratio = Limit::of_key("max-gap-ratio").unwrap();
        let peak_reserved = Limit::of_key("max-peak-reserved").unwrap();
        assert_eq!(warn.get(gap_ratio), Some(Amount::Ratio(0.2)));
        assert_eq!(config.baseline.as_deref(), Some("memory-baseline.json"));
        let [fail, _] = config.limits("ranks/rank_0.pickle", 0);
        assert_eq!(fail.get(peak_reserved), Some(Amount::Bytes(76 << 30)));
        let [fail, warn] = config.limits("nightly/a/b.pickle", 1);
        assert_eq!(fail.get(gap_ratio), Some(Amount::Ratio(0.4)));
        assert_eq!(warn.get(gap_ratio), Some(Amount::Ratio(0.35)));
        let [fail, _] = config.limits("nightly/a/b.pickle", 0);
        assert_eq!(fail.get(gap_ratio), Some(Amount::Ratio(0.3)));
    }

    #[test]
    fn stars_stay_within_a_directory() {
        let text = "[[override]]\npath = 'a/*.pickle'\nmax-ooms = 1\n";
        let config = Config::parse(text).unwrap();
        let applies = |path| !config.limits(path, 0)[0].is_empty();
        assert!(applies("a/b.pickle") && applies("./a/b.pickle"));
        assert!(!applies("a/b/c.pickle") && !applies("b.pickle") && !applies("x/a/b.pickle"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, said) in [
            ("\nmax-gap = 0.1", "2: unknown key max-gap; did you mean max-gap-ratio?"),
            ("max-gap-ration = 0.1", "1: unknown key max-gap-ration; did you mean max-gap-ratio?"),
            ("gap-ratio = 0.1", "1: unknown key gap-ratio; did you mean max-gap-ratio?"),
            ("max_ooms = 1", "1: unknown key max_ooms; did you mean max-ooms?"),
            ("maxGapRatio = 0.1", "1: unknown key maxGapRatio; did you mean max-gap-ratio?"),
            ("[warn]\nbaseline = 'x'", "2: baseline stands at the top of the file, before the"),
            ("max-reserved = 1.5", "1: max-reserved: '1.5' is not a size"),
            ("basline = 'x'", "1: unknown key basline; did you mean baseline?"),
            ("[warn]\npath = 'x'", "2: unknown key path; `oomscope check --print-config` shows"),
            ("colour = 'blue'", "1: unknown key colour; `oomscope check --print-config` shows"),
            ("max-gap-ratio = 30", "1: max-gap-ratio: '30' is not a ratio from 0 to 1"),
            ("max-gap-ratio = nan", "1: max-gap-ratio: 'nan' is not a ratio"),
            ("max-gap-ratio = -0.5", "1: max-gap-ratio: '-0.5' is not a ratio"),
            ("max-gap-ratio = true", "1: max-gap-ratio: expected a number, or a string"),
            ("max-ooms = '1GiB'", "1: max-ooms: '1GiB' is not a count"),
            ("max-reserved = 'much'", "1: max-reserved: 'much' is not a size"),
            ("max-ooms = 0\nmax-ooms = 1", "2: duplicate key"),
            ("max-ooms = ", "1: "),
            ("max-ooms = 1\n[warn]\nmax-ooms = 1", "3: the warning at max-ooms 1 is never reached"),
            ("baseline = 3", "1: baseline is a string"),
            ("warn = 3", "1: warn is a table of limits"),
            ("[override]\npath = 'x'", "1: write [[override]]"),
            ("[[category]]\nfile = 'a'", "1: a [[category]] has a name"),
            ("[[category]]\nname = 'a'", "1: a [[category]] has a file, a function or an"),
            ("[[category]]\nname = 'a'\nfile = 'a['", "3: file: "),
            (
                "[[category]]\nname = 'a'\nfiel = 'a'",
                "3: unknown key fiel; a [[category]] has name",
            ),
            ("category = 1", "1: write [[category]], in two brackets"),
            ("override = [1]", "1: write [[override]]"),
            ("\n[[override]]\nmax-ooms = 0", "2: an [[override]] names a path"),
            ("[[override]]\ndevice = 0", "1: this [[override]] sets no limit"),
            ("[[override]]\ndevice = -1\nmax-ooms = 0", "2: device is a number"),
            ("[[override]]\npath = 'a['\nmax-ooms = 0", "2: path: "),
            ("[[override]]\npth = 'a'\nmax-ooms = 0", "2: unknown key pth; did you mean path?"),
        ] {
            let error = refused(text);
            assert!(error.starts_with(said), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
