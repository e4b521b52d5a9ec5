//! The knobs that decide how large a block and a segment become.

use crate::units::MIB;

/// Allocator settings in effect. The defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Blocks of this many bytes or more are never split; `u64::MAX` is PyTorch's "unlimited".
    pub max_split_size: u64,
    /// Whether segments grow by mapping memory instead of being allocated whole.
    pub expandable_segments: bool,
    /// Divisions of each power of two that sizes are rounded up to, by size in MiB: index 0 for
    /// less than 2 MiB, 1 for [2, 4), ... 15 for 32 GiB and more. 0 is plain rounding to 512 bytes.
    pub roundup_power2_divisions: [u64; 16],
    /// Whether one division leaves a size unrounded, as up to PyTorch 2.3, or means plain rounding.
    pub one_division_is_exact: bool,
    /// Bytes of a segment for requests between 1 and 10 MiB, and the granule of large expandable
    /// segments (`large_segment_size_mb`, PyTorch 2.10).
    pub large_segment_size: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_split_size: u64::MAX,
            expandable_segments: false,
            roundup_power2_divisions: [0; 16],
            one_division_is_exact: false,
            large_segment_size: 20 * MIB,
        }
    }
}

/// The value of option `key` in a `PYTORCH_CUDA_ALLOC_CONF` string such as `a:1,b:[256:1,>:4]`.
pub fn option_in<'a>(string: &'a str, key: &str) -> Option<&'a str> {
    let mut depth = 0;
    let mut found = None;
    for pair in string.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    }) {
        if let Some((name, value)) = pair.split_once(':')
            && name.trim() == key
        {
            found = Some(value.trim()); // the last one wins
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_whole() {
        let conf =
            "roundup_power2_divisions:[256:1,>:4], max_split_size_mb:64,max_split_size_mb:128";
        assert_eq!(option_in(conf, "roundup_power2_divisions"), Some("[256:1,>:4]"));
        assert_eq!(option_in(conf, "max_split_size_mb"), Some("128"));
        assert_eq!(option_in(conf, ">"), None);
        assert_eq!(option_in("", "x"), None);
    }
}
