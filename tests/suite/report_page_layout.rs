//! The layout of the page of `oomscope report`: the picture first, and panes that stay in sight, in wide and narrow windows.

use serde_json::{Value, json};

use crate::report_page::{fixture, page};
use crate::support::browser::Browser;

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
    let directory = tempfile::tempdir().unwrap();
    for names in [&["2.15.0-oom_varlen-at-oom"][..], &["2.15.0-two_devices", "2.15.0-holes-at-oom"]] {
        let files: Vec<String> = names.iter().map(|name| fixture(name)).collect();
        let file = page(directory.path(), &files.iter().map(String::as_str).collect::<Vec<_>>());
        for [width, height] in [[1280, 800], [1920, 1080], [390, 844]] {
            browser.resize(width, height);
            browser.open(&file, "");
            browser.settle();
            let [top, ..] = place(&mut browser, "#controls + section + section");
            assert!(top < 400.0, "{names:?} {width}: the first view begins at {top}");
            let [top, _, bottom, _] = place(&mut browser, "h1");
            let lines = if width > 900 { 1.0 } else { 3.0 };
            assert!(bottom - top < 26.0 * lines, "{names:?} {width}: the headline is {} high", bottom - top);
            let cut = browser.value(
                "(() => { const h1 = document.querySelector('h1'); return h1.scrollWidth - h1.clientWidth; })()",
            );
            assert_eq!(cut, 0, "{names:?} {width}: the headline is cut off");
            let wide = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, json!(0), "{names:?} {width}: the page is wider than the window");
            if names.len() > 1 {
                let [_, right, _, left] = place(&mut browser, ".page-name span");
                assert!(right - left > 100.0, "{width}: the name of a device has {} pixels", right - left);
            }
            // Far below, the figures follow the moment in sight of the reader.
            browser.value("scrollTo(0, 600)");
            let before = browser.value("document.getElementById('tiles').textContent");
            browser.key("ArrowLeft");
            browser.value("oomscope.show({ moment: 40 })");
            browser.settle();
            assert_ne!(browser.value("document.getElementById('tiles').textContent"), before);
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
        assert_eq!(browser.errors(), Vec::<Value>::new());
    }
}

/// What proves the verdict: the map of a fragmentation, the lines that keep memory, the last steps.
#[test]
fn the_proof_is_on_the_first_screen() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    browser.resize(1440, 900);
    let proofs = [
        ("2.15.0-gpt_varlen-at-oom", "#map-frame", "#overview"),
        ("recorded/2.15.0-losses_kept", "#kept table", "#timeline"),
        ("2.15.0-oom_varlen-at-oom", "#timeline", "#axis"),
    ];
    for (name, proof, beside) in proofs {
        let file = page(directory.path(), &[&fixture(name)]);
        browser.open(&file, "");
        browser.settle();
        for part in [proof, beside] {
            assert!(is_in_window(&mut browser, part, [1440, 900]), "{name}: {part} at {:?}", place(&mut browser, part));
        }
        let [top, ..] = place(&mut browser, proof);
        assert!(top < 300.0, "{name}: {proof} begins at {top}");
    }
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn what_is_kept_is_highlighted_until_it_is_cleared() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = page(directory.path(), &[&fixture("recorded/2.15.0-losses_kept")]);
    browser.open(&file, "");
    browser.settle();
    let note = "document.getElementById('highlight-note').textContent";
    assert_eq!(browser.value(note), json!("kept after every step: 167 MiB in 126 blocks, 126 in all"));
    let rows = browser.value("[...document.querySelectorAll('#kept tbody tr')].map((row) => row.textContent)");
    assert_eq!(rows.as_array().unwrap().len(), 3, "{rows}");
    assert!(rows[0].as_str().unwrap().contains("jobs/named.py:17 forward"), "{rows}");
    browser.value("document.querySelector('#kept tbody button').click()");
    browser.settle();
    let one = browser.value(note);
    assert!(one.as_str().unwrap().contains("kept by jobs/named.py:17 forward: 162 MiB in 108 blocks"), "{one}");
    browser.value("document.getElementById('highlight-clear').click()");
    browser.settle();
    assert_eq!(browser.value(note), json!(""));
    let hash = browser.value("location.hash");
    browser.open(&file, hash.as_str().unwrap());
    browser.settle();
    assert_eq!(browser.value(note), json!(""), "a link shows what was seen: {hash}");
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn a_guess_is_hatched_and_marked() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = page(directory.path(), &[&fixture("dead_ends/leak_losses")]);
    browser.open(&file, "#q=");
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
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn without_a_trace_there_is_no_time() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = page(directory.path(), &[&fixture("2.15.0-gpt_varlen-no-history")]);
    browser.resize(1440, 900);
    browser.open(&file, "");
    browser.settle();
    let parts = ["time-section", "timeline-table", "legend", "axis", "back", "forward", "whole", "tab-entries"];
    for part in parts {
        let shown = browser.value(&format!("document.getElementById('{part}').getClientRects().length"));
        assert_eq!(shown, 0, "{part}");
    }
    assert_eq!(browser.value("document.querySelector('[data-mode=segment]').getClientRects().length"), 0);
    assert!(is_in_window(&mut browser, "#map-frame", [1440, 900]));
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn a_pane_is_chosen_by_pointer_and_by_key() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = page(directory.path(), &[&fixture("2.15.0-oom_varlen-at-oom")]);
    browser.resize(390, 844);
    browser.open(&file, "");
    let is_shown = |browser: &mut Browser, pane: &str| {
        browser.value(&format!("document.getElementById('pane-{pane}').getBoundingClientRect().height > 100"))
    };
    assert_eq!(is_shown(&mut browser, "result"), false, "in a narrow window the dock is folded at first");
    for shown in [true, false] {
        browser.value("document.getElementById('tab-result').click()");
        browser.settle();
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
    browser.value("oomscope.show({ selected: 5 })");
    browser.settle();
    assert_eq!(is_shown(&mut browser, "selected"), true);
    browser.key("o");
    browser.settle();
    assert_eq!(is_shown(&mut browser, "result"), true, "a failure is explained in its pane");
    assert_eq!(browser.errors(), Vec::<Value>::new());
}
