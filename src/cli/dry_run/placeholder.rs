//! `{NAME}` in a command, which a size replaces.

use std::ffi::OsString;

use anyhow::bail;

/// `{name}`
fn placeholder(name: &str) -> String {
    format!("{{{name}}}")
}

/// Whether `name` is a valid name of a placeholder.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Fails unless `command` contains `{name}`; `option` is the option that needs it.
pub(super) fn check(command: &[OsString], name: &str, option: &str) -> anyhow::Result<()> {
    let placeholder = placeholder(name);
    if !command.iter().any(|arg| arg.to_string_lossy().contains(&placeholder)) {
        bail!("{option} {name}=..: the command has no {placeholder} to replace by a size");
    }
    Ok(())
}

/// `command` with `size` in place of `{name}`.
pub(super) fn fill(command: &[OsString], name: &str, size: u64) -> Vec<OsString> {
    let placeholder = placeholder(name);
    let fill = |arg: &OsString| match arg.to_str() {
        Some(text) => OsString::from(text.replace(&placeholder, &size.to_string())),
        None => arg.clone(),
    };
    command.iter().map(fill).collect()
}
