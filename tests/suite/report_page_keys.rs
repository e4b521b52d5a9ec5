//! The page of `oomscope report` by keys, by two fingers, printed, saved as a picture and as CSV, and with Back.
//! Slow: a browser draws many pages.

use serde_json::{Value, json};

use crate::report_page::fixture;
use crate::support::browser::Browser;
use crate::support::program::{refusal, result_of, text};

fn view(browser: &mut Browser) -> Value {
    browser.settle();
    browser.value("oomscope.view()")
}

#[test]
fn everything_is_reached_by_keys() {
    let Some(mut browser) = Browser::start() else { return };
    browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    browser.key("Home");
    assert_eq!(view(&mut browser)["moment"], 0);
    browser.key("End");
    assert_eq!(view(&mut browser)["moment"], 53_079);
    browser.value("oomscope.show({ moment: 30000 })");
    browser.key("w");
    let zoomed = view(&mut browser);
    assert!(zoomed["start"].as_f64() > Some(10_000.0) && zoomed["end"].as_f64() < Some(50_000.0), "{zoomed}");
    browser.key("a");
    let left = view(&mut browser);
    assert!(left["start"].as_f64() < zoomed["start"].as_f64(), "{left}");
    browser.key("f");
    browser.key("f");
    assert!(view(&mut browser)["start"].as_f64() > left["start"].as_f64());
    browser.key("d");
    assert_eq!(view(&mut browser)["from"], 30_000);
    browser.key("s");
    let out = view(&mut browser);
    let width = |view: &Value| view["end"].as_f64().unwrap() - view["start"].as_f64().unwrap();
    assert!(width(&out) > width(&zoomed));

    // Up, down and Enter select in every picture, and say what they are at.
    for (picture, mode) in [("timeline", "each"), ("map", "each"), ("timeline", "segment")] {
        browser.apply(&format!("oomscope.show({{ mode: '{mode}', selected: -1, segment: -1 }})"));
        browser.value(&format!("document.getElementById('{picture}').focus()"));
        for key in ["ArrowDown", "ArrowDown"] {
            browser.key(key);
        }
        let said = browser.content("announcer");
        assert!(said.contains("MiB") || said.contains("KiB"), "{picture}: {said}");
        browser.key("Enter");
        let view = view(&mut browser);
        let selected = if mode == "segment" { &view["segment"] } else { &view["selected"] };
        assert!(selected.as_i64() >= Some(0), "{picture}: {view}");
    }
    browser.value("document.getElementById('flame').focus()");
    for key in ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"] {
        browser.key(key);
    }
    assert!(view(&mut browser)["root"].as_i64() > Some(0));
    // The table of lines lists allocations, of which one is selected.
    browser.apply("oomscope.show({ selected: -1, segment: -1 })");
    browser.apply("document.querySelector('#lines tbody button').click()");
    browser.value("document.querySelector('#found tbody button').click()");
    assert!(view(&mut browser)["selected"].as_i64() >= Some(0));
}

#[test]
fn back_goes_back() {
    let Some(mut browser) = Browser::start() else { return };
    browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    browser.settle();
    let clicks = [
        "document.querySelector('[data-mode=line]').click()",
        "oomscope.show({ selected: 7 })",
        "document.querySelector('[data-axis=time]').click()",
    ];
    for click in clicks {
        browser.apply(click);
    }
    browser.key("ArrowLeft"); // a moment is no place to go back to
    browser.settle();
    let place = |view: &Value| (view["mode"].clone(), view["selected"].clone());
    let axis = |view: &Value| view["axis"].clone();
    let back = |browser: &mut Browser, by: &str| {
        browser.value(&format!("new Promise((done) => {{ addEventListener('popstate', done, {{ once: true }}); history.{by}; }}).then(() => 0)"));
        view(browser)
    };
    assert_eq!(axis(&browser.value("oomscope.view()")), "time");
    let on_entries = back(&mut browser, "back()");
    assert_eq!((axis(&on_entries), place(&on_entries)), (json!("entry"), (json!("line"), json!(7))));
    assert_eq!(place(&back(&mut browser, "back()")), (json!("line"), json!(-1)));
    assert_eq!(place(&back(&mut browser, "back()")), (json!("category"), json!(-1)));
    assert_eq!(place(&back(&mut browser, "go(2)")), (json!("line"), json!(7)));
}

#[test]
fn two_fingers_zoom() {
    let Some(mut browser) = Browser::start() else { return };
    browser.resize(390, 844);
    browser.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": true, "maxTouchPoints": 2 }));
    browser.report(&["2.15.0-oom_varlen-at-oom"], "#v=0-53080");
    let (x, y) = browser.middle("timeline");
    let points = |apart: f64| json!([{ "x": x - apart, "y": y, "id": 0 }, { "x": x + apart, "y": y, "id": 1 }]);
    for (kind, points) in [
        ("touchStart", points(30.0)),
        ("touchMove", points(60.0)),
        ("touchMove", points(120.0)),
        ("touchEnd", json!([])),
    ] {
        browser.call("Input.dispatchTouchEvent", json!({ "type": kind, "touchPoints": points }));
    }
    let view = view(&mut browser);
    let width = view["end"].as_f64().unwrap() - view["start"].as_f64().unwrap();
    assert!((8_000.0..25_000.0).contains(&width), "the zoom is about a quarter: {view}");
}

#[test]
fn it_prints_everything_in_light_colours() {
    let Some(mut browser) = Browser::start() else { return };
    let dark = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "", "features": dark }));
    let file = browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    browser.value("dispatchEvent(new Event('beforeprint'))");
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "print", "features": dark }));
    assert_eq!(browser.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    let colours = browser.value(
        "Promise.all(['timeline', 'map', 'flame', 'bands'].map(async (id) => { \
         const image = document.querySelector(`#${id}-frame img.print`); await image.decode(); \
         const canvas = document.createElement('canvas'); [canvas.width, canvas.height] = [image.naturalWidth, 1]; \
         const context = canvas.getContext('2d'); context.drawImage(image, 0, 4 - image.naturalHeight); \
         return image.getBoundingClientRect().height > 20 && image.naturalWidth > 500; }))",
    );
    assert_eq!(colours, json!([true, true, true, true]));
    // Every sentence of the analysis is on paper, and its tables.
    let page = std::fs::read_to_string(file).unwrap();
    let printed = browser.value("document.getElementById('first').innerText.replace(/\\s+/g, '')");
    let printed = printed.as_str().unwrap();
    let sentences = browser.value(
        "[...new DOMParser().parseFromString(document.querySelector('details.rest').innerHTML, 'text/html') \
         .querySelectorAll('dd, td, p, li, h2, summary')].map((one) => one.innerText.replace(/\\s+/g, ''))",
    );
    let sentences = sentences.as_array().unwrap();
    assert!(sentences.len() > 130 && page.contains("<h2>Segments"), "{} sentences", sentences.len());
    for sentence in sentences.iter().map(|one| one.as_str().unwrap()).filter(|one| one.len() > 3) {
        let start: String = sentence.chars().take(40).collect();
        assert!(printed.contains(&start), "not printed: {sentence}");
    }
    assert!(printed.contains("triedinareplay") && printed.contains("expandable_segments:True"));
    assert!(printed.contains("Thezoomintwelveparts"), "folded tables are printed");
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "", "features": dark }));
    browser.apply("dispatchEvent(new Event('afterprint'))");
    assert_eq!(browser.value("document.querySelectorAll('img.print, details[open]:not(.rest details)').length"), 0);
    assert_ne!(browser.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
}

#[test]
fn the_view_is_saved_as_picture_and_csv() {
    let Some(mut browser) = Browser::start() else { return };
    browser.report(&["2.15.0-oom_varlen-at-oom"], "#d=search");
    browser.apply("oomscope.show({ query: '<img onerror=1>&\"' })");
    let svg = browser.value("oomscope.svg()");
    let svg = svg.as_str().unwrap();
    assert!(svg.contains("after entry 53,078: 5.19 GiB allocated") && svg.contains("activations"), "{svg:.400}");
    for part in ["attention requested 399 MiB", ">why: capacity", ">do: checkpoint each of 8 calls"] {
        assert!(svg.contains(part), "{part} in {svg:.2000}");
    }
    // The legend's guess is hatched, as are the stripes of the map's key.
    let hatched = browser.value("document.querySelectorAll('#legend .guess, #map-section .key .swatch').length");
    assert_eq!(svg.matches("<path ").count() as u64, hatched.as_u64().unwrap());
    assert!(svg.contains("&lt;img onerror=1&gt;&amp;") && svg.matches("<image ").count() == 5, "{svg:.400}");
    let size = browser.value(
        "oomscope.png().then(async (url) => { const image = new Image(); image.src = url; await image.decode(); \
         return [image.naturalWidth, image.naturalHeight]; })",
    );
    assert!(size[0].as_u64() > Some(600) && size[1].as_u64() > Some(700), "{size}");
    browser.apply("oomscope.show({ query: 'workloads.py:49' })");
    let csv = browser.value("oomscope.csv(document.querySelector('#found table'))");
    let csv = csv.as_str().unwrap();
    assert!(csv.starts_with("bytes,entry,line\r\n100352,\"52,696\",app/workloads.py:49"), "{csv}");
    assert_eq!(csv.lines().count(), 26);
    // A name that a spreadsheet would compute stays text.
    let made = "(() => { const d = document.createElement('div'); d.innerHTML = '<table><tr><td></td></tr></table>'; \
         d.querySelector('td').textContent = '=cmd|1'; return oomscope.csv(d.firstChild); })()";
    assert_eq!(browser.value(made), "'=cmd|1\r\n");
}

#[test]
fn two_files_are_compared() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let files = ["diff/base", "diff/later"].map(fixture);
    let out = text(&directory.path().join("diff.html"));
    result_of(&["report", "--diff", "-o", &out, &files[0], &files[1]]);
    browser.open(out.as_ref(), "");
    browser.settle();
    let peaks: Vec<u64> = files
        .iter()
        .map(|file| {
            let analysis = crate::support::program::analyze(&[file]);
            analysis["snapshots"][0]["devices"][0]["peak"]["allocated_bytes"].as_u64().unwrap()
        })
        .collect();
    let at = browser.value("document.getElementById('comparison').innerText");
    let sums = browser.value(
        "[...document.querySelectorAll('#comparison tbody tr')].map((row) => \
         [...row.querySelectorAll('[data-value]')].map((cell) => Number(cell.getAttribute('data-value'))))",
    );
    let sums: Vec<[i64; 3]> = serde_json::from_value(sums).unwrap();
    let sum = |column: usize| sums.iter().map(|row| row[column]).sum::<i64>();
    assert_eq!([sum(1), sum(2)], [peaks[0] as i64, peaks[1] as i64], "{at}");
    assert_eq!(sum(0), peaks[1] as i64 - peaks[0] as i64);
    let result = browser.value("document.querySelector('.head h1').textContent");
    assert!(result.as_str().unwrap().starts_with("peak allocated "), "{result}");
    // Both runs lie over one axis, in which the band is the difference; a row goes to where its own arises.
    let band = browser.value(
        "(() => { const canvas = document.getElementById('both'), { width, height } = canvas; \
         const data = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer); \
         return [width > 300, new Set(data).size > 3]; })()",
    );
    assert_eq!(band, json!([true, true]));
    let before = browser.value("oomscope.view()");
    browser.apply("document.querySelector('#comparison tbody button').click()");
    let after = browser.value("oomscope.view()");
    assert_ne!((&after["moment"], &after["from"]), (&before["moment"], &before["from"]));
    let label = after["query"].as_str().unwrap().strip_prefix("line:").unwrap().to_owned();
    let change = browser.value(&format!(
        "[...document.querySelectorAll('#comparison tbody tr')].map((row) => [row.lastElementChild.textContent, \
         Number(row.querySelector('[data-value]').dataset.value)]).find(([name]) => {}.endsWith(name))[1]",
        json!(label)
    ));
    assert!(change.as_f64().unwrap().abs() > 0.0, "{label}: {change}");
    let refused = refusal(&["report", "--diff", "-o", &out, &files[0]]);
    assert!(refused.contains("--diff compares two snapshots, and here is one"), "{refused}");
}
