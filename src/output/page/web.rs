//! The script and the style of a page, from the files in `web/`.

/// The files of the script, concatenated in this order into one scope.
pub(super) const SCRIPT: &[&str] = &[
    // Text, elements and bytes.
    include_str!("web/format.js"),
    include_str!("web/dom.js"),
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
    include_str!("web/result.js"),
    include_str!("web/found.js"),
    include_str!("web/compare.js"),
    include_str!("web/search.js"),
    include_str!("web/slider.js"),
    include_str!("web/keys.js"),
    include_str!("web/cursor.js"),
    include_str!("web/pinch.js"),
    include_str!("web/export.js"),
    include_str!("web/print.js"),
    include_str!("web/hash.js"),
    include_str!("web/dock.js"),
    include_str!("web/summary.js"),
    include_str!("web/pages.js"),
    // Replays.
    include_str!("web/replay/base85.js"),
    include_str!("web/replay/port.js"),
    include_str!("web/replay/curves.js"),
    include_str!("web/replay/capacity.js"),
    include_str!("web/replay/shown_run.js"),
    include_str!("web/replay/controls.js"),
    include_str!("web/replay/panel.js"),
    include_str!("web/layout.js"),
    include_str!("web/main.js"),
];

pub(super) const STYLE: &str =
    concat!(include_str!("web/page.css"), include_str!("web/first.css"), include_str!("web/replay/replay.css"));

/// The complete script.
pub(super) fn script() -> String {
    let mut script = String::from("(() => {\n\"use strict\";\n");
    script.extend(SCRIPT.iter().copied());
    script.push_str("})();\n");
    script
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::script;

    /// All files share one scope, and a second function with a name would replace the first in silence.
    #[test]
    fn no_name_is_declared_twice() {
        let mut names = BTreeSet::new();
        let script = script();
        for line in script.lines() {
            let words = line.strip_prefix("async ").unwrap_or(line).split_once(' ');
            let Some(("function" | "class" | "const" | "let", rest)) = words else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(name.is_empty() || names.insert(name.clone()), "{name} is declared twice");
        }
        assert!(names.len() > 100);
    }
}
