//! Every public word stands for one thing, and documentation says which.

use std::collections::BTreeSet;
use std::path::Path;

use oomscope::notice::Code;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn is_kebab(word: &str) -> bool {
    !word.is_empty()
        && word.split('-').all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
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
fn codes_of_warnings_are_distinct_and_listed() {
    assert_words("code", &Code::ALL.iter().map(|code| code.word()).collect::<Vec<_>>());
    let row = |code: &Code| format!("| `{code}` | {} |", code.meaning());
    assert_table("json.md", &Code::ALL.iter().map(row).collect::<Vec<_>>());
}
