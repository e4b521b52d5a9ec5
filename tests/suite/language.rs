//! Words that do not come back: names (also of tests), comments and documents use the field's words and plain sentences.
//! Slow: the source of both crates is parsed.

use std::path::Path;
use std::sync::LazyLock;

use crate::support::rust_source::{Source, sources};

/// Phrases of comments, documents and names. After `-` come words that make plain English of the phrase before them; `-#`
/// is any number.
const IN_ALL: &str = "alike, as of -# -pytorch -release -version, ask for, asked for, asks for, at hand,
    be it, comes to, for want of, found out, give back, given back, gives back, held against,
    in the place of, in vain, is looked at, is odd, known of, lend, lends, lent, less what, let pass,
    lets pass, many-th, odd about, partner, partners, said, so many -that, stand -alone -for,
    stands -alone -for, tells -apart -pytorch -you, the most that, to be had, to spare,
    told -apart, turns on, was odd, what became of, what becomes of, what came of, whatever is,
    whatever it, whoever, worth a word";

/// Parts of names: `asked` is in `at_asked` and in `AskedMoment`.
const IN_NAMES: &str = "act, acts, ask, asked, asking, asks, extent, is of, least -squares, lit,
    notice, notices, remark, remarks, saying, says, spare, stretch, stretches, tell, telling,
    untold, whereabouts";

/// Whole names.
const NAMES: &[&str] = &["again", "around", "began", "begins", "begun", "Begun", "Mark", "What", "whole", "Whole"];

/// No sentence begins with these, unless it is a question or a heading.
const STARTS: &[&str] = &["Of", "What", "Whatever", "Who"];

/// Parts of names that stay: keys of JSON, the standard library's, and plain English.
const EXEMPT: &[&str] =
    &["asked_bytes", "asked_paired_ratio", "at_least", "given_back_bytes", "spare_bytes", "spare_capacity", "told_by"];

/// A word, a sign, or `` ` `` for each end of quoted code; an empty one ends a paragraph. With its line.
type Token<'t> = (usize, &'t str);

/// Reads Markdown, each line of it after any of the characters of `marker`.
fn read<'t>(text: &'t str, marker: &str) -> Vec<Token<'t>> {
    let (mut tokens, mut is_fenced, mut is_quoted) = (Vec::new(), false, false);
    let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '\'';
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim().trim_start_matches(|c| marker.contains(c)).trim_start();
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        if is_fence || is_fenced || line.is_empty() || line.starts_with(['|', '-', '*', '#']) {
            tokens.push((number, ""));
            is_quoted = false;
        }
        let mut rest = if is_fence || is_fenced { "" } else { line };
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
            let (token, others) = rest.split_at(length);
            rest = others;
            is_quoted ^= token == "`";
            if token == "`" || !(is_quoted || first.is_whitespace()) {
                tokens.push((number, token));
            }
        }
    }
    tokens
}

/// The words of a name: "is", "told" and "By" of `is_toldBy`.
fn words_of(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for mut part in name.split('_') {
        let is_boundary = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
        while let Some(at) = part.as_bytes().windows(2).position(is_boundary) {
            words.push(&part[..=at]);
            part = &part[at + 1..];
        }
        words.push(part);
    }
    words
}

/// A phrase, and the words that make plain English of it where one of them follows.
struct Phrase {
    words: Vec<&'static str>,
    unless: Vec<&'static str>,
}

fn phrases(list: &'static str) -> Vec<Phrase> {
    let parts = list.split(',').map(|phrase| phrase.split_whitespace().partition(|word| !word.starts_with('-')));
    parts.map(|(words, unless)| Phrase { words, unless }).collect()
}

impl Phrase {
    fn begins(&self, words: &[&str]) -> bool {
        let is_excused = |next: &&str| {
            let is_number = next.starts_with(|c: char| c.is_ascii_digit());
            self.unless.iter().any(|word| word[1..].eq_ignore_ascii_case(next) || (*word == "-#" && is_number))
        };
        words.len() >= self.words.len()
            && self.words.iter().zip(words).all(|(word, other)| word.eq_ignore_ascii_case(other))
            && !words.get(self.words.len()).is_some_and(is_excused)
    }
}

static PHRASES: LazyLock<Vec<Phrase>> = LazyLock::new(|| phrases(IN_ALL));
static PARTS: LazyLock<Vec<Phrase>> = LazyLock::new(|| phrases(IN_NAMES));

/// The phrases in `text`, with their lines.
fn in_prose(text: &str, marker: &str) -> Vec<(usize, String)> {
    let tokens = read(text, marker);
    let words: Vec<&str> = tokens.iter().map(|(_, word)| *word).collect();
    let mut found = Vec::new();
    for at in 0..words.len() {
        let here = PHRASES.iter().filter(|phrase| phrase.begins(&words[at..]));
        found.extend(here.map(|phrase| (tokens[at].0, phrase.words.join(" "))));
    }
    for (at, word) in words.iter().enumerate() {
        let Some(start) = STARTS.iter().find(|start| *start == word) else { continue };
        let paragraph = words[..at].iter().rev().take_while(|word| !word.is_empty());
        let is_heading = paragraph.last() == Some(&"#");
        let end = words[at..].iter().find(|word| ["", ".", "?", "!", "|"].contains(word));
        let is_alone = !words.get(at + 1).is_some_and(|next| next.starts_with(|c: char| c == '`' || c.is_alphabetic()));
        if !is_heading && !is_alone && end != Some(&"?") {
            found.push((tokens[at].0, (*start).to_owned()));
        }
    }
    found
}

fn is_hit(name: &str) -> bool {
    let words = words_of(name);
    let is_exempt = EXEMPT.iter().any(|part| name.contains(part));
    let has_phrase = |words: &[&str]| PHRASES.iter().chain(PARTS.iter()).any(|phrase| phrase.begins(words));
    let is_listed = NAMES.contains(&name);
    !is_exempt && (is_listed || (0..words.len()).any(|at| has_phrase(&words[at..])))
}

/// The names in `source` that are hits, with their lines.
fn in_code(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let mut before = "";
    source.words().filter(move |(_, name)| {
        let is_constructor = std::mem::replace(&mut before, name) == "fn" && *name == "of";
        is_constructor || is_hit(name)
    })
}

/// The names of tests in `text` that are hits, with their lines. They begin with no word that begins no sentence.
fn in_test_names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_test = false;
    let names = (1..).zip(text.lines()).filter_map(move |(number, line)| {
        is_test |= line.trim() == "#[test]";
        let name = line.trim().strip_prefix("fn ")?.split('(').next()?;
        std::mem::take(&mut is_test).then_some((number, name))
    });
    let has_start = |name: &str| STARTS.iter().any(|start| name.split('_').next().unwrap().eq_ignore_ascii_case(start));
    names.filter(move |(_, name)| is_hit(name) || has_start(name))
}

/// Every hit as `path:line: phrase`.
fn hits() -> Vec<String> {
    let mut hits = Vec::new();
    for file in ["tests/suite", "tests/live"].into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        hits.extend(in_test_names(&text).map(|(line, name)| format!("{}:{line}: `{name}`", path.display())));
    }
    for source in sources() {
        let names = in_code(source).map(|(line, name)| (line, format!("`{name}`")));
        let found = in_prose(&source.comments, "/*!").into_iter().chain(names);
        hits.extend(found.map(|(line, phrase)| format!("{}:{line}: {phrase}", source.path)));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let mut docs: Vec<_> =
        docs.map(|file| format!("docs/{}", file.unwrap().file_name().into_string().unwrap())).collect();
    docs.retain(|path| path.ends_with(".md"));
    docs.sort();
    for path in docs.into_iter().chain(["README.md", "skills/oomscope/SKILL.md"].map(str::to_owned)) {
        let text = std::fs::read_to_string(root.join(&path)).unwrap();
        hits.extend(in_prose(&text, "").into_iter().map(|(line, phrase)| format!("{path}:{line}: {phrase}")));
    }
    hits
}

#[test]
fn words_given_up_do_not_come_back() {
    let hits = hits();
    assert!(hits.is_empty(), "\n{}", hits.join("\n"));
}

#[test]
fn planted_words_are_found_and_plain_english_is_not() {
    for text in [
        "What stands\nin it.",
        "It is\ntold by `x`.",
        "As of `run`",
        "- Whatever comes",
        "| a | Of each row |",
        "Yes. What `x` is.",
        "So Many bytes",
    ] {
        assert!(!in_prose(text, "").is_empty(), "{text}");
    }
    for text in [
        "What is it?",
        "# What it needs",
        "| What | Why |",
        "-1 stands for no limit",
        "told apart, as of PyTorch 2.9 and as of 2.10",
        "the value `what is told` or `told\nby`, and so on",
        "```\nWhat is told\n```",
        "It is\n\ntold apart",
    ] {
        assert_eq!(in_prose(text, ""), [], "{text}");
    }
    let names =
        "#[test]\nfn what_is_left() {}\n#[test]\nfn a_whole_file() {}\nfn what() {}\n#[test]\nfn it_is_told() {}";
    assert_eq!(in_test_names(names).map(|(line, _)| line).collect::<Vec<_>>(), [2, 7]);
    for (code, expected) in [
        ("fn is_told() {}", 1),
        ("struct AskedMoment; enum What {}", 2),
        ("impl S { fn of(x: u8) {} fn off() {} }", 1),
        ("fn given_back() { f!(given_back) }", 2),
        ("struct S { given_back_bytes: u64, is_at_least: bool, whole_file: u8, told_apart: u8 }", 0),
        ("const A: &str = \"told\"; // not told", 0),
    ] {
        let source = Source::parse("src/engine/base/planted.rs", code);
        assert_eq!(in_code(&source).count(), expected, "{code}");
        assert_eq!(in_prose(&source.comments, "/*!").len(), usize::from(code.contains("//")));
    }
}
