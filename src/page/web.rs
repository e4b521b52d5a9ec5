//! The script and the style of a page, in files of their own under `web/`.

/// The files of the script, joined in this order: they share one scope.
pub(super) const SCRIPT: &[&str] = &[include_str!("web/decode.js")];

/// The style.
pub(super) const STYLE: &str = include_str!("web/page.css");

/// The script as a page has it.
pub(super) fn script() -> String {
    let mut script = String::from("(() => {\n\"use strict\";\n");
    script.extend(SCRIPT.iter().copied());
    script.push_str("})();\n");
    script
}
