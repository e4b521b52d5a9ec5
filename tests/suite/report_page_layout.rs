//! The layout of the page of `oomscope report`: the picture first, and panes that stay in sight, in wide and narrow windows.
//! Slow: a browser draws many pages.

use oomscope::base::units::size;
use serde_json::json;

use crate::report_page::{fixture, page};
use crate::support::browser::Browser;
use crate::support::program::analyze;

/// Where an element is in the window: top, right, bottom, left.
fn place(browser: &mut Browser, selector: &str) -> [f64; 4] {
    let sides = browser.value(&format!(
        "(() => {{ const b = document.querySelector('{selector}').getBoundingClientRect(); \
         return [b.top, b.right, b.bottom, b.left]; }})()"
    ));
    serde_json::from_value(sides).unwrap()
}

fn is_in_window(browser: &mut Browser, selector: &str, [width, height]: [u32; 2]) -> bool {
    let [top, right, bottom, left] = place(browser, selector);
    top >= 0.0 && left >= 0.0 && bottom <= f64::from(height) && right <= f64::from(width) && bottom > top
}

#[test]
fn the_timeline_comes_first_and_the_figures_stay_in_sight() {
    let Some(mut browser) = Browser::start() else { return };
    for names in [&["2.15.0-oom_varlen-at-oom"][..], &["2.15.0-two_devices", "2.15.0-holes-at-oom"]] {
        let file = browser.report(names, "");
        for [width, height] in [[1280, 800], [1920, 1080], [390, 844]] {
            browser.resize(width, height);
            browser.open(&file, "");
            browser.settle();
            let [top, ..] = place(&mut browser, "#controls + section + section");
            assert!(top < 400.0, "{names:?} {width}: the first view begins at {top}");
            let [top, _, bottom, _] = place(&mut browser, "h1");
            let lines = if width > 1000 { 1.0 } else { 3.0 };
            assert!(bottom - top < 26.0 * lines, "{names:?} {width}: the headline is {} high", bottom - top);
            let cut = browser.value(
                "(() => { const h1 = document.querySelector('h1'); return h1.scrollWidth - h1.clientWidth; })()",
            );
            assert_eq!(cut, 0, "{names:?} {width}: the headline is cut off");
            let wide = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, json!(0), "{names:?} {width}: the page is wider than the window");
            if names.len() > 1 {
                let [_, right, _, left] = place(&mut browser, ".page");
                assert!(right - left > 100.0, "{width}: the name of a device has {} pixels", right - left);
            }
            // Far below, the figures follow the moment in sight of the reader.
            browser.value("scrollTo(0, 600)");
            let before = browser.content("tiles");
            browser.key("ArrowLeft");
            browser.apply("oomscope.show({ moment: 40 })");
            assert_ne!(browser.content("tiles"), before);
            if width < 900 {
                let scrolls = browser.value("document.getElementById('tiles').tabIndex");
                assert_eq!(scrolls, 0, "what scrolls is reached by keys");
                let tools = browser.value("getComputedStyle(document.querySelector('.tools')).maskImage");
                assert_ne!(tools, json!("none"), "a row that scrolls fades");
            } else {
                let [.., bottom, _] = place(&mut browser, "#dock");
                assert!((bottom - f64::from(height)).abs() < 2.0, "{width}: the dock ends at {bottom}");
            }
            for part in ["#when", "#tiles b", "#tab-result"] {
                assert!(is_in_window(&mut browser, part, [width, height]), "{names:?} {width}: {part} is out of sight");
            }
        }
    }
}

/// What proves the verdict: the map of a fragmentation, the lines that keep memory, the last steps.
#[test]
fn the_proof_is_on_the_first_screen() {
    let Some(mut browser) = Browser::start() else { return };
    browser.resize(1440, 900);
    let proofs = [
        ("2.15.0-gpt_varlen-at-oom", "#map-frame", "#overview"),
        ("recorded/2.15.0-losses_kept", "#kept table", "#timeline"),
        ("2.15.0-oom_varlen-at-oom", "#timeline", "#axis"),
    ];
    for (name, proof, beside) in proofs {
        browser.report(&[name], "");
        browser.settle();
        for part in [proof, beside] {
            assert!(is_in_window(&mut browser, part, [1440, 900]), "{name}: {part} at {:?}", place(&mut browser, part));
        }
        let [top, ..] = place(&mut browser, proof);
        assert!(top < 300.0, "{name}: {proof} begins at {top}");
    }
}

#[test]
fn kept_memory_is_highlighted_until_it_is_cleared() {
    let Some(mut browser) = Browser::start() else { return };
    let file = browser.report(&["recorded/2.15.0-losses_kept"], "");
    browser.settle();
    let note = "document.getElementById('highlight-note').textContent";
    assert_eq!(browser.value(note), json!("kept after every step: 167 MiB in 126 blocks, 126 in all"));
    let rows = browser.value("[...document.querySelectorAll('#kept tbody tr')].map((row) => row.textContent)");
    assert_eq!(rows.as_array().unwrap().len(), 3, "{rows}");
    assert!(rows[0].as_str().unwrap().contains("jobs/named.py:17 forward"), "{rows}");
    browser.apply("document.querySelector('#kept tbody button').click()");
    let one = browser.value(note);
    assert!(one.as_str().unwrap().contains("kept by jobs/named.py:17 forward: 162 MiB in 108 blocks"), "{one}");
    browser.apply("document.getElementById('highlight-clear').click()");
    assert_eq!(browser.value(note), json!(""));
    let hash = browser.value("location.hash");
    browser.open(&file, hash.as_str().unwrap());
    browser.settle();
    assert_eq!(browser.value(note), json!(""), "a link shows what was seen: {hash}");
}

#[test]
fn a_guess_is_hatched_and_marked() {
    let Some(mut browser) = Browser::start() else { return };
    browser.report(&["dead_ends/leak_losses"], "#q=");
    browser.settle();
    let keys = browser.value(
        "[...document.querySelectorAll('#legend .key')].map((one) => \
         [one.textContent.replace(/ [\\d.]+ [KMG]?i?B$/, ''), one.querySelector('.swatch').className])",
    );
    for expected in [json!(["activations (a guess)", "swatch guess"]), json!(["parameters", "swatch"])] {
        assert!(keys.as_array().unwrap().contains(&expected), "{expected} in {keys}");
    }
    // Each is one run of pixels in the last column: a hatched band has more than one colour.
    let colours = browser.value(
        "(() => { const canvas = document.getElementById('timeline'), { width, height } = canvas; \
         const at = (y) => new Set(new Uint32Array(canvas.getContext('2d').getImageData(20, Math.round(y * height), 60, 1).data.buffer)).size; \
         return [at(0.5), at(0.99)]; })()",
    );
    assert_eq!(colours, json!([2, 1]), "activations are hatched, parameters are not");
}

#[test]
fn without_a_trace_there_is_no_time() {
    let Some(mut browser) = Browser::start() else { return };
    browser.resize(1440, 900);
    browser.report(&["2.15.0-gpt_varlen-no-history"], "");
    browser.settle();
    let parts = ["time-section", "timeline-table", "legend", "axis", "back", "forward", "whole", "tab-entries"];
    for part in parts {
        let shown = browser.value(&format!("document.getElementById('{part}').getClientRects().length"));
        assert_eq!(shown, 0, "{part}");
    }
    assert_eq!(browser.value("document.querySelector('[data-mode=segment]').getClientRects().length"), 0);
    assert!(is_in_window(&mut browser, "#map-frame", [1440, 900]));
}

#[test]
fn a_pane_is_chosen_by_pointer_and_by_key() {
    let Some(mut browser) = Browser::start() else { return };
    browser.resize(390, 844);
    browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    let is_shown = |browser: &mut Browser, pane: &str| {
        browser.value(&format!("document.getElementById('pane-{pane}').getBoundingClientRect().height > 100"))
    };
    assert_eq!(is_shown(&mut browser, "result"), false, "in a narrow window the dock is folded at first");
    for shown in [true, false] {
        browser.apply("document.getElementById('tab-result').click()");
        assert_eq!(is_shown(&mut browser, "result"), shown);
    }
    browser.resize(1280, 800);
    browser.settle();
    assert_eq!(is_shown(&mut browser, "result"), true);
    let moment = browser.value("oomscope.view().moment");
    browser.value("document.getElementById('tab-result').focus()");
    browser.key("ArrowLeft");
    browser.settle();
    let tab = browser.value("document.activeElement.id");
    assert_ne!(tab, "tab-result");
    assert_eq!(browser.value("document.activeElement.getAttribute('aria-selected')"), "true");
    assert_eq!(is_shown(&mut browser, "result"), false);
    assert_eq!(browser.value("oomscope.view().moment"), moment, "keys in the row of tabs do not move the moment");
    browser.apply("oomscope.show({ selected: 5 })");
    assert_eq!(is_shown(&mut browser, "selected"), true);
    browser.key("o");
    browser.settle();
    assert_eq!(is_shown(&mut browser, "result"), true, "a failure is explained in its pane");
}

/// Recordings with a failed request, of every verdict.
const FAILURES: [&str; 20] = [
    "2.15.0-oom_varlen-at-oom",
    "2.15.0-gpt_varlen-at-oom",
    "2.9.1-oom_varlen-expandable-at-oom",
    "2.15.0-fuzz-fraction-oom",
    "2.15.0-fuzz-max_split-gc-oom",
    "2.15.0-fuzz_streams-oom-lag",
    "2.1.2-holes-at-oom",
    "recorded/2.15.0-losses_kept",
    "dead_ends/leak_losses",
    "goes_on/varying_lengths-430",
    "failures/capacity-training",
    "failures/fragmentation-training",
    "failures/memory_limit-training",
    "failures/other_stream",
    "failures/outside-training",
    "failures/pending_free-training",
    "failures/private_pool-training",
    "failures/spurious-training",
    "lines/2.15.0-oom_backward",
    "engines/2.14.0-colocated-awake-oom",
];

/// Bottom of each part of the answer by its name, and how much of the headline is cut off.
const ANSWER: &str = "(() => { const bottom = (one) => one.getBoundingClientRect().bottom; \
    const rows = [...document.querySelectorAll('#answer dl > div')]; const h1 = document.querySelector('h1'); \
    return [rows.map((row) => [row.firstElementChild.textContent, row.getBoundingClientRect().top, bottom(row)]), \
            h1.scrollWidth - h1.clientWidth]; })()";

/// A page of paper: A4 at 96 pixels an inch, without the margins that Chromium leaves.
const PAPER: [u32; 2] = [718, 1047];

#[test]
#[ignore = "slow: .ci/release runs it"]
fn why_and_do_are_on_the_first_screen_of_every_failure() {
    let Some(mut browser) = Browser::start() else { return };
    for name in FAILURES {
        let file = browser.report(&[name], "");
        for size in [[1600, 1000], [1440, 900], [1280, 800], [1000, 800], [390, 844], PAPER] {
            browser.resize(size[0], size[1]);
            let media = if size == PAPER { "print" } else { "" };
            browser.call("Emulation.setEmulatedMedia", json!({ "media": media }));
            browser.open(&file, "");
            if size == PAPER {
                browser.value("dispatchEvent(new Event('beforeprint'))");
            }
            browser.settle();
            let dock = browser.value("document.getElementById('dock').getBoundingClientRect().top");
            let is_narrow = size[0] <= 1000 && size != PAPER;
            let end = if is_narrow { dock.as_f64().unwrap() } else { size[1].into() };
            let (rows, cut): (Vec<(String, f64, f64)>, i32) = serde_json::from_value(browser.value(ANSWER)).unwrap();
            for part in ["why", "do"] {
                let (_, top, bottom) =
                    rows.iter().find(|row| row.0 == part).unwrap_or_else(|| panic!("{name}: no {part}"));
                assert!(*top >= 0.0 && *bottom <= end, "{name} {size:?}: {part} is from {top} to {bottom} of {end}");
            }
            assert_eq!(cut, 0, "{name} {size:?}: the headline is cut off");
        }
    }
}

#[test]
fn a_search_does_not_move_the_charts() {
    let Some(mut browser) = Browser::start() else { return };
    browser.resize(1280, 800);
    browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    browser.settle();
    let before = place(&mut browser, "#timeline-frame");
    browser.apply("oomscope.show({ query: 'attention' })");
    assert_ne!(browser.content("highlight-note"), "");
    assert_eq!(place(&mut browser, "#timeline-frame"), before);
    for moment in [0, 600, 20_000] {
        browser.apply(&format!("oomscope.show({{ moment: {moment}, query: '' }})"));
        let keys = "[document.getElementById('legend').scrollHeight, document.getElementById('legend').clientHeight]";
        let heights = browser.value(keys);
        assert!(heights[0].as_u64() <= heights[1].as_u64(), "the legend is cut off: {heights}");
    }
}

/// A table is ordered by the column that is clicked; exact bytes decide.
#[test]
fn every_table_sorts() {
    let Some(mut browser) = Browser::start() else { return };
    browser.report(&["2.15.0-oom_varlen-at-oom"], "#d=search");
    browser.apply("oomscope.show({ query: 'attention' })");
    browser.apply("for (const one of document.querySelectorAll('#app details')) one.open = true");
    let sorted = browser.value(
        "[...document.querySelectorAll('#app table')].filter((table) => table.tHead && table.getClientRects().length).map((table) => { \
           const head = [...table.tHead.rows[0].cells].find((one) => /^(n|number)$/.test(one.className) && one.textContent); \
           const values = () => [...table.tBodies[0].rows].map((row) => { const cell = row.cells[head.cellIndex]; \
             const exact = cell.querySelector('[data-value]'); return exact ? Number(exact.dataset.value) : null; }); \
           head.querySelector('button').click(); const down = values(); head.querySelector('button').click(); const up = values(); \
           const isOrdered = (list, by) => list.every((one, at) => !at || one === null || list[at - 1] === null || by * (one - list[at - 1]) >= 0); \
           return [table.innerText.slice(0, 40), isOrdered(down, -1), isOrdered(up, 1)]; })",
    );
    let sorted = sorted.as_array().unwrap();
    assert!(sorted.len() >= 6, "{sorted:?}");
    for table in sorted {
        assert_eq!((&table[1], &table[2]), (&json!(true), &json!(true)), "{table}");
    }
}

/// Without scripts the page has a picture, which is small.
#[test]
#[ignore = "slow: .ci/release runs it"]
fn a_page_without_scripts_has_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    for name in FAILURES {
        let html = std::fs::read_to_string(page(directory.path(), &[&fixture(name)])).unwrap();
        let (_, rest) = html.split_once("<figure class=\"course\">").unwrap_or_else(|| panic!("{name}: no picture"));
        let picture = rest.split_once("</figure>").unwrap().0;
        assert!(picture.len() < 30_000, "{name}: {} bytes", picture.len());
        let oom = analyze(&[&fixture(name)])["snapshots"][0]["devices"][0]["ooms"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        let requested = size(oom["requested_bytes"].as_u64().unwrap());
        assert!(picture.contains(&format!("failed: {requested} requested")), "{name}: {picture:.300}");
        assert!(html.find("class=\"answer\"") < html.find("<figure"), "{name}");
    }
}

/// Text on bars has a contrast of at least 4.5 (WCAG 2, AA), whatever the colour of the bar.
#[test]
fn text_on_bars_can_be_read() {
    let Some(mut browser) = Browser::start() else { return };
    browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    for scheme in ["light", "dark"] {
        let media = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "media": "", "features": media }));
        for mode in ["category", "line", "variable"] {
            browser.apply(&format!("oomscope.show({{ mode: '{mode}' }})"));
            let worst = browser.value("oomscope.contrast()").as_f64().unwrap();
            assert!((4.5..=21.0).contains(&worst), "{scheme} {mode}: {worst}");
        }
    }
}

/// Labels begin with the function; turned over, the graph has the same memory, from the lines that allocated.
#[test]
fn the_flame_graph_turns_over() {
    let Some(mut browser) = Browser::start() else { return };
    let file = browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    browser.settle();
    let said = |browser: &mut Browser, rows: usize| {
        browser.value("document.getElementById('flame').focus()");
        for _ in 0..rows {
            browser.key("ArrowDown");
        }
        let text = browser.value("document.getElementById('announcer').textContent");
        browser.value("document.getElementById('flame').blur()");
        text.as_str().unwrap().to_owned()
    };
    let (all, outer) = (said(&mut browser, 1), said(&mut browser, 2));
    assert!(outer.starts_with("<module>  app/record.py:119"), "{outer}");
    browser.apply("document.getElementById('callers').click()");
    let inner = said(&mut browser, 2);
    assert_eq!(said(&mut browser, 1), all, "the same memory");
    assert!(inner.starts_with("softmax  nn/functional.py:2213"), "{inner}");
    let hash = browser.value("location.hash");
    browser.open(&file, hash.as_str().unwrap());
    browser.settle();
    assert_eq!(said(&mut browser, 2), inner, "a link has it");
}
