//! Shortens the paths of source files: to the file's name where no other file of the page has it.

use std::collections::{BTreeMap, BTreeSet};

use itertools::Itertools as _;

use super::block::Document;

/// Path separators of Linux and Windows.
const SEPARATORS: [char; 2] = ['/', '\\'];
/// Directories of installed packages.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Paths that differ only further up are shortened to the same text.
const MAX_COMPONENTS: usize = 8;
/// Components of a path in a headline: it names the place once for the page.
const HEADLINE_COMPONENTS: usize = 2;

impl Document {
    /// Shortens the path of each source location: in a package to the path below `site-packages`, else to as many
    /// components as tell it from the other files of the page. Stacks keep complete paths.
    pub fn shorten_locations(&mut self) {
        let locations = self.spans_mut().filter(|(span, _)| span.path_len > 0);
        let paths = locations.map(|(span, _)| span.text[..span.path_len].to_owned()).collect();
        let components = shortest_components(&paths);
        for (span, is_headline) in self.spans_mut().filter(|(span, _)| span.path_len > 0) {
            let path = &span.text[..span.path_len];
            let minimum = if is_headline { HEADLINE_COMPONENTS } else { 1 };
            let shown = components.get(path).copied().unwrap_or(1).max(minimum);
            let kept = below_packages(path).unwrap_or_else(|| last_components(path, shown));
            let cut = span.path_len - kept.len();
            span.path_len -= cut;
            span.text.drain(..cut);
        }
    }
}

/// For each path, the number of its last components that no other path ends with.
fn shortest_components(paths: &BTreeSet<String>) -> BTreeMap<&str, usize> {
    let counts = 1..MAX_COMPONENTS;
    let ends = counts.clone().map(|count| paths.iter().map(|path| last_components(path, count)).counts()).collect_vec();
    let shortest = paths.iter().map(|path| {
        let unique = counts.clone().find(|count| ends[count - 1][last_components(path, *count)] == 1);
        (path.as_str(), unique.unwrap_or(MAX_COMPONENTS))
    });
    shortest.collect()
}

/// The last `count` components of `path`.
fn last_components(path: &str, count: usize) -> &str {
    let start = path.rmatch_indices(SEPARATORS).nth(count.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    path.get(start..).unwrap_or(path)
}

/// The path below the directory of installed packages.
fn below_packages(path: &str) -> Option<&str> {
    let start = PACKAGES.iter().find_map(|name| Some(path.rfind(name)? + name.len()))?;
    path.get(start..)
}

#[cfg(test)]
mod tests {
    use super::super::block::Block;
    use super::super::text::source_location;
    use super::*;

    fn shortened(paths: &[&str]) -> Vec<String> {
        let mut document = Document::default();
        let locations = paths.iter().map(|path| source_location(path, ":3 main"));
        document.fields("at", locations);
        document.shorten_locations();
        document.spans_mut().map(|(span, _)| span.text.trim_end_matches(":3 main").to_owned()).collect()
    }

    #[test]
    fn names_of_files_are_enough_where_they_differ() {
        let paths =
            ["/app/train.py", "/app/a/model.py", "/app/b/model.py", "/x/site-packages/hf/trainer.py", "train.py"];
        assert_eq!(shortened(&paths), ["app/train.py", "a/model.py", "b/model.py", "hf/trainer.py", "train.py"]);
        assert_eq!(shortened(&[r"C:\Users\ann\a.py", r"C:\Users\ann\b\c.py"]), ["a.py", "c.py"]);
        assert_eq!(shortened(&["/ü/a.py", "/û/a.py", "<string>"]), ["ü/a.py", "û/a.py", "<string>"]);
    }

    #[test]
    fn a_headline_keeps_the_directory() {
        let mut document = Document::default();
        document.headline(source_location("/home/ann/app/train.py", ":3 main"), "");
        document.shorten_locations();
        assert_eq!(document.blocks, [Block::Headline(source_location("app/train.py", ":3 main"), "".into())]);
    }
}
