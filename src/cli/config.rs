//! Finds and parses `oomscope.toml`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context as _, anyhow};
use glob::Pattern;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
    /// Parses the text of a file. The error names the first line that is invalid or contradicts another.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let top = DeTable::parse(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            Problem { span: error.span().unwrap_or_default(), message }.locate(text)
        })?;
        Self::read(top.get_ref()).map_err(|problem| problem.locate(text))
    }

    fn read(top: &DeTable<'_>) -> Read<Self> {
        let (rule, others) = read_rule(top, TOP_KEYS)?;
        let mut config = Self::default();
        let mut rules = vec![rule];
        for (key, value) in others {
            match key {
                "baseline" => config.baseline = Some(string(value)?.to_owned()),
                "override" => rules.extend(tables(key, value)?.map(read_override).collect::<Read<Vec<_>>>()?),
                _ => config.categories = tables(key, value)?.map(read_category).collect::<Read<_>>()?,
            }
        }
        config.limits = LimitRules::new(rules);
        Ok(config)
    }

    /// Reads `path`, or else the nearest `oomscope.toml` from the working directory up to the root of its repository. Also
    /// returns the path.
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

/// The first of `oomscope.toml`, `../oomscope.toml`, .. that exists, up to the root of the repository. Outside of one, only
/// that of the working directory: another user who may write to a directory above, such as `/tmp`, must not loosen limits.
fn search() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let to_root = here.ancestors().position(|directory| directory.join(".git").exists()).unwrap_or(0);
    (0..=to_root).map(|levels| (0..levels).map(|_| "..").collect::<PathBuf>().join(CONFIG)).find(|path| path.is_file())
}

type Value<'t> = Spanned<DeValue<'t>>;

/// A fault in a part of the text.
struct Problem {
    span: Range<usize>,
    message: String,
}

impl Problem {
    fn locate(self, text: &str) -> ConfigError {
        let before = text.get(..self.span.start).unwrap_or(text);
        ConfigError { line: before.matches('\n').count() + 1, message: self.message }
    }
}

type Read<T> = Result<T, Problem>;

fn problem<T>(span: Range<usize>, message: impl Into<String>) -> Read<T> {
    Err(Problem { span, message: message.into() })
}

/// The problem that `value` is something else than was `expected`.
fn expected<T>(value: &Value<'_>, expected: &str) -> Read<T> {
    problem(value.span(), format!("expected {expected}, not {}", value.get_ref().type_str()))
}

fn string<'t>(value: &'t Value<'_>) -> Read<&'t str> {
    value.get_ref().as_str().map_or_else(|| expected(value, "a string in quotes"), Ok)
}

fn glob(value: &Value<'_>) -> Read<Pattern> {
    Pattern::new(string(value)?).or_else(|error| problem(value.span(), error.to_string()))
}

fn table<'t, 'a>(value: &'t Value<'a>, what: &str) -> Read<&'t DeTable<'a>> {
    value.get_ref().as_table().map_or_else(|| expected(value, what), Ok)
}

/// The tables headed `[[name]]`.
fn tables<'t, 'a>(name: &str, value: &'t Value<'a>) -> Read<impl Iterator<Item = &'t Value<'a>> + use<'t, 'a>> {
    let all = value.get_ref().as_array();
    all.map_or_else(|| expected(value, &format!("tables headed [[{name}]], in two brackets")), |all| Ok(all.iter()))
}

/// The limits in `table`, and its values of the `other_keys`. A warning at what the check is `failing` at is refused.
fn read_limits<'t, 'a>(
    table: &'t DeTable<'a>,
    other_keys: &[&str],
    failing: Option<&Limits>,
) -> Read<(Limits, Vec<(&'t str, &'t Value<'a>)>)> {
    let (mut limits, mut others) = (Limits::default(), Vec::new());
    for (key, value) in table {
        match Limit::with_key(key.get_ref()) {
            Some(limit) => {
                limits.insert(limit, read_amount(limit, value, failing)?);
            }
            None if other_keys.contains(&&**key.get_ref()) => others.push((&**key.get_ref(), value)),
            None => return problem(key.span(), unknown_key(key.get_ref(), other_keys)),
        }
    }
    Ok((limits, others))
}

/// The limits in `table` with those that only warn, and its other values.
fn read_rule<'t, 'a>(table: &'t DeTable<'a>, other_keys: &[&str]) -> Read<(LimitRule, Vec<(&'t str, &'t Value<'a>)>)> {
    let (fail, mut others) = read_limits(table, other_keys, None)?;
    let mut rule = LimitRule { fail, ..LimitRule::default() };
    if let Some(at) = others.iter().position(|(key, _)| *key == "warn") {
        let warn = self::table(others.remove(at).1, "a table of limits: [warn] and limits below it")?;
        rule.warn = read_limits(warn, &[], Some(&rule.fail))?.0;
    }
    Ok((rule, others))
}

fn read_override(value: &Value<'_>) -> Read<LimitRule> {
    let (mut rule, others) = read_rule(table(value, "a table [[override]]")?, OVERRIDE_KEYS)?;
    for (key, value) in others {
        if key == "path" {
            rule.path = Some(glob(value)?);
        } else {
            let device = integer(value.get_ref()).and_then(|number| number.try_into().ok());
            rule.device = Some(device.map_or_else(|| expected(value, "the number of a device"), Ok)?);
        }
    }
    if rule.path.is_none() && rule.device.is_none() {
        return problem(value.span(), "an [[override]] needs a path, a device, or both");
    }
    if rule.fail.is_empty() && rule.warn.is_empty() {
        return problem(value.span(), "this [[override]] sets no limit");
    }
    Ok(rule)
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    value.as_integer().and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok())
}

/// The value of a limit: a number, or a string with a unit.
fn read_amount(limit: Limit, value: &Value<'_>, failing: Option<&Limits>) -> Read<Amount> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        other => match integer(other) {
            Some(number) => number.to_string(),
            None => return expected(value, "a number, or a string in quotes"),
        },
    };
    let key = limit.key();
    let amount = limit.unit().parse(&text).or_else(|error| problem(value.span(), format!("{key}: {error}")))?;
    match failing.and_then(|failing| failing.get(&limit)) {
        Some(fails) if amount >= *fails => problem(
            value.span(),
            format!("the warning at {key} {amount} is never reached: the check already fails at {fails}"),
        ),
        _ => Ok(amount),
    }
}

fn read_category(value: &Value<'_>) -> Read<CategoryRule> {
    let mut rule = CategoryRule { name: String::new(), file: None, function: None, annotation: None };
    for (key, value) in table(value, "a table [[category]]")? {
        match &**key.get_ref() {
            "name" => string(value)?.trim().clone_into(&mut rule.name),
            "file" => rule.file = Some(glob(value)?),
            "function" => rule.function = Some(glob(value)?),
            "annotation" => rule.annotation = Some(glob(value)?),
            _ => return problem(key.span(), "a [[category]] has name, file, function and annotation"),
        }
    }
    if rule.name.is_empty() {
        return problem(value.span(), "a [[category]] needs a name");
    }
    if rule.file.is_none() && rule.function.is_none() && rule.annotation.is_none() {
        return problem(value.span(), "a [[category]] needs a file, a function or an annotation to match");
    }
    Ok(rule)
}

/// The message for an unknown key, with the most similar known one.
fn unknown_key(name: &str, others: &[&str]) -> String {
    if name == "baseline" {
        return "baseline belongs at the top of the file, before the first [table]".to_owned();
    }
    let keys = Limit::all().map(|limit| -> &str { limit.key() }).chain(others.iter().copied());
    let similar = keys.map(|key| (strsim::jaro_winkler(&normalized(name), &normalized(key)), key));
    match similar.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((similarity, key)) if similarity > MIN_SIMILARITY => {
            format!("unknown key {name}; did you mean {key}?")
        }
        _ => format!("unknown key {name}; `oomscope check --print-config` shows all of them"),
    }
}

/// A key without `max`, which all limits begin with, and without case and separators.
fn normalized(key: &str) -> String {
    key.to_ascii_lowercase().replace(['_', '-'], "").trim_start_matches("max").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_read_and_has_every_key() {
        let config = Config::parse(&EXAMPLE).unwrap();
        let [fail, warn] = config.limits.limits("ranks/rank_1.pickle", 0);
        assert!(Limit::all().all(|limit| fail.contains_key(&limit)));
        let fragmentation = Limit::with_key("max-fragmentation").unwrap();
        let peak_reserved = Limit::with_key("max-peak-reserved").unwrap();
        assert_eq!(warn[&fragmentation], Amount::Ratio(0.1));
        assert_eq!(config.baseline.as_deref(), Some("oomscope-baseline.json"));
        assert_eq!(config.categories.len(), 2);
        let [fail, _] = config.limits.limits("ranks/rank_0.pickle", 0);
        assert_eq!(fail[&peak_reserved], Amount::Bytes(76 << 30));
        let [fail, warn] = config.limits.limits("nightly/a/b.pickle", 1);
        assert_eq!(fail[&fragmentation], Amount::Ratio(0.4));
        assert_eq!(warn[&fragmentation], Amount::Ratio(0.35));
        let [fail, _] = config.limits.limits("nightly/a/b.pickle", 0);
        assert_eq!(fail[&fragmentation], Amount::Ratio(0.2));
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
            ("max-peak-reserved = 1.5", "1: max-peak-reserved: '1.5' is not a size"),
            ("basline = 'x'", "1: unknown key basline; did you mean baseline?"),
            ("[warn]\npath = 'x'", "2: unknown key path; `oomscope check --print-config` shows"),
            ("colour = 'blue'", "1: unknown key colour; `oomscope check --print-config` shows"),
            ("max-gap-ratio = 30", "1: max-gap-ratio: '30' is not a ratio from 0 to 1"),
            ("max-gap-ratio = nan", "1: max-gap-ratio: 'nan' is not a ratio"),
            ("max-gap-ratio = -0.5", "1: max-gap-ratio: '-0.5' is not a ratio"),
            ("\nmax-gap-ratio = true", "2: expected a number, or a string in quotes, not boolean"),
            ("max-ooms = '1GiB'", "1: max-ooms: '1GiB' is not a count"),
            ("max-peak-reserved = 'much'", "1: max-peak-reserved: 'much' is not a size"),
            ("max-ooms = 0\nmax-ooms = 1", "2: duplicate key"),
            ("max-ooms = ", "1: "),
            ("max-ooms = 1\n[warn]\nmax-ooms = 1", "3: the warning at max-ooms 1 is never reached"),
            ("warn.max-ooms = 1\nmax-ooms = 1", "1: the warning at max-ooms 1 is never reached"),
            ("\nbaseline = 3", "2: expected a string in quotes, not integer"),
            ("\nwarn = 3", "2: expected a table of limits: [warn] and limits below it, not integer"),
            ("[override]\npath = 'x'", "1: expected tables headed [[override]], in two brackets, not table"),
            ("[[category]]\nfile = 'a'", "1: a [[category]] needs a name"),
            ("[[category]]\nname = 'a'", "1: a [[category]] needs a file, a function or an"),
            ("[[category]]\nname = 'a'\nfile = 'a['", "3: "),
            ("[[category]]\nname = 'a'\nfiel = 'a'", "3: a [[category]] has name, file,"),
            ("category = 1", "1: expected tables headed [[category]], in two brackets, not integer"),
            ("override = [1]", "1: expected a table [[override]], not integer"),
            ("\n[[override]]\nmax-ooms = 0", "2: an [[override]] needs a path"),
            ("[[override]]\ndevice = 0", "1: this [[override]] sets no limit"),
            ("[[override]]\ndevice = -1\nmax-ooms = 0", "2: expected the number of a device, not integer"),
            ("[[override]]\npath = 'a['\nmax-ooms = 0", "2: "),
            ("[[override]]\npth = 'a'\nmax-ooms = 0", "2: unknown key pth; did you mean path?"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
