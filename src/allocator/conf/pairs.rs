//! Strings of settings as text, for those who have no release to read them by.

/// The value of option `key` in a `PYTORCH_CUDA_ALLOC_CONF` string such as `a:1,b:[256:1,>:4]`.
pub fn option_in<'a>(string: &'a str, key: &str) -> Option<&'a str> {
    let of_key = |(name, value): (&str, &'a str)| (name == key).then_some(value);
    pairs(string).filter_map(of_key).last() // the last one wins
}

/// What commas outside of lists separate.
pub(super) fn parts(string: &str) -> impl Iterator<Item = &str> {
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
pub(super) fn pairs(string: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = parts(string).filter_map(|pair| pair.split_once(':'));
    pairs.map(|(key, value)| (key.trim(), value.trim()))
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
