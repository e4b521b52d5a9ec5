//! The script and the style of a page, from the files in `web/`.

/// The texts of modules of the script.
macro_rules! modules {
    ($($name:literal)*) => { &[$(include_str!(concat!("web/", $name))),*] };
}

/// The modules of the script, in the order in which they are joined into one scope.
pub(super) const SCRIPT: &[&str] = modules! {
    // Text, elements and bytes.
    "format.js" "dom.js" "sort.js" "base64.js" "decode.js"
    // A device's data and its state at any entry.
    "columns.js" "pyramid.js" "totals.js" "sweep.js" "stacks.js" "groups.js" "space.js" "moment.js" "segments.js"
    "device.js"
    // The view, the highlight and the colours.
    "start_view.js" "theme.js" "filter.js" "highlight.js" "view.js" "colours.js"
    // Charts.
    "raster.js" "timeline.js" "overlay.js" "overview.js" "map.js" "flame.js"
    // Text and controls.
    "selection.js" "copy.js" "entries.js" "figures.js" "tables.js" "kept.js" "held.js" "result.js" "found.js"
    "compare.js" "both.js" "search.js" "slider.js" "keys.js" "cursor.js" "pinch.js" "export.js" "print.js"
    "frame.js" "hash.js" "dock.js" "summary.js" "pages.js" "layout.js" "main.js"
};

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
