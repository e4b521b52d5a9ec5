//! The page of `oomscope report` answers as `analyze` does: the same steps, the same sentences, and names for all that it
//! draws and lists. Without a browser these tests say so and pass. Slow: a browser draws many pages.

use oomscope::base::units::{count, size};
use serde_json::json;

use crate::report_page::{fixture, page};
use crate::support::browser::Browser;
use crate::support::program::{analyze, result_of, text};

const FAILED: &str = "2.15.0-gpt_varlen-at-oom";

fn open(name: &str) -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.resize(1280, 800);
    browser.report(&[name], "");
    browser.settle();
    Some(browser)
}

#[test]
fn a_step_has_one_number_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let file = fixture(FAILED);
    let oom = analyze(&[&file])["snapshots"][0]["devices"][0]["ooms"][0].clone();
    let step = oom["unusual_input"]["step"].as_u64().unwrap();
    assert_eq!(oom["held"]["step"], step);
    let timeline = result_of(&["timeline", &file]);
    let numbers = timeline.lines().find(|line| line.trim_start().starts_with("step ")).unwrap();
    assert!(numbers.trim_end().ends_with(&format!("│{step}")), "{numbers}");

    let Some(mut browser) = open(FAILED) else { return };
    assert!(browser.text("h1").contains(&format!(" step {step}, ")));
    let part = text(&directory.path().join("part.html"));
    result_of(&["report", "--from", "failure-1500", "-o", &part, &file]);
    for shown in [browser.write_report(&[FAILED]), part.into()] {
        browser.open(&shown, "");
        let (_, y) = browser.middle("bands");
        let right = browser.value("document.getElementById('bands').getBoundingClientRect().right");
        browser.mouse("mouseMoved", (right.as_f64().unwrap() - 3.0, y), 0.0);
        let tip = browser.text("#tip");
        assert!(tip.contains(&format!(" step {step} ")), "{shown:?}: {tip}");
    }
}

/// Headline and pane are of the device and the failed request that are selected, and say when the figures were so.
#[test]
fn the_result_is_that_of_the_selected_device_and_failure() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["2.15.0-gpt_varlen-at-oom", "2.15.0-two_devices", "2.15.0-fuzz-oom", "2.15.0-conv_train"].map(fixture);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page(directory.path(), &files), "");
    let all = analyze(&files);
    let pages = browser.value("JSON.parse(document.getElementById('pages').textContent)");
    for (index, row) in pages.as_array().unwrap().iter().enumerate() {
        browser.value(&format!("oomscope.show({{ page: {index} }})"));
        let devices = all["snapshots"][row["snapshot"].as_u64().unwrap() as usize]["devices"].as_array().unwrap();
        let device = devices.iter().find(|device| device["device"] == row["device"]).unwrap();
        let ooms = device["ooms"].as_array().unwrap();
        if ooms.is_empty() {
            let headline = browser.text("h1");
            assert!(
                headline.starts_with("no request failed: ") && headline.contains(&format!("GPU {}", row["device"])),
                "{headline}"
            );
            let peak = size(device["peak"]["allocated_bytes"].as_u64().unwrap());
            assert!(browser.text("#summary").contains(&peak), "{peak}");
            let entries = count(row["entries"].as_u64().unwrap());
            assert_eq!(browser.text("#result-when"), format!("over all {entries} entries"));
        }
        for (at, oom) in ooms.iter().enumerate().rev().take(3) {
            let entry = oom["event"].as_u64().unwrap();
            // By the moment, as a click on the timeline selects it.
            browser.apply(&format!("oomscope.show({{ moment: {} }})", entry + 1));
            let requested = size(oom["requested_bytes"].as_u64().unwrap());
            let (headline, pane) = (browser.text("h1"), browser.text("#summary"));
            let answer = browser.text("#answer");
            let is_last = at + 1 == ooms.len();
            assert!(
                headline.contains(&format!("GPU {}: ", row["device"])) && headline.contains(&requested),
                "{headline}"
            );
            let why = if is_last { &device["conclusion"] } else { &oom["verdict"] };
            assert!(answer.contains(&format!("why {}", why.as_str().unwrap().replace('-', " "))), "{why}: {answer}");
            assert!(pane.contains(&format!("{} allocated", size(oom["allocated_bytes"].as_u64().unwrap()))), "{pane}");
            assert_eq!(pane.contains("held by"), is_last, "holders are known at the last failure: {pane}");
            assert_eq!(browser.text("#result-when"), format!("when the request of entry {} failed", count(entry)));
        }
    }
}

#[test]
fn a_blocker_is_found_at_once_and_shown_in_the_map() {
    let Some(mut browser) = open(FAILED) else { return };
    for [width, height] in [[1280, 800], [390, 844]] {
        browser.resize(width, height);
        browser.apply("scrollTo(0, 0), document.getElementById('dock').classList.add('open')");
        let blocker = "document.querySelector('[data-shows^=blocker]')";
        if width > 900 {
            let held = "document.querySelector('[data-shows^=held]')";
            let top = |row: &str| format!("{row}.getBoundingClientRect().top");
            let distance = browser.value(&format!("{} - {}", top(blocker), top(held)));
            assert!(
                (0.0..300.0).contains(&distance.as_f64().unwrap()),
                "from what is held to what is in the way: {distance}"
            );
        }
        assert!(browser.text("#summary").contains("workloads.py:52 train_step "));
        browser.apply(&format!("{blocker}.click()"));
        assert_eq!(browser.value("oomscope.view().moment"), 5379, "they are shown where they stood");
        let [top, bottom] =
            ["top", "bottom"].map(|side| format!("document.getElementById('map').getBoundingClientRect().{side}"));
        let (top, bottom) = (browser.value(&top).as_f64().unwrap(), browser.value(&bottom).as_f64().unwrap());
        assert!(top >= 0.0 && bottom < f64::from(height), "{width}: the map is from {top} to {bottom}");
        assert!(browser.text("#highlight-note").starts_with("in the way, of app/workloads.py:52 train_step: "));
        assert_eq!(browser.value("document.getElementById('query').value"), "");
        browser.apply(&format!("{blocker}.click()"));
        assert_eq!(browser.text("#highlight-note"), "");
    }
}

#[test]
fn filters_are_of_what_the_file_has() {
    let choices = |browser: &mut Browser| {
        browser.value(
            "[...document.querySelectorAll('#filter label')].filter((one) => !one.hidden && one.querySelector('select')) \
             .map((one) => [one.firstChild.textContent, one.querySelector('select').options.length])",
        )
    };
    for (name, note, expected) in [
        (FAILED, "All memory here is of GPU 0, stream 0, default pool.", json!([["category", 10], ["confidence", 5]])),
        (
            "2.15.0-graphs-expandable",
            "All memory here is of GPU 0.",
            json!([["category", 10], ["stream", 3], ["pool", 5], ["confidence", 5]]),
        ),
    ] {
        let Some(mut browser) = open(name) else { return };
        browser.apply("oomscope.show({ pane: 'search' })");
        assert_eq!(choices(&mut browser), expected, "{name}");
        assert_eq!(browser.text("#filter-note"), note);
    }
    // Several devices: the filter goes on with another one.
    let Some(mut browser) = open("2.15.0-two_devices") else { return };
    browser.apply("oomscope.show({ pane: 'search', filter: 'category=activations' })");
    browser.apply(
        "(() => { const one = document.getElementById('filter-device'); one.value = '1'; \
         one.dispatchEvent(new Event('change')); })()",
    );
    let view = browser.value("oomscope.view()");
    assert_eq!([&view["page"], &view["filter"]], [&json!(1), &json!("category=activations")]);
    assert_eq!(browser.text("#filter-note"), "All memory here is of stream 0, default pool.");
}
