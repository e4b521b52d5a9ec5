//! Two moments compared, and the search and the filter, in the page of `oomscope report`: the sums are those of the
//! page's data, decoded independently. Slow: a browser draws many pages.

use std::collections::BTreeMap;

use serde_json::json;

use crate::report_page::{fixture, page};
use crate::support::browser::Browser;
use crate::support::page::{Allocation, Page, Recording};

fn recording(file: &std::path::Path) -> Recording {
    Page::read(std::fs::read_to_string(file).unwrap()).devices.remove(0)
}

fn is_live(one: &Allocation, moment: u64) -> bool {
    one.start <= moment && one.requested.is_none_or(|freed| freed > moment)
}

/// Bytes that came, went and stayed, by the name of each allocation's kind.
fn fates(recording: &Recording, from: u64, to: u64, name: impl Fn(usize) -> String) -> BTreeMap<String, [u64; 3]> {
    let mut fates: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for one in &recording.allocations {
        let fate = match (is_live(one, from), is_live(one, to)) {
            (false, true) => 0,
            (true, false) => 1,
            (true, true) => 2,
            (false, false) => continue,
        };
        fates.entry(name(one.kind)).or_default()[fate] += one.bytes;
    }
    fates
}

#[test]
fn two_moments_are_compared() {
    let Some(mut browser) = Browser::start() else { return };
    let file = browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    let recording = recording(&file);
    let (line, labels) = (recording.column("kline"), recording.column("ltext"));
    let category = recording.column("kcategory");
    for [from, to] in [[2_000, 53_079], [30_000, 31_000], [52_000, 52_000]] {
        for by in ["line", "category"] {
            let name = |kind: usize| match by {
                "line" => recording.strings[labels[line[kind] as usize] as usize].clone(),
                _ => {
                    let word = recording.header["categories"][category[kind] as usize].as_str().unwrap();
                    word.replace('-', " ")
                }
            };
            let wanted = fates(&recording, from, to, name);
            let shown = browser.value(&format!("oomscope.compare({from}, {to}, '{by}')"));
            let shown: BTreeMap<String, [u64; 3]> = shown["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| {
                    let fate = |fate: &str| row[fate].as_u64().unwrap();
                    (row["label"].as_str().unwrap().to_owned(), ["came", "went", "stayed"].map(fate))
                })
                .collect();
            assert_eq!(shown, wanted, "{from} to {to} by {by}");
        }
    }
    // Two clicks compare the ends of the last two steps; one more highlights what came.
    browser.value("document.getElementById('tab-compare').click()");
    browser.value("document.getElementById('last-steps').click()");
    let steps = &recording.header["steps"];
    let count = steps.as_array().unwrap().len();
    let view = browser.value("oomscope.view()");
    assert_eq!((&view["from"], &view["moment"]), (&steps[count - 2], &steps[count - 1]));
    let shown = browser.content("comparison");
    assert!(shown.contains("from A to B") && shown.contains("stayed 389 MiB in 294 blocks"), "{shown}");
    browser.value("document.querySelector('#comparison button').click()");
    let note = browser.content("highlight-note");
    assert!(note.starts_with("came between A, after entry ") && note.contains(": 132 MiB in 100 blocks"), "{note}");
    // The address has the comparison.
    browser.settle();
    let (seen, hash) = (browser.value("oomscope.view()"), browser.value("location.hash"));
    browser.open(&file, hash.as_str().unwrap());
    assert_eq!(browser.value("oomscope.view()"), seen);
    assert_eq!(browser.content("comparison"), shown);
}

#[test]
fn a_little_memory_is_found_and_shown_alone() {
    let Some(mut browser) = Browser::start() else { return };
    let file = browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    let recording = recording(&file);
    browser.value(
        "(() => { const field = document.getElementById('query'); field.value = 'workloads.py:49'; \
         field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' })); })()",
    );
    let found = browser.content("found");
    assert!(found.starts_with("25 allocations found") && found.contains("98 KiB after entry 52,696"), "{found}");
    let view = browser.value("oomscope.view()");
    assert_eq!((&view["only"], &view["moment"], &view["pane"]), (&json!(true), &json!(52_697), &json!("search")));
    // The picture is scaled to it: 98 KiB of 5 GiB fill most of the height.
    let legend = browser.content("legend");
    assert_eq!(legend, "inputs (a guess) 98 KiBinputs 0 B");
    browser.value("document.querySelector('#found tbody button').click()");
    assert!(browser.content("selection").contains("98 KiB"));
    browser.key("Escape");
    assert_eq!(browser.value("oomscope.view().only"), false);

    // A filter, against the data.
    let category = recording.column("kcategory");
    let wanted = recording.allocations.iter().filter(|one| {
        let lived = one.requested.unwrap_or(recording.number("entries") + 1) - one.start;
        let word = &recording.header["categories"][category[one.kind] as usize];
        word == "activations" && one.bytes >= 32 << 20 && (100..=5000).contains(&lived)
    });
    let wanted = wanted.count();
    assert!(wanted > 10);
    browser.apply("document.getElementById('tab-search').click()");
    for (name, value) in [("category", "activations"), ("min", "32 MiB"), ("lives", "100"), ("dies", "5000")] {
        browser.apply(&format!(
            "(() => {{ const field = document.querySelector('[data-filter={name}]'); field.value = '{value}'; \
             field.dispatchEvent(new Event('change')); }})()"
        ));
    }
    assert_eq!(browser.value("oomscope.view().filter"), "category=activations;min=33554432;lives=100;dies=5000");
    let found = browser.content("found");
    assert!(found.starts_with(&format!("{wanted} allocations found")), "{found}");
}

#[test]
fn memory_without_a_stack_has_a_box() {
    let Some(mut browser) = Browser::start() else { return };
    // The backward pass runs in a thread of its own, without Python frames.
    let file = browser.report(&["2.15.0-gpt_varlen-no-history"], "");
    let none = recording(&file).live_without_frames();
    browser.value("oomscope.show({ query: 'stack:none' })");
    let note = browser.content("highlight-note");
    assert!(note.contains(&format!("in {none} block")), "{none}: {note}");
}

#[test]
fn a_long_list_of_devices_is_narrowed() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..9).map(|rank| format!("rank{rank}.pickle.gz")).collect();
    for name in &names {
        std::fs::copy(fixture("2.15.0-holes-at-oom"), directory.path().join(name)).unwrap();
    }
    let files: Vec<String> = names.iter().map(|name| directory.path().join(name).display().to_string()).collect();
    browser.open(&page(directory.path(), &files.iter().map(String::as_str).collect::<Vec<_>>()), "");
    browser.value(
        "(() => { const field = document.getElementById('pages-filter'); field.value = 'RANK7'; \
         field.dispatchEvent(new Event('input')); })()",
    );
    let shown = browser.value(
        "[...document.querySelectorAll('.page')].filter((row) => row.offsetHeight).map((row) => row.textContent)",
    );
    assert_eq!(shown.as_array().unwrap().len(), 1, "{shown}");
    assert!(shown[0].as_str().unwrap().starts_with("rank7"), "{shown}");
    let top = browser.value("document.getElementById('map').getBoundingClientRect().top");
    assert!(top.as_f64() < Some(400.0), "{top}");
}
