//! `{NAME}` in a command, which a size replaces.

use itertools::Itertools as _;
use std::ffi::OsString;

use anyhow::bail;

/// Whether `name` is a valid name of a placeholder.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The name of the only placeholder in `command`.
pub(in crate::cli) fn find(command: &[OsString]) -> anyhow::Result<String> {
    let words = command.iter().map(|word| word.to_string_lossy());
    let names: Vec<String> = words.flat_map(|word| names_in(&word)).sorted_unstable().dedup().collect();
    match names.as_slice() {
        [name] => Ok(name.clone()),
        [] => bail!(
            "the command has no word in braces for the size, such as --batch {{BATCH}}, or env BATCH={{BATCH}} before the \
             program"
        ),
        _ => bail!("the command has several words in braces: {{{}}}; one is the size", names.join("}, {")),
    }
}

/// The names in braces in `word`.
fn names_in(word: &str) -> Vec<String> {
    let parts = word.split('{').skip(1).filter_map(|part| part.split_once('}'));
    parts.map(|(name, _)| name.to_owned()).filter(|name| is_name(name)).collect()
}

/// `command` with `size` in place of `{name}`.
pub(in crate::cli) fn fill(command: &[OsString], name: &str, size: u64) -> Vec<OsString> {
    let placeholder = format!("{{{name}}}");
    let fill = |arg: &OsString| match arg.to_str() {
        Some(text) => OsString::from(text.replace(&placeholder, &size.to_string())),
        None => arg.clone(),
    };
    command.iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn the_only_name_in_braces_is_found() {
        let found = |words: &[&str]| find(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert_eq!(found(&["python", "t.py", "--batch={BATCH}", "--log", "{BATCH}.txt"]).unwrap(), "BATCH");
        assert!(found(&["python", "t.py", "{}"]).unwrap_err().to_string().contains("no word in braces"));
        assert!(found(&["{A}", "{B}"]).unwrap_err().to_string().contains("{A}, {B}"));
    }
}
