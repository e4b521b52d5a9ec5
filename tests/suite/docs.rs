//! The README and the documentation say what the program does: every example is run and compared.

use crate::support::program;
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

/// The names of the commands, and the options in the help of each.
fn options() -> BTreeMap<String, BTreeSet<String>> {
    let help = program::result_of(&["--help"]);
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let commands = commands.filter(|name| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'));
    let mut options = BTreeMap::new();
    for name in commands.filter(|name| *name != "oomscope" && !name.starts_with('-')) {
        let help = program::run(&[name, "--help"]);
        if help.code == 0 {
            let words = help
                .out
                .split(|letter: char| !(letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'));
            let known = words.filter(|word| word.starts_with("--")).map(str::to_owned).chain(["-h".to_owned()]);
            options.insert(name.to_owned(), known.collect());
        }
    }
    options.insert("help".to_owned(), BTreeSet::new());
    options
}

/// The words of a command line that are oomscope's: those of a command that it runs are not.
fn own_words(line: &str) -> Vec<String> {
    let line =
        line.split(['|', ';', '>', '#']).next().unwrap().split(" && ").next().unwrap().split("  ").next().unwrap();
    line.split_whitespace()
        .take_while(|word| *word != "--")
        .map(|word| word.trim_matches(['(', ')', '\'', '"']).to_owned())
        .collect()
}

#[test]
fn every_command_and_option_of_a_page_exists() {
    let known = options();
    let all: BTreeSet<&String> = known.values().flatten().collect();
    assert!(known.len() > 15 && known["analyze"].contains("--at"), "{:?}", known.keys());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, page) in pages() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        for line in code_of(&page) {
            let starts = line
                .match_indices("oomscope ")
                .filter(|(at, _)| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || "-_/.".contains(c)));
            let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
            for (at, next) in starts.iter().zip(starts.iter().skip(1).chain([&line.len()])) {
                let words = own_words(&line[*at + "oomscope ".len()..*next]);
                let Some(command) = words.first().filter(|_| !line[..*at].ends_with("install ")) else { continue };
                let is_name = command.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
                    && !command.starts_with('-');
                let formats = words.iter().skip_while(|word| *word != "--format").nth(1);
                if let (Some(format), Some(known)) = (formats, formats_of(command)) {
                    let is_known = known.iter().any(|known| known == format.trim_end_matches(','))
                        || !format.chars().all(char::is_alphanumeric);
                    wrong.extend((!is_known).then(|| format!("{name}: --format {format} in {line}")));
                }
                let options = words.iter().filter_map(|word| word.strip_prefix("--")).map(|word| {
                    let end = word.find(|letter: char| {
                        !(letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
                    });
                    format!("--{}", &word[..end.unwrap_or(word.len())])
                });
                match known.get(command) {
                    Some(known) => wrong.extend(
                        options
                            .filter(|option| !known.contains(option))
                            .map(|option| format!("{name}: {option} in {line}")),
                    ),
                    None if is_name && command != "run_id" => wrong.push(format!("{name}: {command} in {line}")),
                    None => {}
                }
                count += 1;
            }
            // An option alone is one of some command; in a page about a command, of that or of one that the page names.
            let alone = line
                .split_whitespace()
                .next()
                .filter(|word| word.starts_with("--") && starts.is_empty() && word.len() > 2);
            let alone = alone.filter(|word| {
                word[2..].starts_with(|letter: char| letter.is_ascii_lowercase()) && !word.contains(['>', ':', ','])
            });
            let alone = alone.map(|word| word.split(['=', '[']).next().unwrap().to_owned());
            let stem = name.trim_end_matches(".md");
            let of_page =
                alone.as_ref().filter(|_| known.contains_key(stem) && !OTHERS.contains(&alone.as_deref().unwrap()));
            let named =
                || known.iter().filter(|(other, _)| *other == stem || page.contains(&format!("oomscope {other}")));
            if let Some(option) = of_page.filter(|option| !named().any(|(_, options)| options.contains(*option))) {
                wrong.push(format!("{name}: {option} is of no command that the page names"));
            }
            if let Some(option) = alone.filter(|option| !all.contains(option) && !OTHERS.contains(&option.as_str())) {
                wrong.push(format!("{name}: {option}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 200, "{count}");
}

/// Options of other programs that pages name.
const OTHERS: [&str; 8] = [
    "--summary", // of memray
    "--assert",  // of pytest
    "--oomscope-gpu",
    "--oomscope-dry-run",
    "--oomscope-record",
    "--oomscope-update",
    "--oomscope-limit",
    "--oomscope-baseline",
];

/// The values of `--format` in the help of `command`; `None` if it has no such option.
fn formats_of(command: &str) -> Option<BTreeSet<String>> {
    let help = program::run(&[command, "--help"]).out;
    let after = help.rsplit("--format <").next().filter(|_| help.contains("--format <"))?;
    let values = after.split("\n\n      --").next()?.split("\n\n  -").next()?;
    let listed = values.split("values").nth(1)?;
    let words = listed.split(|letter: char| !letter.is_ascii_lowercase());
    Some(words.filter(|word| !word.is_empty()).map(str::to_owned).collect())
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
        let named = words.filter(|word| directories.iter().any(|directory| word.starts_with(directory)));
        let named = named
            .filter(|word| !word.contains(['*', '{', '<', '$']))
            .map(|word| root.join(word.trim_end_matches(['.', ':'])));
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
