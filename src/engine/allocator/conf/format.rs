//! Formatting settings as a settings string.

use super::dialect::{OPTIONS, OptionMeaning};
use super::settings::{Reserve, Settings};
use crate::base::units::{GIB, MIB};

impl Settings {
    /// The options that differ from PyTorch's defaults, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub fn options(&self) -> Vec<String> {
        let plain = Self::default();
        let mut options = Vec::new();
        let mut add = |differs: bool, option: &dyn Fn() -> String| {
            if differs {
                options.push(option());
            }
        };
        let same = |a: f64, b: f64| a.total_cmp(&b).is_eq();
        add(self.expandable_segments, &|| "expandable_segments:True".to_owned());
        add(self.max_split_size != plain.max_split_size, &|| {
            format!("max_split_size_mb:{}", self.max_split_size / MIB)
        });
        add(self.roundup_power2_divisions != plain.roundup_power2_divisions, &|| {
            format!("roundup_power2_divisions:{}", format_divisions(&self.roundup_power2_divisions))
        });
        let threshold = self.garbage_collection_threshold;
        add(!same(threshold, plain.garbage_collection_threshold), &|| {
            format!("garbage_collection_threshold:{threshold}")
        });
        add(self.large_segment_size != plain.large_segment_size, &|| {
            format!("large_segment_size_mb:{}", self.large_segment_size / MIB)
        });
        // Its default is the large segment size.
        add(self.max_non_split_rounding != self.large_segment_size, &|| {
            format!("max_non_split_rounding_mb:{}", self.max_non_split_rounding / MIB)
        });
        let fraction = self.per_process_memory_fraction;
        add(!same(fraction, plain.per_process_memory_fraction), &|| format!("per_process_memory_fraction:{fraction}"));
        if let Some(reserve) = self.expandable_segments_reserve {
            add(true, &|| match reserve {
                Reserve::Fraction(fraction) => format!("expandable_segments_reserve:{fraction}"),
                Reserve::Bytes(bytes) => {
                    format!("expandable_segments_reserve:{}G", bytes as f64 / GIB as f64)
                }
            });
        }
        let mut rest = Self { expandable_segments: false, ..self.clone() };
        for option in &OPTIONS {
            if let OptionMeaning::Flag(setting) = option.meaning {
                // The first of two keys of a setting names it.
                add(std::mem::take(setting(&mut rest)), &|| format!("{}:True", option.key));
            }
        }
        add(self.backend_is_async, &|| "backend:cudaMallocAsync".to_owned());
        options
    }
}

/// One number if all powers of two have the same divisions, else a list.
fn format_divisions(of: &[u64; 16]) -> String {
    if of.iter().all(|divisions| *divisions == of[0]) {
        return of[0].to_string();
    }
    let bucket = |(bucket, d): (usize, &u64)| format!("{}:{d}", 1u64 << bucket);
    let buckets: Vec<String> = of.iter().enumerate().map(bucket).collect();
    format!("[{}]", buckets.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::parse::{UnknownKeys, parse};
    use super::*;

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
            let read =
                |string: &str| parse(string, &Settings::defaults_for_release(15), 15, UnknownKeys::Refuse).unwrap();
            let settings = read(string).settings;
            let written = settings.options().join(",");
            assert_eq!(read(&written).settings, settings, "{string} became {written}");
        }
        assert!(Settings::default().options().is_empty());
    }
}
