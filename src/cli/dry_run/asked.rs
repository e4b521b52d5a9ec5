//! What `--fit NAME=N,M` asks.

/// What `--fit` asks.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    /// What stands in braces in the command.
    pub(super) name: String,
    /// In its place, two at least.
    pub(super) sizes: Vec<u64>,
}

/// `BATCH=4,8`.
pub(super) fn parse(text: &str) -> Result<Sizes, String> {
    let wrong = || format!("give a name and two sizes or more, such as BATCH=4,8, not {text}");
    let (name, sizes) = text.split_once('=').ok_or_else(wrong)?;
    let sizes: Option<Vec<u64>> =
        sizes.split(',').map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
    let mut sizes = sizes.ok_or_else(wrong)?;
    sizes.sort_unstable();
    sizes.dedup();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if sizes.len() < 2 || !is_name {
        return Err(wrong());
    }
    Ok(Sizes { name: name.to_owned(), sizes })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_name_and_two_sizes_are_read() {
        let asked = parse("BATCH=8,4").unwrap();
        assert_eq!((asked.name.as_str(), asked.sizes.as_slice()), ("BATCH", [4, 8].as_slice()));
        for wrong in ["BATCH", "=4,8", "BATCH=4", "BATCH=4,4", "BATCH=0,4", "BATCH=4,x", "B C=1,2"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
