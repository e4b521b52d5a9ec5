//! A string of options laid over another, which may also take options back: `default` all of them,
//! `key:default` one.

use super::dialect::{Dialect, Meaning};
use super::error::ConfError;
use super::pairs::{option_in, pairs, parts};
use super::settings::Settings;
use crate::base::summary::shell_word;

/// What takes an option back, in place of its value or of a whole string.
const DEFAULT: &str = "default";

/// A string of options of which some may be taken back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change<'a> {
    /// Whether all options are taken back first.
    pub undoes_all: bool,
    /// Options that are taken back.
    pub undone: Vec<&'a str>,
    /// Options that are set, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub set: String,
}

impl<'a> Change<'a> {
    /// Reads what sets apart from what takes back.
    pub fn of(text: &'a str) -> Self {
        let (mut undoes_all, mut undone, mut set) = (false, Vec::new(), Vec::new());
        for part in parts(text) {
            match part.split_once(':') {
                None if part.trim() == DEFAULT => undoes_all = true,
                Some((key, value)) if value.trim() == DEFAULT => undone.push(key.trim()),
                _ => set.push(part),
            }
        }
        Self { undoes_all, undone, set: set.join(",").trim().to_owned() }
    }

    /// `base` with these options in place of its own, and without those that are taken back.
    pub fn over(&self, base: &str) -> String {
        let is_kept =
            |key: &str| option_in(&self.set, key).is_none() && !self.undone.contains(&key);
        let base = if self.undoes_all { "" } else { base };
        let kept = pairs(base).filter(|(key, _)| is_kept(key));
        let kept = kept.map(|(key, value)| format!("{key}:{value}"));
        let set = (!self.set.is_empty()).then(|| self.set.clone());
        kept.chain(set).collect::<Vec<String>>().join(",")
    }
}

/// The shell assignment that sets `option` on top of the `recorded` options.
pub fn environment(option: &str, recorded: Option<&str>) -> String {
    match Change::of(option).over(recorded.unwrap_or_default()) {
        none if none.is_empty() => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        options => format!("PYTORCH_CUDA_ALLOC_CONF={}", shell_word(&options)),
    }
}

impl Settings {
    /// PyTorch's defaults in release 2.`minor`.
    pub fn plain(minor: u32) -> Self {
        let one_division_is_exact = Dialect::of(minor).one_division_is_exact;
        Self { one_division_is_exact, ..Self::default() }
    }

    /// The same, with option `key` at its default.
    ///
    /// # Errors
    /// For a key that release 2.`minor` does not have.
    pub fn without(&self, key: &str, minor: u32) -> Result<Self, ConfError> {
        let (dialect, plain) = (Dialect::of(minor), Self::plain(minor));
        let option = Dialect::find(key).filter(|option| dialect.has(option));
        let mut settings = self.clone();
        match option.ok_or_else(|| dialect.unrecognized(key, "Accelerator"))?.meaning {
            Meaning::LargeSegmentSize => settings.large_segment_size = plain.large_segment_size,
            Meaning::MaxSplitSize => settings.max_split_size = plain.max_split_size,
            Meaning::MaxNonSplitRounding => {
                settings.max_non_split_rounding = settings.large_segment_size;
            }
            Meaning::GarbageCollection => {
                settings.garbage_collection_threshold = plain.garbage_collection_threshold;
            }
            Meaning::Divisions => {
                settings.roundup_power2_divisions = plain.roundup_power2_divisions;
            }
            Meaning::ExpandableSegments => settings.expandable_segments = false,
            Meaning::Backend => settings.backend_is_async = false,
            Meaning::Fraction => {
                settings.per_process_memory_fraction = plain.per_process_memory_fraction;
            }
            Meaning::Reserve => settings.expandable_segments_reserve = None,
            Meaning::ReleaseLock => settings.release_lock_on_cudamalloc = false,
            Meaning::GraphReuse => settings.graph_capture_record_stream_reuse = false,
            Meaning::ThrowOnOom => settings.throw_on_cudamalloc_oom = false,
            // These change nothing here.
            Meaning::ReserveByClass
            | Meaning::RegisterThreads
            | Meaning::PinnedReserve
            | Meaning::PinnedSize
            | Meaning::PinnedFlag => {}
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::OPTIONS;
    use super::super::parse::{Unknown, parse};
    use super::*;

    #[test]
    fn what_sets_is_told_from_what_takes_back() {
        let lists = "default, a:default,roundup_power2_divisions:[256:1,>:4],b:2";
        let change = Change::of(lists);
        assert!(change.undoes_all);
        assert_eq!(change.undone, ["a"]);
        assert_eq!(change.set, "roundup_power2_divisions:[256:1,>:4],b:2");
        assert_eq!(Change::of("a:1"), Change { set: "a:1".to_owned(), ..Change::default() });
    }

    #[test]
    fn a_change_replaces_its_own_options_only() {
        let base = "a:1, b:[2:3,>:4],c:5";
        let over = |change, base| Change::of(change).over(base);
        assert_eq!(over("b:8", base), "a:1,c:5,b:8");
        assert_eq!(over("b:8", ""), "b:8");
        assert_eq!(over("", base), "a:1,b:[2:3,>:4],c:5");
        assert_eq!(over("b:default", base), "a:1,c:5");
        assert_eq!(over("default,b:8", base), "b:8");
    }

    #[test]
    fn the_environment_is_one_word_of_a_shell() {
        assert_eq!(environment("a:1", Some("")), "PYTORCH_CUDA_ALLOC_CONF=a:1");
        assert_eq!(environment("a:1", Some("b:2,a:3")), "PYTORCH_CUDA_ALLOC_CONF=b:2,a:1");
        assert_eq!(environment("a:1", Some("b:[1:2]")), "PYTORCH_CUDA_ALLOC_CONF='b:[1:2],a:1'");
        assert_eq!(environment("default", Some("b:2")), "unset PYTORCH_CUDA_ALLOC_CONF");
    }

    #[test]
    fn each_option_goes_back_to_its_default() {
        let all = "max_split_size_mb:64,garbage_collection_threshold:0.5,backend:cudaMallocAsync,\
                   roundup_power2_divisions:4,expandable_segments:True,large_segment_size_mb:32,\
                   max_non_split_rounding_mb:48,per_process_memory_fraction:0.5,\
                   throw_on_cudamalloc_oom:True,expandable_segments_reserve:2,\
                   release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True";
        let plain = Settings::plain(15);
        let mut settings = parse(all, &plain, 15, Unknown::Refuse).unwrap().settings;
        assert_ne!(settings, plain);
        for option in &OPTIONS {
            settings = settings.without(option.key, 15).unwrap();
        }
        settings.max_non_split_rounding = settings.large_segment_size;
        assert_eq!(settings, plain);
        let error = plain.without("max_split_size", 15).unwrap_err().to_string();
        assert!(error.contains("did you mean max_split_size_mb?"), "{error}");
        assert!(plain.without("expandable_segments_reserve", 9).is_err(), "not in that release");
    }
}
