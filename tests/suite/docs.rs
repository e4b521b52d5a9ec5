//! The README and the documentation say what the program does: every example is run and compared.

use crate::support::program;
use std::path::{Path, PathBuf};

const SKILL: &str = "skills/oomscope/SKILL.md";

/// README, the pages of docs/ and the skill for agents: path and text.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = docs.chain(["README.md", SKILL].map(|page| root.join(page))).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let with_text = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    };
    paths.into_iter().map(with_text).collect()
}

/// Every `$ oomscope ..` of a page, without the `$`, and what it is said to print.
fn examples(page: &str) -> Vec<(String, String)> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    let mut examples = Vec::new();
    for block in fenced.filter_map(|block| Some(block.split_once('\n')?.1)) {
        let block = format!("\n{}", block.replace("\\\n", " "));
        for example in block.split("\n$ ").skip(1).filter(|example| example.starts_with("oomscope ")) {
            let (command, printed) = example.split_once('\n').unwrap();
            examples.push((command.to_owned(), format!("{printed}\n")));
        }
    }
    examples
}

/// Whether `printed` is `said`, in which a line of three dots stands for any lines or none.
fn is_as_said(printed: &str, said: &str) -> bool {
    let (printed, said) = (format!("\n{printed}"), format!("\n{said}"));
    let mut parts: Vec<&str> = said.split("\n...").collect();
    let last = parts.pop().unwrap();
    let mut rest = printed.as_str();
    for (index, part) in parts.iter().enumerate() {
        let part = format!("{part}\n");
        let Some(at) = rest.find(&part).filter(|at| index > 0 || *at == 0) else { return false };
        // The end of this line is the beginning of the next.
        rest = &rest[at + part.len() - 1..];
    }
    if parts.is_empty() { rest == last } else { rest.ends_with(last) }
}

/// `said` with its lines replaced by those that `printed` has in their place; lines of three dots stay.
fn updated(printed: &str, said: &str) -> String {
    let printed: Vec<&str> = printed.lines().collect();
    let likeness = |at: usize, part: &[&str]| -> f64 {
        let pairs = part.iter().zip(&printed[at..]);
        pairs.map(|(old, new)| strsim::normalized_levenshtein(old, new)).sum()
    };
    let said: Vec<&str> = said.lines().collect();
    let parts: Vec<&[&str]> = said.split(|line| *line == "...").collect();
    let last = parts.len() - 1;
    let mut shown: Vec<&str> = Vec::new();
    let mut from = 0;
    for (index, part) in parts.iter().enumerate() {
        let fits = printed.len().saturating_sub(part.len());
        let at = match index {
            0 => 0,
            _ if index == last => fits,
            _ => (from..=fits)
                .fold(from.min(fits), |best, at| if likeness(at, part) > likeness(best, part) { at } else { best }),
        };
        let end = if last == 0 { printed.len() } else { (at + part.len()).min(printed.len()) };
        shown.extend(&printed[at..end]);
        shown.extend((index < last).then_some("..."));
        from = end;
    }
    shown.join("\n") + "\n"
}

#[test]
fn examples_print_what_the_pages_say() {
    let updates = std::env::var_os("UPDATE_DOCS").is_some();
    let mut count = 0;
    for (path, mut page) in pages() {
        let name = path.file_name().unwrap().to_str().unwrap();
        for (command, said) in examples(&page) {
            let args: Vec<&str> = command.split_whitespace().skip(1).collect();
            let ran = program::run(&args);
            let printed = ran.err + &ran.out;
            count += 1;
            if is_as_said(&printed, &said) {
                continue;
            }
            assert!(updates, "{name}: $ {command}\nprinted\n{printed}\nsaid\n{said}");
            let said = said.trim_end_matches('\n');
            page = page.replacen(said, updated(&printed, said).trim_end_matches('\n'), 1);
            std::fs::write(&path, &page).unwrap();
        }
    }
    assert!(count >= 16, "only {count} examples found");
}

/// Longer pages are not read.
#[test]
fn the_pages_are_short() {
    let lengths: Vec<(PathBuf, usize)> =
        pages().into_iter().map(|(path, text)| (path, text.split_whitespace().count())).collect();
    let long: Vec<_> = lengths.iter().filter(|(_, words)| *words > 1_200).collect();
    assert!(long.is_empty(), "more than 1,200 words: {long:?}");
    let docs = lengths.iter().filter(|(path, _)| path.parent().unwrap().ends_with("docs"));
    assert!(docs.map(|(_, words)| words).sum::<usize>() <= 30_000);
}

#[test]
fn examples_are_updated_around_their_dots() {
    let printed = "first\nsecond line, new\nthird\nfourth\nlast, new\n";
    assert_eq!(updated(printed, "a\nb\n"), printed);
    assert_eq!(updated(printed, "old\n...\nlast\n"), "first\n...\nlast, new\n");
    let middle = updated(printed, "old\n...\nsecond line, old\n...\nlast\n");
    assert_eq!(middle, "first\n...\nsecond line, new\n...\nlast, new\n");
}

#[test]
fn dots_stand_for_lines_and_nothing_else_is_forgiven() {
    let printed = "a\nb\nc\nd\n";
    for said in ["a\nb\nc\nd\n", "a\n...\nd\n", "...\nc\nd\n", "a\n...\n", "...\nb\n...\n", "a\nb\n...\nc\nd\n"] {
        assert!(is_as_said(printed, said), "{said}");
    }
    for said in
        ["a\nb\nc\n", "b\nc\nd\n", "a\n...\nc\n", "...\nd\n...\na\n", "a\n...\nx\n...\n", "a\n ...\nd\n", "...\nc d\n"]
    {
        assert!(!is_as_said(printed, said), "{said}");
    }
}
