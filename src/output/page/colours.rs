//! The colours of categories and lines. The table is in the script of the page; every other picture reads it.

use crate::study::attribution::Category;

const TABLE: &str = include_str!("web/groups.js");

/// The colour of each category, in the order of [`Category::ALL`].
pub(crate) fn category_colours() -> Vec<[u8; 3]> {
    let table = block("CATEGORY_COLOURS");
    let colour_of = |category: &Category| {
        let row = table.lines().find(|row| row.trim_start().trim_matches('"').starts_with(category.word()));
        row.and_then(|row| colours(row).next()).unwrap_or_default()
    };
    Category::ALL.iter().map(colour_of).collect()
}

/// The colours of lines and variables, in turn.
pub(crate) fn line_colours() -> Vec<[u8; 3]> {
    colours(block("LINE_COLOURS")).collect()
}

/// The constant `name` of the script.
fn block(name: &str) -> &'static str {
    let start = TABLE.find(&format!("const {name} = ")).unwrap_or(TABLE.len());
    TABLE[start..].split(';').next().unwrap_or_default()
}

fn colours(text: &str) -> impl Iterator<Item = [u8; 3]> {
    text.split('#').skip(1).filter_map(|rest| {
        let number = u32::from_str_radix(rest.get(..6)?, 16).ok()?;
        let [_, red, green, blue] = number.to_be_bytes();
        Some([red, green, blue])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_a_colour_of_its_own() {
        let mut colours = category_colours();
        assert_eq!(colours[0], [0x54, 0xbc, 0xfe]);
        assert!(!colours.contains(&[0; 3]));
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), Category::ALL.len());
        assert_eq!(line_colours().len(), 20);
    }
}
