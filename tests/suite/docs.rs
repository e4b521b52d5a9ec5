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
            let (printed, said) = (printed.trim_end_matches('\n'), said.trim_end_matches('\n'));
            if printed == said {
                continue;
            }
            assert!(updates, "{name}: $ {command}\nprinted\n{printed}\nsaid\n{said}");
            page = page.replacen(said, printed, 1);
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
