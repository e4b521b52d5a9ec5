//! Formatting settings as a settings string.

use super::EXPANDABLE_SEGMENTS;
use super::dialect::{OPTIONS, OptionMeaning};
use super::settings::{Reserve, Settings};
use crate::base::units::{GIB, MIB};

impl Settings {
    /// The options that differ from PyTorch's defaults, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub fn options(&self) -> Vec<String> {
        let plain = Self::default();
        let divisions = self.roundup_power2_divisions;
        let formatted = format_divisions(&divisions);
        let threshold = self.garbage_collection_threshold;
        let has_threshold = threshold.total_cmp(&plain.garbage_collection_threshold).is_ne();
        let large = self.large_segment_size;
        let rounding = self.max_non_split_rounding;
        let fraction = self.per_process_memory_fraction;
        let has_fraction = fraction.total_cmp(&plain.per_process_memory_fraction).is_ne();
        let mut options = vec![
            (self.expandable_segments, EXPANDABLE_SEGMENTS.to_owned()),
            (self.max_split_size != plain.max_split_size, format!("max_split_size_mb:{}", self.max_split_size / MIB)),
            (divisions != plain.roundup_power2_divisions, format!("roundup_power2_divisions:{formatted}")),
            (has_threshold, format!("garbage_collection_threshold:{threshold}")),
            (large != plain.large_segment_size, format!("large_segment_size_mb:{}", large / MIB)),
            // Its default is the large segment size.
            (rounding != large, format!("max_non_split_rounding_mb:{}", rounding / MIB)),
            (has_fraction, format!("per_process_memory_fraction:{fraction}")),
        ];
        if let Some(reserve) = self.expandable_segments_reserve {
            let reserve = match reserve {
                Reserve::Fraction(fraction) => fraction.to_string(),
                Reserve::Bytes(bytes) => format!("{}G", bytes as f64 / GIB as f64),
            };
            options.push((true, format!("expandable_segments_reserve:{reserve}")));
        }
        let mut rest = Self { expandable_segments: false, ..self.clone() };
        for option in &OPTIONS {
            if let OptionMeaning::Flag(setting) = option.meaning {
                // The first of two keys of a setting names it.
                options.push((std::mem::take(setting(&mut rest)), format!("{}:True", option.key)));
            }
        }
        options.push((self.backend_is_async, "backend:cudaMallocAsync".to_owned()));
        options.into_iter().filter_map(|(differs, option)| differs.then_some(option)).collect()
    }
}

/// One number if all powers of two have the same divisions, else a list.
fn format_divisions(of: &[u64; 16]) -> String {
    if of.iter().all(|divisions| *divisions == of[0]) {
        return of[0].to_string();
    }
    let buckets: Vec<String> = of.iter().enumerate().map(|(bucket, d)| format!("{}:{d}", 1u64 << bucket)).collect();
    format!("[{}]", buckets.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::parse::{UnknownKeys, parse};
    use super::*;

    fn read(string: &str) -> Settings {
        parse(string, &Settings::defaults_for_release(15), 15, UnknownKeys::Refuse).unwrap().settings
    }

    #[test]
    fn formatted_settings_parse_to_the_same_settings() {
        let strings = [
            "",
            "expandable_segments:True,max_split_size_mb:64,expandable_segments_reserve:1.5",
            "roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.45",
            "large_segment_size_mb:32,per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True",
            "max_non_split_rounding_mb:48,roundup_power2_divisions:8,release_lock_on_cudamalloc:True",
            "expandable_segments:True,expandable_segments_reserve:40.5G",
        ];
        for string in strings {
            let settings = read(string);
            let written = settings.options().join(",");
            assert_eq!(read(&written), settings, "{string} became {written}");
        }
        assert!(Settings::default().options().is_empty());
    }
}
