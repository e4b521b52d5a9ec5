//! Parses `--fit NAME=N,M`.

use super::placeholder::is_name;

#[derive(Debug, Clone)]
pub(super) struct FitSizes {
    /// The placeholder in the command, without its braces.
    pub(super) name: String,
    /// At least two sizes, sorted.
    pub(super) sizes: Vec<u64>,
}

/// Parses `BATCH=4,8`.
pub(super) fn parse_fit_sizes(text: &str) -> Result<FitSizes, String> {
    let error = || format!("give a name and two or more sizes, such as BATCH=4,8, not {text}");
    let (name, sizes) = text.split_once('=').ok_or_else(error)?;
    let sizes: Option<Vec<u64>> = sizes.split(',').map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
    let mut sizes = sizes.ok_or_else(error)?;
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 || !is_name(name) {
        return Err(error());
    }
    Ok(FitSizes { name: name.to_owned(), sizes })
}

#[cfg(test)]
mod tests {
    use super::parse_fit_sizes;

    #[test]
    fn a_name_and_two_sizes_are_read() {
        let fit = parse_fit_sizes("BATCH=8,4").unwrap();
        assert_eq!((fit.name.as_str(), fit.sizes.as_slice()), ("BATCH", [4, 8].as_slice()));
        for wrong in ["BATCH", "=4,8", "BATCH=4", "BATCH=4,4", "BATCH=0,4", "BATCH=4,x", "B C=1,2"] {
            assert!(parse_fit_sizes(wrong).is_err(), "{wrong}");
        }
    }
}
