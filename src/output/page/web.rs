//! The script and the style of a page, from the files in `web/`.

/// The modules of the script, in the order in which they are joined into one scope.
pub(super) const SCRIPT: &[&str] = &[
    // Text, elements and bytes.
    include_str!("web/format.js"),
    include_str!("web/dom.js"),
    include_str!("web/sort.js"),
    include_str!("web/base64.js"),
    include_str!("web/decode.js"),
    // A device's data and its state at any entry.
    include_str!("web/columns.js"),
    include_str!("web/pyramid.js"),
    include_str!("web/totals.js"),
    include_str!("web/sweep.js"),
    include_str!("web/stacks.js"),
    include_str!("web/groups.js"),
    include_str!("web/space.js"),
    include_str!("web/moment.js"),
    include_str!("web/segments.js"),
    include_str!("web/device.js"),
    // The view, the highlight and the colours.
    include_str!("web/start_view.js"),
    include_str!("web/theme.js"),
    include_str!("web/filter.js"),
    include_str!("web/highlight.js"),
    include_str!("web/view.js"),
    include_str!("web/colours.js"),
    // Charts.
    include_str!("web/raster.js"),
    include_str!("web/timeline.js"),
    include_str!("web/overlay.js"),
    include_str!("web/overview.js"),
    include_str!("web/map.js"),
    include_str!("web/flame.js"),
    // Text and controls.
    include_str!("web/selection.js"),
    include_str!("web/copy.js"),
    include_str!("web/entries.js"),
    include_str!("web/figures.js"),
    include_str!("web/tables.js"),
    include_str!("web/kept.js"),
    include_str!("web/held.js"),
    include_str!("web/result.js"),
    include_str!("web/found.js"),
    include_str!("web/compare.js"),
    include_str!("web/both.js"),
    include_str!("web/search.js"),
    include_str!("web/slider.js"),
    include_str!("web/keys.js"),
    include_str!("web/cursor.js"),
    include_str!("web/pinch.js"),
    include_str!("web/export.js"),
    include_str!("web/print.js"),
    include_str!("web/frame.js"),
    include_str!("web/hash.js"),
    include_str!("web/dock.js"),
    include_str!("web/summary.js"),
    include_str!("web/pages.js"),
    include_str!("web/layout.js"),
    include_str!("web/main.js"),
];

/// The elements that the script fills.
pub(super) const SKELETON: &str = include_str!("web/skeleton.html");

pub(super) const STYLE: &str = concat!(include_str!("web/page.css"), include_str!("web/first.css"));

/// The complete script.
pub(super) fn script() -> String {
    format!("(() => {{\n\"use strict\";\n{}}})();\n", join(SCRIPT))
}

/// `modules` in one scope, in this order: without their imports, which name each other, and the word `export`.
///
/// This is all that a bundler would do here, so that neither a build nor a reader of the repository needs one.
pub(super) fn join(modules: &[&str]) -> String {
    let mut script = String::new();
    for module in modules {
        let mut is_import = false;
        for line in module.lines() {
            is_import |= line.starts_with("import ");
            if !is_import {
                script.push_str(line.strip_prefix("export ").unwrap_or(line));
                script.push('\n');
            }
            is_import &= !line.ends_with(';');
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{SCRIPT, script};

    /// The name that a line declares outside of functions.
    fn declared(line: &str) -> Option<&str> {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let (word, rest) = line.split_once(' ')?;
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        (["function", "class", "const", "let"].contains(&word) && end > 0).then(|| &rest[..end])
    }

    /// All modules share one scope, and a second function with a name would replace the first in silence.
    #[test]
    fn no_name_is_declared_twice() {
        let script = script();
        let mut names = BTreeSet::new();
        for name in script.lines().filter_map(declared) {
            assert!(names.insert(name), "{name} is declared twice");
        }
        assert!(names.len() > 100);
        assert!(!script.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
    }

    /// A module imports what others export, and what is exported is imported. `.ci/lint` checks from where.
    #[test]
    fn imports_are_exports() {
        let (mut exports, mut imports) = (BTreeSet::new(), BTreeSet::new());
        for module in SCRIPT {
            exports.extend(module.lines().filter_map(|line| declared(line.strip_prefix("export ")?)));
            for import in module.split("\nimport {").skip(1) {
                let names = import.split('}').next().unwrap_or_default().split(',').map(str::trim);
                imports.extend(names.filter(|name| !name.is_empty()));
            }
        }
        assert_eq!(exports, imports);
        assert!(imports.len() > 100);
    }
}
