//! Every public word stands for one thing, and documentation says which.

use std::collections::BTreeSet;
use std::path::Path;

use oomscope::allocator::verdict::{Certainty, Verdict};
use oomscope::analysis::{CureRow, Fact};
use oomscope::base::warning::Code;
use oomscope::compare::diff::{MatchedBy, Status};
use oomscope::compare::gate::Severity;
use oomscope::explain::StandardAdvice;
use oomscope::stacks::phases::{Phase, StepMarker};
use oomscope::study::attribution::{Category, Confidence};
use oomscope::study::figures::Figure;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn is_kebab(word: &str) -> bool {
    !word.is_empty()
        && word
            .split('-')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

/// Words of one kind: each once, in kebab-case.
fn assert_words(kind: &str, words: &[&str]) {
    let distinct: BTreeSet<&str> = words.iter().copied().collect();
    assert_eq!(distinct.len(), words.len(), "{kind}: one word for two things: {words:?}");
    assert!(words.iter().all(|word| is_kebab(word)), "{kind}: {words:?}");
}

/// The rows of a table stand in `name`, in this order and without others between them.
fn assert_table(name: &str, rows: &[String]) {
    let table = rows.join("\n");
    assert!(document(name).contains(&table), "docs/{name} should have\n\n{table}\n");
}

#[test]
fn codes_of_warnings_are_distinct() {
    assert_words("code", &Code::ALL.iter().map(|code| code.word()).collect::<Vec<_>>());
}

#[test]
fn verdicts_are_distinct_and_documented_with_questions_and_advice() {
    assert_words("verdict", &Verdict::ALL.iter().map(|it| it.word()).collect::<Vec<_>>());
    let row = |it: &Verdict| format!("| `{it}` | {} | {} |", it.meaning(), StandardAdvice::for_verdict(*it).text);
    let of_failures = Verdict::ALL.iter().filter(|it| **it != Verdict::Served);
    assert_table("failures.md", &of_failures.map(row).collect::<Vec<_>>());
    // Of the kinds of memory that a message tells apart.
    let explained = document("explain.md");
    for verdict in Verdict::ALL {
        let is_of_message = !matches!(verdict, Verdict::Growth | Verdict::Served);
        assert!(explained.contains(&format!("`{verdict}`")) || !is_of_message);
    }
}

/// The text before the first comma or colon that is in no parentheses: the rest repeats the facts.
fn first_clause(sentence: &str) -> &str {
    let mut depth = 0;
    for (at, character) in sentence.char_indices() {
        depth += i32::from(character == '(') - i32::from(character == ')');
        let rest = &sentence[at..];
        if depth == 0 && (rest.starts_with(", ") || rest.starts_with(": ")) {
            return &sentence[..at];
        }
    }
    sentence
}

/// The table of docs/cures.md: a row for each of the program's.
fn render_cures() -> String {
    let row = |row: &CureRow| {
        let facts: Vec<&str> = row.when.iter().map(|fact| fact.word()).collect();
        let change = row.sentences.last().map_or("none", |sentence| first_clause(sentence));
        format!("| {} | {change} |", facts.join(","))
    };
    CureRow::all().map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn cures_are_documented_row_by_row() {
    assert_words("fact", &Fact::ALL.iter().map(|it| it.word()).collect::<Vec<_>>());
    let is_used = |fact: &Fact| CureRow::all().any(|row| row.when.contains(fact));
    assert!(Fact::ALL.iter().all(is_used));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = document("cures.md");
        let (head, rest) = page.split_once("|---|---|\n").unwrap();
        let tail = rest.split_once("\n\n").map_or("", |(_, tail)| tail);
        let text = format!("{head}|---|---|\n{}\n\n{tail}", render_cures());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cures.md");
        std::fs::write(path, text.trim_end().to_owned() + "\n").unwrap();
    }
    assert_table("cures.md", &[render_cures()]);
}

/// Whether `name` has `word` as code or in the quotes of JSON.
fn mentions(name: &str, word: &str) -> bool {
    let document = document(name);
    document.contains(&format!("`{word}`")) || document.contains(&format!("\"{word}\""))
}

/// Of each kind every word is there once, and each of the documents has it.
macro_rules! assert_documented {
    ($($Kind:ident in $documents:expr;)*) => {
        $(
            let words: Vec<&str> = $Kind::ALL.iter().map(|it| it.word()).collect();
            assert_words(stringify!($Kind), &words);
            for document in $documents as [&str; _] {
                let missing: Vec<_> = words.iter().filter(|it| !mentions(document, it)).collect();
                assert!(missing.is_empty(), "docs/{document}: {} {missing:?}", stringify!($Kind));
            }
        )*
    };
}

#[test]
fn words_of_every_kind_are_distinct_and_documented() {
    assert_documented! {
        Category in ["where.md"];
        Certainty in [];
        Confidence in [];
        MatchedBy in ["diff.md"];
        Phase in ["where.md"];
        Severity in [];
        Status in [];
        StepMarker in [];
    }
}

#[test]
fn figures_are_distinct() {
    assert_words("figure", &Figure::ALL.iter().map(|it| it.word()).collect::<Vec<_>>());
    let keys: BTreeSet<String> = Figure::ALL.iter().map(|it| it.json_key()).collect();
    assert_eq!(keys.len(), Figure::ALL.len(), "one key for two figures");
}
