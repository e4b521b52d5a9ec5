//! `--wide` cuts and wraps nothing; without it pages keep to their width.

use crate::support::program::result_of;

const SNAPSHOT: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
/// Columns of a page that is not shown on a terminal.
const COLUMNS: usize = 100;

#[test]
fn a_wide_page_is_neither_cut_nor_wrapped() {
    let usual = result_of(&["analyze", SNAPSHOT]);
    assert!(usual.lines().all(|line| line.chars().count() <= COLUMNS), "{usual}");
    let wide = result_of(&["analyze", "--wide", SNAPSHOT]);
    assert!(!wide.contains('…'), "{wide}");
    let longest = wide.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest > COLUMNS && wide.lines().count() < usual.lines().count(), "{wide}");
    let words = |page: &str| page.split_whitespace().filter(|word| !word.contains(['█', '─', '▁'])).count();
    assert!(words(&wide) + 20 > words(&usual), "says no less");
}

#[test]
fn output_for_scripts_is_the_same() {
    for format in ["json", "markdown"] {
        let args = ["analyze", "--format", format, SNAPSHOT];
        assert_eq!(result_of(&args), result_of(&[&["--wide"], &args[..]].concat()));
    }
}
