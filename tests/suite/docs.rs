//! The README and the documentation say what the program does: every example is run and compared.
//! Slow: many runs of the program.

use crate::support::program;
use crate::support::rust_source::sources;
use std::collections::{BTreeMap, BTreeSet};
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

/// The code of a page: its spans and lines of its blocks, in which a line that ends with \\ goes on.
fn code_of(page: &str) -> Vec<String> {
    let mut code = Vec::new();
    for (index, part) in page.split("\n```").enumerate() {
        if index % 2 == 1 {
            code.extend(part.replace("\\\n", " ").lines().skip(1).map(str::to_owned));
        } else {
            // A span of a table has escaped bars.
            let text = part.replace("\\|", "|").replace("``", "");
            code.extend(text.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")));
        }
    }
    code
}

/// The options in `text`: `--at` and `--set` of `--at=end --set`.
fn options_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

fn is_command(word: &str) -> bool {
    word.starts_with(char::is_alphabetic) && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// The names of the commands, and the options in the help of each.
fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let help = program::result_of(&["--help"]);
    let names = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let names = names.filter(|name| is_command(name) && *name != "oomscope");
    names.map(|name| (name.to_owned(), options_in(&program::run(&[name, "--help"]).out))).collect()
}

#[test]
fn every_command_and_option_of_a_page_exists() {
    let commands = commands();
    assert!(commands.len() > 15 && commands["analyze"].contains("--at"), "{:?}", commands.keys());
    let others = ["--summary", "--assert"].map(str::to_owned); // of memray and pytest
    let known: BTreeSet<&String> = commands.values().flatten().chain(&others).collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, page) in pages() {
        let name = path.file_name().unwrap().to_str().unwrap();
        for line in code_of(&page) {
            let parts: Vec<&str> = line.split("oomscope ").collect();
            for (before, after) in parts.iter().zip(&parts[1..]) {
                let is_run = !before.ends_with(|c: char| c.is_alphanumeric() || "-_/.".contains(c));
                // Not of a command that oomscope runs, nor of the next one of a shell.
                let own = [" -- ", "  ", " && ", "|", ";", ">", "#"];
                let own = own.iter().fold(*after, |own, end| own.split(end).next().unwrap());
                let Some(command) = own.split_whitespace().next().filter(|_| is_run) else { continue };
                match commands.get(command.trim_matches(['(', ')', '\'', '"'])) {
                    Some(known) => wrong
                        .extend(options_in(own).difference(known).map(|option| format!("{name}: {option} in {line}"))),
                    None if is_command(command) && !before.ends_with("install ") => {
                        wrong.push(format!("{name}: {command} in {line}"));
                    }
                    None => {}
                }
                count += 1;
            }
            let alone = line.split_whitespace().next().filter(|_| parts.len() == 1);
            let alone = alone.filter(|word| word.starts_with("--") && !word.contains(['>', ':', ',']));
            let unknown = alone.and_then(|word| options_in(word).pop_first()).filter(|word| !known.contains(word));
            let unknown = unknown.filter(|option| !option.starts_with("--oomscope-")); // of the pytest plugin
            wrong.extend(unknown.map(|option| format!("{name}: {option} of no command")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 200, "{count}");
}

/// Links to files and headings, and paths of the repository.
#[test]
fn every_file_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directories = ["docs/", "examples/", "fixtures/", "skills/", "src/", "tests/", "action/", "packaging/", ".ci/"];
    let (mut missing, mut count) = (Vec::new(), 0);
    for (path, page) in pages() {
        let page = page.replace("examples/read`", "`"); // of the engine: src/engine/examples
        let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let links = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
        let linked = links.map(|link| path.parent().unwrap().join(link.split('#').next().unwrap()));
        let code = code_of(&page);
        let words = code.iter().flat_map(|line| line.split(|c: char| c.is_whitespace() || "'\"(),".contains(c)));
        let is_of_root = |word: &&str| directories.iter().any(|directory| word.starts_with(directory));
        let named = words.clone().filter(is_of_root);
        let named = named
            .filter(|word| !word.contains(['*', '{', '<', '$']))
            .map(|word| root.join(word.trim_end_matches(['.', ':'])));
        // `verdict/ladder.rs`, in whichever room.
        let ends = words.filter(|word| word.ends_with(".rs") && word.contains('/') && !is_of_root(word));
        let unknown = ends.filter(|end| !sources().iter().any(|source| source.path.ends_with(&format!("/{end}"))));
        missing.extend(unknown.map(|end| format!("{}: {end}", path.display())));
        for file in linked.chain(named) {
            count += 1;
            if !file.exists() {
                missing.push(format!("{}: {}", path.file_name().unwrap().to_str().unwrap(), file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(count > 100, "{count}");
}

/// Longer pages are not read.
#[test]
fn the_pages_are_short() {
    let lengths: Vec<(PathBuf, usize)> =
        pages().into_iter().map(|(path, text)| (path, text.split_whitespace().count())).collect();
    let long: Vec<_> = lengths.iter().filter(|(_, words)| *words > 1_200).collect();
    assert!(long.is_empty(), "more than 1,200 words: {long:?}");
    let docs = lengths.iter().filter(|(path, _)| path.parent().unwrap().ends_with("docs"));
    assert!(docs.map(|(_, words)| words).sum::<usize>() <= 28_500);
}
