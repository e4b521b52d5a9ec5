//! Settings strings as lists of options, without the rules of a release.

/// The value of option `key` in a `PYTORCH_CUDA_ALLOC_CONF` string such as `a:1,b:[256:1,>:4]`.
pub fn find_option<'a>(string: &'a str, key: &str) -> Option<&'a str> {
    let of_key = |(name, value): (&str, &'a str)| (name == key).then_some(value);
    parse_options(string).filter_map(of_key).last() // the last one wins
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
    let pairs = split_options(string).filter_map(|pair| pair.split_once(':'));
    pairs.map(|(key, value)| (key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_last_value_of_an_option() {
        let conf = "roundup_power2_divisions:[256:1,>:4], max_split_size_mb:64,max_split_size_mb:128";
        assert_eq!(find_option(conf, "roundup_power2_divisions"), Some("[256:1,>:4]"));
        assert_eq!(find_option(conf, "max_split_size_mb"), Some("128"));
        assert_eq!(find_option(conf, ">"), None);
        assert_eq!(find_option("", "x"), None);
    }
}
