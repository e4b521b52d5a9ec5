//! Parses `--value LINE=V`.

/// The value that reads of the GPU at a source line give: file, line and value, as `python/oomscope/_values.py` takes
/// them.
pub(super) type SetValue = (String, u64, String);

/// In place of a value: another one than a run without `--value` would give.
pub(super) const ANOTHER: &str = "another";

/// Parses `train.py:12=True`, `train.py:12=64` or `train.py:12=0.5`.
pub(super) fn parse_value(text: &str) -> Result<SetValue, String> {
    let error = || format!("give a line and a value, such as train.py:12=True or train.py:12=64, not {text}");
    let (place, value) = text.rsplit_once('=').ok_or_else(error)?;
    let (file, line) = place.rsplit_once(':').ok_or_else(error)?;
    let line: u64 = line.parse().map_err(|_| error())?;
    let is_value = matches!(value, "True" | "False") || value.parse::<i64>().is_ok() || value.parse::<f64>().is_ok();
    if file.is_empty() || !is_value {
        return Err(error());
    }
    Ok((file.to_owned(), line, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse_value;

    #[test]
    fn a_line_and_a_value_are_read() {
        let value = |line, value: &str| Ok(("a/train.py".to_owned(), line, value.to_owned()));
        assert_eq!(parse_value("a/train.py:12=True"), value(12, "True"));
        assert_eq!(parse_value("a/train.py:3=-0.5"), value(3, "-0.5"));
        for wrong in ["train.py:12", "train.py=1", ":12=1", "train.py:x=1", "train.py:12=yes", "train.py:12="] {
            assert!(parse_value(wrong).is_err(), "{wrong}");
        }
    }
}
