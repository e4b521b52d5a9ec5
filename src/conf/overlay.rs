//! Strings of settings as text, for those who have no release to read them by.

/// The value of option `key` in a `PYTORCH_CUDA_ALLOC_CONF` string such as `a:1,b:[256:1,>:4]`.
pub fn option_in<'a>(string: &'a str, key: &str) -> Option<&'a str> {
    let of_key = |(name, value): (&str, &'a str)| (name == key).then_some(value);
    pairs(string).filter_map(of_key).last() // the last one wins
}

/// `base` with the options of `change` in place of its own.
pub fn overlay(base: &str, change: &str) -> String {
    let kept = pairs(base).filter(|(key, _)| option_in(change, key).is_none());
    let all: Vec<String> = kept
        .map(|(key, value)| format!("{key}:{value}"))
        .chain((!change.trim().is_empty()).then(|| change.trim().to_owned()))
        .collect();
    all.join(",")
}

fn pairs(string: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut depth = 0;
    string
        .split(move |c| {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        })
        .filter_map(|pair| pair.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
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

    #[test]
    fn a_change_replaces_its_own_options_only() {
        let base = "a:1, b:[2:3,>:4],c:5";
        assert_eq!(overlay(base, "b:8"), "a:1,c:5,b:8");
        assert_eq!(overlay("", "b:8"), "b:8");
        assert_eq!(overlay(base, ""), "a:1,b:[2:3,>:4],c:5");
    }
}
