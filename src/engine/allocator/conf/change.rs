//! Changes to a recorded settings string. A change sets options, resets one (`key:default`) or all (`default`).

use super::dialect::{ConfError, Dialect, OptionMeaning};
use super::settings::Settings;
use crate::allocator::releases::{Rule, has_rule};
use crate::base::units::quote_shell_word;

/// As a value, it resets the option; alone, all options.
const DEFAULT: &str = "default";

/// Options to set and options to reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfChange<'a> {
    /// Whether all options are reset first.
    pub resets_all: bool,
    /// Options that are reset.
    pub reset: Vec<&'a str>,
    /// Options that are set, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub set: String,
}

impl<'a> ConfChange<'a> {
    /// Splits a settings string into changes. Names and values are not checked: see [`super::parse()`].
    pub fn parse(text: &'a str) -> Self {
        let (mut resets_all, mut reset, mut set) = (false, Vec::new(), Vec::new());
        for part in split_options(text) {
            match part.split_once(':') {
                None if part.trim() == DEFAULT => resets_all = true,
                Some((key, value)) if value.trim() == DEFAULT => reset.push(key.trim()),
                _ => set.push(part),
            }
        }
        Self { resets_all, reset, set: set.join(",").trim().to_owned() }
    }

    /// `base` with this change applied, as a string of options.
    pub fn apply_to(&self, base: &str) -> String {
        let base = if self.resets_all { "" } else { base };
        let kept =
            parse_options(base).filter(|(key, _)| find_option(&self.set, key).is_none() && !self.reset.contains(key));
        let kept = kept.map(|(key, value)| format!("{key}:{value}"));
        let set = (!self.set.is_empty()).then(|| self.set.clone());
        kept.chain(set).collect::<Vec<String>>().join(",")
    }
}

/// The shell command that applies change `option` to the `recorded` options.
pub fn shell_assignment(option: &str, recorded: Option<&str>) -> String {
    // Without recorded options the change applies to PyTorch's defaults.
    match ConfChange::parse(option).apply_to(recorded.unwrap_or_default()) {
        none if none.is_empty() => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        options => format!("PYTORCH_CUDA_ALLOC_CONF={}", quote_shell_word(&options)),
    }
}

impl Settings {
    /// PyTorch's defaults in release 2.`minor`.
    pub fn defaults_for_release(minor: u32) -> Self {
        let one_division_is_exact = !has_rule(minor, Rule::ZeroDivisions);
        Self { one_division_is_exact, ..Self::default() }
    }

    /// These settings, with option `key` at its default.
    ///
    /// # Errors
    /// If release 2.`minor` does not have the option.
    pub fn with_default(&self, key: &str, minor: u32) -> Result<Self, ConfError> {
        let (dialect, mut plain) = (Dialect { minor }, Self::defaults_for_release(minor));
        let option = Dialect::find_option(key).filter(|option| dialect.has_option(option));
        let mut settings = self.clone();
        match option.ok_or_else(|| dialect.unrecognized_key(key, "Accelerator"))?.meaning {
            OptionMeaning::Flag(setting) => *setting(&mut settings) = *setting(&mut plain),
            OptionMeaning::LargeSegmentSize => settings.large_segment_size = plain.large_segment_size,
            OptionMeaning::MaxSplitSize => settings.max_split_size = plain.max_split_size,
            OptionMeaning::MaxNonSplitRounding => settings.max_non_split_rounding = settings.large_segment_size,
            OptionMeaning::GarbageCollection => {
                settings.garbage_collection_threshold = plain.garbage_collection_threshold;
            }
            OptionMeaning::Divisions => settings.roundup_power2_divisions = plain.roundup_power2_divisions,
            OptionMeaning::Backend => settings.backend_is_async = false,
            OptionMeaning::Fraction => settings.per_process_memory_fraction = plain.per_process_memory_fraction,
            OptionMeaning::Reserve => settings.expandable_segments_reserve = None,
            OptionMeaning::Ignored => {}
        }
        Ok(settings)
    }
}

/// The value of option `key` in a `PYTORCH_CUDA_ALLOC_CONF` string such as `a:1,b:[256:1,>:4]`.
pub fn find_option<'a>(string: &'a str, key: &str) -> Option<&'a str> {
    parse_options(string).filter_map(|(name, value)| (name == key).then_some(value)).last() // the last one wins
}

/// The parts of a string between commas that are not in a list.
pub(super) fn split_options(string: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    string.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// The options of a string with their values.
pub(super) fn parse_options(string: &str) -> impl Iterator<Item = (&str, &str)> {
    split_options(string).filter_map(|pair| pair.split_once(':')).map(|(key, value)| (key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::super::dialect::OPTIONS;
    use super::super::parse::{UnknownKeys, parse};
    use super::*;

    #[test]
    fn parses_set_and_reset_options() {
        let lists = "default, a:default,roundup_power2_divisions:[256:1,>:4],b:2";
        let change = ConfChange::parse(lists);
        assert!(change.resets_all);
        assert_eq!(change.reset, ["a"]);
        assert_eq!(change.set, "roundup_power2_divisions:[256:1,>:4],b:2");
        assert_eq!(ConfChange::parse("a:1"), ConfChange { set: "a:1".to_owned(), ..ConfChange::default() });
    }

    #[test]
    fn a_change_replaces_only_its_own_options() {
        let base = "a:1, b:[2:3,>:4],c:5";
        for (change, base, changed) in [
            ("b:8", base, "a:1,c:5,b:8"),
            ("b:8", "", "b:8"),
            ("", base, "a:1,b:[2:3,>:4],c:5"),
            ("b:default", base, "a:1,c:5"),
            ("default,b:8", base, "b:8"),
        ] {
            assert_eq!(ConfChange::parse(change).apply_to(base), changed);
        }
    }

    #[test]
    fn shell_assignment_is_quoted() {
        assert_eq!(shell_assignment("a:1", Some("")), "PYTORCH_CUDA_ALLOC_CONF=a:1");
        assert_eq!(shell_assignment("a:1", Some("b:2,a:3")), "PYTORCH_CUDA_ALLOC_CONF=b:2,a:1");
        assert_eq!(shell_assignment("a:1", Some("b:[1:2]")), "PYTORCH_CUDA_ALLOC_CONF='b:[1:2],a:1'");
        assert_eq!(shell_assignment("default", Some("b:2")), "unset PYTORCH_CUDA_ALLOC_CONF");
    }

    #[test]
    fn every_option_can_be_reset() {
        let all = "max_split_size_mb:64,garbage_collection_threshold:0.5,backend:cudaMallocAsync,\
                   roundup_power2_divisions:4,expandable_segments:True,large_segment_size_mb:32,\
                   max_non_split_rounding_mb:48,per_process_memory_fraction:0.5,\
                   throw_on_cudamalloc_oom:True,expandable_segments_reserve:2,\
                   release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True";
        let plain = Settings::defaults_for_release(15);
        let mut settings = parse(all, &plain, 15, UnknownKeys::Refuse).unwrap().settings;
        assert_ne!(settings, plain);
        for option in &OPTIONS {
            settings = settings.with_default(option.key, 15).unwrap();
        }
        settings.max_non_split_rounding = settings.large_segment_size;
        assert_eq!(settings, plain);
        let error = plain.with_default("max_split_size", 15).unwrap_err().to_string();
        assert!(error.contains("did you mean max_split_size_mb?"), "{error}");
        assert!(plain.with_default("expandable_segments_reserve", 9).is_err(), "not in that release");
    }

    #[test]
    fn finds_the_last_value_of_an_option() {
        let conf = "roundup_power2_divisions:[256:1,>:4], max_split_size_mb:64,max_split_size_mb:128";
        assert_eq!(find_option(conf, "roundup_power2_divisions"), Some("[256:1,>:4]"));
        assert_eq!(find_option(conf, "max_split_size_mb"), Some("128"));
        assert_eq!(find_option(conf, ">"), None);
        assert_eq!(find_option("", "x"), None);
    }
}
