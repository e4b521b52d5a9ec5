//! Finds and parses `oomscope.toml`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context as _, anyhow};
use glob::Pattern;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use thiserror::Error;

use crate::base::input::read_text_file;
use crate::compare::gate::{Limit, LimitRule, LimitRules, Limits};
use crate::study::attribution::CategoryRule;
use crate::study::figures::Amount;

pub(super) const CONFIG: &str = "oomscope.toml";

/// An example of a configuration, with every key explained.
pub static EXAMPLE: LazyLock<String> = LazyLock::new(|| {
    let limits: Vec<String> = Limit::all().map(Limit::example).collect();
    include_str!("oomscope.toml").replace("# LIMITS\n", &limits.join("\n"))
});

/// Keys other than limits: at the top, and in `[[override]]`.
const TOP_KEYS: &[&str] = &["baseline", "warn", "override", "category"];
const OVERRIDE_KEYS: &[&str] = &["path", "device", "warn"];

/// A known key is suggested for an unknown one if they are at least this similar (1: equal).
const MIN_SIMILARITY: f64 = 0.8;

/// An error in a configuration.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{line}: {message}")]
pub struct ConfigError {
    /// Line number, from 1.
    pub line: usize,
    pub message: String,
}

/// The contents of `oomscope.toml`.
#[derive(Debug, Default)]
pub struct Config {
    /// Path of the baseline, relative to the configuration's directory.
    pub baseline: Option<String>,
    /// The user's categories of memory; the first that matches a block applies.
    pub categories: Vec<CategoryRule>,
    /// The limits of `oomscope check`.
    pub limits: LimitRules,
}

impl Config {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Returns the first line that is invalid or contradicts another.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let parsed = toml::Deserializer::parse(text).and_then(|toml| SectionSeed::TOP.deserialize(toml));
        let top = parsed.map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.get(..start).unwrap_or(text);
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            ConfigError { line: before.matches('\n').count() + 1, message }
        })?;
        let Section { rule, baseline, overrides, categories } = top;
        let limits = LimitRules::new([vec![rule], overrides].concat());
        Ok(Self { baseline, categories, limits })
    }

    /// Reads `path`, or else the nearest `oomscope.toml` in the working directory and its parents. Also returns the
    /// path.
    pub(super) fn load(path: Option<&Path>) -> anyhow::Result<(Self, Option<PathBuf>)> {
        let Some(path) = path.map(Path::to_owned).or_else(search) else {
            // A configuration file is optional.
            return Ok((Self::default(), None));
        };
        let shown = path.display();
        let text = read_text_file(&path).with_context(|| format!("{shown}: cannot be read"))?;
        let config = Self::parse(&text).map_err(|error| anyhow!("{shown}:{error}"))?;
        Ok((config, Some(path)))
    }
}

/// The first of `oomscope.toml`, `../oomscope.toml`, `../../oomscope.toml`, .. that exists.
fn search() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let up = |levels: usize| (0..levels).map(|_| "..").collect::<PathBuf>().join(CONFIG);
    (0..here.ancestors().count()).map(up).find(|path| path.is_file())
}

/// A table of limits, with the other keys that some tables have.
#[derive(Default)]
struct Section {
    rule: LimitRule,
    baseline: Option<String>,
    overrides: Vec<LimitRule>,
    categories: Vec<CategoryRule>,
}

/// Deserializes a [`Section`]: the limits are rows of the catalogue of figures, not fields, so this cannot be derived.
#[derive(Clone, Copy)]
struct SectionSeed<'s> {
    expected: &'static str,
    /// Allowed keys other than limits.
    others: &'static [&'static str],
    /// For a table of warnings: the limits that fail the check.
    failing: Option<&'s Limits>,
}

impl SectionSeed<'_> {
    const TOP: Self = Self { expected: "a configuration", others: TOP_KEYS, failing: None };
    const OVERRIDE: Self = Self { expected: "a table [[override]]", others: OVERRIDE_KEYS, failing: None };
}

impl<'de> DeserializeSeed<'de> for SectionSeed<'_> {
    type Value = Section;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Section, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SectionSeed<'_> {
    type Value = Section;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Section, A::Error> {
        let mut section = Section::default();
        // Keys arrive sorted, so the limits (`max-..`) are known before `warn`.
        while let Some(key) = map.next_key_seed(KeySeed { others: self.others })? {
            let rule = &mut section.rule;
            match key {
                Key::Limit(limit) => {
                    let amount = map.next_value_seed(AmountSeed { limit, failing: self.failing })?;
                    rule.fail.set(limit, amount);
                }
                Key::Other("baseline") => section.baseline = Some(map.next_value()?),
                Key::Other("path") => rule.path = Some(map.next_value::<Glob>()?.0),
                Key::Other("device") => rule.device = Some(map.next_value()?),
                Key::Other("warn") => {
                    let expected = "a table of limits: [warn] and limits below it";
                    let failing = Some(&rule.fail);
                    let warn = SectionSeed { expected, others: &[], failing };
                    rule.warn = map.next_value_seed(warn)?.rule.fail;
                }
                Key::Other("override") => {
                    section.overrides = map.next_value_seed(Tables("override", OverrideSeed))?;
                }
                Key::Other(_) => {
                    let categories = Tables("category", std::marker::PhantomData::<Category>);
                    let categories = map.next_value_seed(categories)?;
                    section.categories = categories.into_iter().map(|category| category.0).collect();
                }
            }
        }
        Ok(section)
    }
}

/// Deserializes an `[[override]]`.
#[derive(Clone, Copy)]
struct OverrideSeed;

impl<'de> DeserializeSeed<'de> for OverrideSeed {
    type Value = LimitRule;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LimitRule, D::Error> {
        let rule = SectionSeed::OVERRIDE.deserialize(deserializer)?.rule;
        if rule.path.is_none() && rule.device.is_none() {
            return Err(D::Error::custom("an [[override]] needs a path, a device, or both"));
        }
        if rule.fail.is_empty() && rule.warn.is_empty() {
            return Err(D::Error::custom("this [[override]] sets no limit"));
        }
        Ok(rule)
    }
}

/// An array of tables with this name.
struct Tables<S>(&'static str, S);

impl<'de, S: DeserializeSeed<'de> + Copy> DeserializeSeed<'de> for Tables<S> {
    type Value = Vec<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, S: DeserializeSeed<'de> + Copy> Visitor<'de> for Tables<S> {
    type Value = Vec<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tables headed [[{}]], in two brackets", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> Result<Self::Value, A::Error> {
        std::iter::from_fn(|| tables.next_element_seed(self.1).transpose()).collect()
    }
}

enum Key {
    Limit(Limit),
    Other(&'static str),
}

struct KeySeed {
    others: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        let key = String::deserialize(deserializer)?;
        let other = self.others.iter().find(|other| **other == key);
        let other = other.copied().map(Key::Other);
        let key = other.or_else(|| Limit::with_key(&key).map(Key::Limit)).ok_or(key);
        key.map_err(|key| D::Error::custom(unknown_key(&key, self.others)))
    }
}

/// Deserializes the value of a limit: a number, or a string with a unit.
struct AmountSeed<'s> {
    limit: Limit,
    failing: Option<&'s Limits>,
}

impl<'de> DeserializeSeed<'de> for AmountSeed<'_> {
    type Value = Amount;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Amount, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for AmountSeed<'_> {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a string in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
        let key = self.limit.key();
        let amount = self.limit.unit().parse(text).map_err(|e| E::custom(format!("{key}: {e}")))?;
        match self.failing.and_then(|failing| failing.get(self.limit)) {
            Some(fails) if amount >= fails => Err(E::custom(format!(
                "the warning at {key} {amount} is never reached: the check already fails at {fails}"
            ))),
            _ => Ok(amount),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }
}

/// A `[[category]]`.
#[derive(Deserialize)]
#[serde(try_from = "CategoryKeys")]
struct Category(CategoryRule);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CategoryKeys {
    #[serde(default)]
    name: String,
    file: Option<Glob>,
    function: Option<Glob>,
    annotation: Option<Glob>,
}

impl TryFrom<CategoryKeys> for Category {
    type Error = &'static str;

    fn try_from(keys: CategoryKeys) -> Result<Self, Self::Error> {
        let [file, function, annotation] =
            [keys.file, keys.function, keys.annotation].map(|glob| glob.map(|glob| glob.0));
        let name = keys.name.trim().to_owned();
        if name.is_empty() {
            return Err("a [[category]] needs a name");
        }
        if file.is_none() && function.is_none() && annotation.is_none() {
            return Err("a [[category]] needs a file, a function or an annotation to match");
        }
        Ok(Self(CategoryRule { name, file, function, annotation }))
    }
}

/// A glob pattern in quotes.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Glob(Pattern);

impl TryFrom<String> for Glob {
    type Error = glob::PatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Pattern::new(&text).map(Self)
    }
}

/// The message for an unknown key, with the most similar known one.
fn unknown_key(name: &str, others: &[&str]) -> String {
    if name == "baseline" {
        return "baseline belongs at the top of the file, before the first [table]".to_owned();
    }
    let keys = Limit::all().map(|limit| -> &str { limit.key() }).chain(others.iter().copied());
    // The prefix of all limits, case and separators do not distinguish keys.
    let normalized = |key: &str| {
        let key = key.to_ascii_lowercase().replace(['_', '-'], "");
        key.trim_start_matches("max").to_owned()
    };
    let similar = keys.map(|key| (strsim::jaro_winkler(&normalized(name), &normalized(key)), key));
    match similar.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((similarity, key)) if similarity > MIN_SIMILARITY => {
            format!("unknown key {name}; did you mean {key}?")
        }
        _ => format!("unknown key {name}; `oomscope check --print-config` shows all of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_read_and_has_every_key() {
        let config = Config::parse(&EXAMPLE).unwrap();
        let limits = |path, device| config.limits.limits(path, device);
        let [fail, warn] = limits("ranks/rank_1.pickle", 0);
        assert!(Limit::all().all(|limit| fail.get(limit).is_some()));
        let gap_ratio = Limit::with_key("max-gap-ratio").unwrap();
        let peak_reserved = Limit::with_key("max-peak-reserved").unwrap();
        assert_eq!(warn.get(gap_ratio), Some(Amount::Ratio(0.2)));
        assert_eq!(config.baseline.as_deref(), Some("memory-baseline.json"));
        assert_eq!(config.categories.len(), 2);
        let [fail, _] = limits("ranks/rank_0.pickle", 0);
        assert_eq!(fail.get(peak_reserved), Some(Amount::Bytes(76 << 30)));
        let [fail, warn] = limits("nightly/a/b.pickle", 1);
        assert_eq!(fail.get(gap_ratio), Some(Amount::Ratio(0.4)));
        assert_eq!(warn.get(gap_ratio), Some(Amount::Ratio(0.35)));
        let [fail, _] = limits("nightly/a/b.pickle", 0);
        assert_eq!(fail.get(gap_ratio), Some(Amount::Ratio(0.3)));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("\nmax-gap = 0.1", "2: unknown key max-gap; did you mean max-gap-ratio?"),
            ("max-gap-ration = 0.1", "1: unknown key max-gap-ration; did you mean max-gap-ratio?"),
            ("gap-ratio = 0.1", "1: unknown key gap-ratio; did you mean max-gap-ratio?"),
            ("max_ooms = 1", "1: unknown key max_ooms; did you mean max-ooms?"),
            ("maxGapRatio = 0.1", "1: unknown key maxGapRatio; did you mean max-gap-ratio?"),
            ("[warn]\nbaseline = 'x'", "2: baseline belongs at the top of the file, before the"),
            ("max-reserved = 1.5", "1: max-reserved: '1.5' is not a size"),
            ("basline = 'x'", "1: unknown key basline; did you mean baseline?"),
            ("[warn]\npath = 'x'", "2: unknown key path; `oomscope check --print-config` shows"),
            ("colour = 'blue'", "1: unknown key colour; `oomscope check --print-config` shows"),
            ("max-gap-ratio = 30", "1: max-gap-ratio: '30' is not a ratio from 0 to 1"),
            ("max-gap-ratio = nan", "1: max-gap-ratio: 'NaN' is not a ratio"),
            ("max-gap-ratio = -0.5", "1: max-gap-ratio: '-0.5' is not a ratio"),
            ("\nmax-gap-ratio = true", "2: invalid type: boolean `true`, expected a number, or a string in"),
            ("max-ooms = '1GiB'", "1: max-ooms: '1GiB' is not a count"),
            ("max-reserved = 'much'", "1: max-reserved: 'much' is not a size"),
            ("max-ooms = 0\nmax-ooms = 1", "2: duplicate key"),
            ("max-ooms = ", "1: "),
            ("max-ooms = 1\n[warn]\nmax-ooms = 1", "3: the warning at max-ooms 1 is never reached"),
            ("warn.max-ooms = 1\nmax-ooms = 1", "1: the warning at max-ooms 1 is never reached"),
            ("\nbaseline = 3", "2: invalid type: integer `3`, expected a string"),
            ("\nwarn = 3", "2: invalid type: integer `3`, expected a table of limits: [warn]"),
            ("[override]\npath = 'x'", "1: invalid type: map, expected tables headed [[override]]"),
            ("[[category]]\nfile = 'a'", "1: a [[category]] needs a name"),
            ("[[category]]\nname = 'a'", "1: a [[category]] needs a file, a function or an"),
            ("[[category]]\nname = 'a'\nfile = 'a['", "3: "),
            ("[[category]]\nname = 'a'\nfiel = 'a'", "3: unknown field `fiel`, expected one of `name`, `file`"),
            ("category = 1", "1: invalid type: integer `1`, expected tables headed [[category]]"),
            ("override = [1]", "1: invalid type: integer `1`, expected a table [[override]]"),
            ("\n[[override]]\nmax-ooms = 0", "2: an [[override]] needs a path"),
            ("[[override]]\ndevice = 0", "1: this [[override]] sets no limit"),
            ("[[override]]\ndevice = -1\nmax-ooms = 0", "2: invalid value: integer `-1`, expected u64"),
            ("[[override]]\npath = 'a['\nmax-ooms = 0", "2: "),
            ("[[override]]\npth = 'a'\nmax-ooms = 0", "2: unknown key pth; did you mean path?"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
