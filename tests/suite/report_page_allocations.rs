//! What the page of `oomscope report` writes about an allocation is what `export` has of it, wherever the page writes it:
//! the tooltip of the timeline and of the map, and the pane of the selected one. Without a browser this test says so and
//! passes. It takes seconds: eleven pages are opened, and their allocations compared one by one.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use oomscope::base::units::{count, counted, size};
use serde_json::{Value, json};

use crate::report_page::{KINDS, fixture, page};
use crate::support::browser::Browser;
use crate::support::program::{result_of, text};

/// The texts of a page's allocations by address and the index of the first entry; those of `export`, which follow it.
type Texts = HashMap<(u64, Option<u64>), String>;

/// The rows of a CSV file, each by the names of its columns.
fn csv(path: &Path) -> Vec<HashMap<String, String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows: Vec<Vec<String>> = vec![vec![String::new()]];
    let mut is_quoted = false;
    let mut letters = text.trim_end().chars().peekable();
    while let Some(letter) = letters.next() {
        let row = rows.last_mut().unwrap();
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => row.last_mut().unwrap().push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(String::new()),
            '\n' if !is_quoted => rows.push(vec![String::new()]),
            letter => row.last_mut().unwrap().push(letter),
        }
    }
    let names = rows.remove(0);
    rows.into_iter().map(|row| names.iter().cloned().zip(row).collect()).collect()
}

/// The allocations of `device` in the tables of `export`, in the words of the page, up to when their memory can be used
/// again, which these tables do not have.
fn exported(tables: &Path, device: &str) -> Texts {
    let stacks = csv(&tables.join("stacks.csv"));
    let frames = stacks.iter().map(|row| {
        let frames: Value = serde_json::from_str(&row["frames"]).unwrap();
        let line = |frame: &Value| {
            format!("{}:{} {}", frame["file"].as_str().unwrap(), frame["line"], frame["name"].as_str().unwrap())
        };
        (row["stack_id"].clone(), frames.as_array().unwrap().iter().map(line).collect())
    });
    let frames: HashMap<String, Vec<String>> = frames.collect();
    let allocations = csv(&tables.join("allocations.csv"));
    let of_device = allocations.into_iter().filter(|row| row["device"] == device);
    of_device
        .map(|row| {
            (
                (row["address"].parse().unwrap(), row["start_event"].parse().ok()),
                describe(&row, &frames[&row["stack_id"]]),
            )
        })
        .collect()
}

fn describe(row: &HashMap<String, String>, frames: &[String]) -> String {
    let number = |name: &str| row[name].parse::<u64>().ok();
    let bytes = number("bytes").unwrap();
    let requested = number("requested_bytes").filter(|requested| *requested != bytes);
    let requested = requested.map_or_else(String::new, |requested| format!(", {} bytes requested", count(requested)));
    let category = row["category"].replace('-', " ").replace("kv ", "KV ");
    let guess = if row["confidence"] == "low" && category != "other" { " (a guess)" } else { "" };
    let pool = match &*row["pool_id"] {
        "0:0" => "default pool".to_owned(),
        pool => format!("private pool {pool}"),
    };
    let stream = &row["stream"];
    let start = number("start_event");
    let begins = start.map_or_else(
        || "from before the first entry".to_owned(),
        |start| format!("allocated at entry {}", count(start)),
    );
    let ends = match number("end_event") {
        None => "live to the end".to_owned(),
        Some(end) => {
            let entries = start.map_or(end + 1, |start| end - start);
            format!("freed at entry {}, {} later", count(end), counted(entries, "entry"))
        }
    };
    let kept = if row["name"].is_empty() { String::new() } else { format!("\nkept by {}", row["name"]) };
    let stack = if frames.is_empty() { "no stack recorded".to_owned() } else { frames.join("\n") };
    format!("{}{requested}: {category}{guess}, {pool}, stream {stream}\n{begins}, {ends}{kept}\n{stack}", size(bytes))
}

/// Whether the page's `text` is `exported`: it leaves out frames of the interpreter, marks the user's, says more of the
/// variable that keeps it, and when memory that waits for another stream can be used again.
fn is_same(text: &str, exported: &str) -> bool {
    let mut wanted = exported.lines();
    text.lines().enumerate().all(|(at, line)| {
        let line = line.trim_start_matches(['▸', ' ']);
        match at {
            0 => wanted.next() == Some(line),
            1 => wanted
                .next()
                .is_some_and(|wanted| line == wanted || line.starts_with(&format!("{wanted}; its memory "))),
            _ => wanted.any(|wanted| {
                line == wanted || wanted.starts_with("kept by ") && line.starts_with(&format!("{wanted}: "))
            }),
        }
    })
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn the_page_and_export_agree_on_every_allocation() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (mut categories, mut met) = (BTreeSet::new(), [0, 0]);
    for name in KINDS {
        let file = fixture(name);
        browser.open(&page(directory.path(), &[&file]), "");
        let tables = directory.path().join(name);
        result_of(&["export", "--format", "csv", "-o", &text(&tables), &file]);
        let pages = browser.value("JSON.parse(document.getElementById('pages').textContent)");
        for (index, row) in pages.as_array().unwrap().iter().enumerate() {
            browser.value(&format!("oomscope.show({{ page: {index} }})"));
            let exported = exported(&tables, &row["device"].to_string());
            let shown = browser.value("oomscope.allocations()");
            let shown: Vec<(String, String)> = serde_json::from_value(shown).unwrap();
            for (address, text) in &shown {
                let wanted = &exported[&key(address, text)];
                assert!(is_same(text, wanted), "{name}: the page writes\n{text}\nand export\n{wanted}");
            }
            let texts: HashMap<&str, usize> = shown.iter().enumerate().map(|(at, (_, text))| (&**text, at)).collect();
            let of_page = hover(&mut browser, name, &texts);
            met = [met[0] + of_page[0], met[1] + of_page[1]];
            categories.extend(shown.iter().map(|(_, text)| category(text).to_owned()));
            select(&mut browser, name, &shown);
        }
    }
    assert!(met.iter().all(|met| *met > 20), "on the timeline and the map the pointer met {met:?} allocations");
    let guesses = categories.iter().filter(|one| one.ends_with(" (a guess)")).count();
    assert!(categories.len() - guesses > 5 && guesses > 1, "{categories:?}");
}

/// The category in the first line of a text, with "(a guess)" if it is one.
fn category(text: &str) -> &str {
    let first = text.lines().next().unwrap();
    first.split_once(": ").unwrap().1.split(", ").next().unwrap()
}

/// The address as a number, and the index of the first entry in a text of the page.
fn key(address: &str, text: &str) -> (u64, Option<u64>) {
    let start = text.lines().nth(1).unwrap().strip_prefix("allocated at entry ");
    let digits = |text: &str| text.chars().take_while(|c| *c != ' ').filter(char::is_ascii_digit).collect::<String>();
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
    (address, start.map(|rest| digits(rest.split(", ").next().unwrap()).parse().unwrap()))
}

/// The pointer on the timeline, where each allocation is drawn, and on the map: one of `texts` is shown. How many were.
fn hover(browser: &mut Browser, name: &str, texts: &HashMap<&str, usize>) -> [u32; 2] {
    browser.apply("oomscope.show({ mode: 'each' })");
    let mut seen = [0, 0];
    for (canvas, seen) in ["timeline", "map"].into_iter().zip(&mut seen) {
        let (x, y) = browser.middle(canvas);
        for by in -2..=2 {
            for down in -1..=1 {
                browser.mouse("mouseMoved", (x + 140.0 * f64::from(by), y + 60.0 * f64::from(down)), 0.0);
                let tip = browser
                    .value("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent");
                let tip = tip.as_str().unwrap();
                let Some(start) = tip.lines().position(|line| line.contains("pool") && line.contains(": ")) else {
                    continue;
                };
                let lines: Vec<&str> = tip.lines().collect();
                if lines[start].starts_with("in a ") || lines[start].starts_with("free") {
                    continue;
                }
                let shown: Vec<&str> = lines[start..]
                    .iter()
                    .copied()
                    .filter(|line| !line.starts_with("in a ") && !line.starts_with("   and "))
                    .collect();
                let shown = shown.join("\n");
                assert!(texts.keys().any(|text| text.starts_with(&shown)), "{name}, {canvas}: {tip}");
                *seen += 1;
            }
        }
    }
    seen
}

/// The pane of the selected allocation, for one of each category.
fn select(browser: &mut Browser, name: &str, shown: &[(String, String)]) {
    let mut done: Vec<&str> = Vec::new();
    for (row, (address, text)) in shown.iter().enumerate() {
        let mut lines = text.lines();
        let (first, life) = (lines.next().unwrap(), lines.next().unwrap());
        if done.contains(&category(text)) {
            continue;
        }
        done.push(category(text));
        browser.value(&format!("oomscope.show({{ selected: {row} }})"));
        let pane =
            browser.value("[...document.querySelectorAll('#selection > p')].slice(0, 2).map((one) => one.textContent)");
        assert_eq!(pane, json!([first, format!("{life}; at {address}")]), "{name}");
    }
}
