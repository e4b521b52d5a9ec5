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
            let [top, ..] = place(&mut browser, "#timeline");
            assert!(top < 400.0, "{names:?} {width}: the timeline begins at {top}");
            let [top, _, bottom, _] = place(&mut browser, ".result");
            assert!(bottom - top < 48.0, "{names:?} {width}: the result has more than two lines");
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
            if width > 900 {
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
