//! The page of `oomscope report` in a browser: what it says is what `analyze` says, and what is done to it does what it
//! should. Without a browser these tests say so and pass. Slow: a browser draws many pages.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::program::{result_of, text};
use crate::support::{fixtures, made};

/// One of every kind: failures of both sorts of segments, streams that lag, devices, private pools, graphs, a ring that
/// lost entries, no trace at all, an old release.
pub(crate) const KINDS: [&str; 11] = [
    "2.15.0-oom_varlen-at-oom",
    "2.9.1-oom_varlen-expandable-at-oom",
    "2.15.0-fuzz_streams-expandable-oom-lag",
    "2.15.0-fuzz-max_split-gc-oom",
    "2.15.0-two_devices",
    "2.15.0-mempool",
    "2.15.0-graphs-expandable",
    "2.15.0-holes-expandable",
    "2.15.0-gpt_varlen-wrapped",
    "2.15.0-gpt_varlen-no-history",
    "2.1.2-streams-expandable-lag",
];

pub(crate) fn page(directory: &Path, snapshots: &[&str]) -> PathBuf {
    let out = directory.join("page.html");
    result_of(&[&["report", "-o", &text(&out)], snapshots].concat());
    out
}

pub(crate) fn fixture(name: &str) -> String {
    text(&fixtures::path(name))
}

/// What PyTorch itself said (`tests/oracle/moments.py`).
#[test]
fn figures_are_those_of_pytorch_at_that_moment() {
    let Some(mut browser) = Browser::start() else { return };
    for run in ["native", "expandable"] {
        let told = fixtures::directory().join(format!("moments/2.15.0-{run}.moments.json"));
        let told: Value = serde_json::from_str(&std::fs::read_to_string(told).unwrap()).unwrap();
        browser.report(&[&format!("moments/2.15.0-{run}")], "");
        for truth in told.as_array().unwrap() {
            let m = truth["entry"].as_u64().unwrap() + 1;
            let state = browser.value(&format!("oomscope.state({m})"));
            for figure in ["allocated", "reserved", "requested"] {
                assert_eq!(state[figure], truth[format!("{figure}_bytes")], "{run} {figure} {m}");
            }
        }
    }
}

#[test]
fn controls_of_the_page_do_what_they_should() {
    let Some(mut browser) = Browser::start() else { return };
    let file = browser.report(&["2.15.0-oom_varlen-at-oom"], "");
    let view = |browser: &mut Browser| browser.value("oomscope.view()");
    let first = view(&mut browser);
    assert_eq!((&first["moment"], &first["end"]), (&json!(53_079), &json!(53_080)));
    let start = first["start"].as_f64().unwrap();
    assert!(start > 0.85 * 53_079.0, "it opens on the last part of the trace: {start}");
    browser.key("0");
    browser.settle();
    let whole = view(&mut browser);
    assert_eq!((&whole["start"], &whole["end"]), (&json!(0), &json!(53_080)));

    let over = browser.middle("timeline");
    browser.mouse("mouseMoved", over, 0.0);
    assert_eq!(browser.value("document.getElementById('tip').hidden"), false, "a pointer is told what is under it");
    let scrolled = "document.documentElement.scrollTop";
    let before = browser.value(scrolled);
    browser.mouse("mouseWheel", over, 120.0);
    browser.settle();
    assert_eq!(view(&mut browser)["start"], whole["start"], "the wheel alone scrolls");
    assert_ne!(browser.value(scrolled), before);
    let over = browser.middle("timeline");
    browser.mouse_with("mouseWheel", over, -400.0, 2);
    browser.settle();
    let zoomed = view(&mut browser);
    assert!(zoomed["start"].as_f64() > Some(1000.0) && zoomed["end"].as_f64() < Some(52_000.0), "{zoomed}");
    // A drag zooms to its range; with Shift it moves the zoom.
    browser.drag((over.0 - 100.0, over.1), (over.0 + 100.0, over.1), 0);
    browser.settle();
    let dragged = view(&mut browser);
    let width = |view: &Value| view["end"].as_f64().unwrap() - view["start"].as_f64().unwrap();
    let wide = browser.value("document.getElementById('timeline').clientWidth").as_f64().unwrap();
    assert!((width(&dragged) / width(&zoomed) - 200.0 / wide).abs() < 0.02, "{zoomed} {dragged}");
    browser.drag((over.0 - 100.0, over.1), (over.0 + 100.0, over.1), 8);
    browser.settle();
    let moved = view(&mut browser);
    assert!((width(&moved) - width(&dragged)).abs() < 1e-6 && moved["start"].as_f64() < dragged["start"].as_f64());
    browser.apply(&format!("oomscope.show({{ start: {}, end: {} }})", zoomed["start"], zoomed["end"]));

    browser.mouse("mousePressed", over, 0.0);
    browser.mouse("mouseReleased", over, 0.0);
    browser.settle();
    let clicked = view(&mut browser)["moment"].as_u64().unwrap();
    assert!((20_000..33_000).contains(&clicked), "a click chooses the moment: {clicked}");
    for (key, by) in [("ArrowRight", 1), ("ArrowLeft", 0)] {
        browser.key(key);
        assert_eq!(view(&mut browser)["moment"], json!(clicked + by), "{key}");
    }
    let before = browser.content("tiles");
    browser.key("p");
    browser.settle();
    assert_eq!(view(&mut browser)["moment"], 53_038, "p goes to the peak");
    assert_ne!(browser.content("tiles"), before);
    browser.value("(() => { const s = document.getElementById('slider'); s.value = 2000; s.dispatchEvent(new Event('input')); })()");
    let (slid, zoomed) = (view(&mut browser)["moment"].as_f64().unwrap(), view(&mut browser));
    let half = (zoomed["start"].as_f64().unwrap() + zoomed["end"].as_f64().unwrap()) / 2.0;
    assert!((slid - half).abs() < 2.0, "the slider is as wide as the zoom");

    // Each blocker highlights as many blocks as the analysis counts.
    let blockers = browser.value(
        "JSON.parse(document.getElementById('analysis').textContent).snapshots[0].devices[0].ooms[0].details.blockers",
    );
    for (at, blocker) in blockers.as_array().unwrap().iter().enumerate() {
        browser.apply(&format!("oomscope.show({{ query: 'blocker:0.{at}', moment: 53079 }})"));
        let note = browser.content("highlight-note");
        assert!(note.contains(&format!("in {} block", blocker["blocks"])), "{note} {blocker}");
    }
    browser.value("oomscope.show({ query: 'attention' })");
    assert!(browser.content("highlight-note").starts_with("highlighted: "));
    let dark = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(dark);
    browser.value("document.getElementById('theme').click()");
    assert_ne!(browser.value(dark), light);

    // What the address says is what is seen again.
    browser.apply("oomscope.show({ mode: 'each', start: 30000, end: 32000, moment: 30949, selected: 5 })");
    let (seen, hash) = (view(&mut browser), browser.value("location.hash"));
    browser.open(&file, hash.as_str().unwrap());
    assert_eq!(view(&mut browser), seen);
    assert!(browser.content("selection").contains("allocated at entry"));
}

#[test]
fn variables_have_colours_and_are_found() {
    let Some(mut browser) = Browser::start() else { return };
    browser.report(&["recorded/2.15.0-losses_kept"], "#m=variable");
    assert_eq!(browser.value("oomscope.view().mode"), "variable");
    let legend = browser.content("legend");
    assert!(legend.starts_with("trainer.history[*] 167 MiBloss 17.5"), "{legend}");
    browser.apply("document.querySelector('#legend button').click()");
    assert_eq!(browser.value("oomscope.view().query"), "variable:trainer.history[*]");
    let note = browser.content("highlight-note");
    assert!(note.contains("167 MiB in 126 blocks"), "{note}");
    browser.apply("oomscope.show({ query: 'EXP_AVG_SQ' })");
    let note = browser.content("highlight-note");
    assert!(note.contains("in 16 blocks"), "{note}");
    // Without names there is nothing to choose.
    browser.report(&["2.15.0-two_devices"], "#m=variable");
    assert_ne!(browser.value("oomscope.view().mode"), "variable");
    assert_eq!(browser.value("document.querySelector('[data-mode=variable]').hidden"), true);
}

/// Holds back the decoding of each device until the test calls `release(N)` for the Nth request.
const HOLD_DEVICES: &str = "
    const held = [];
    const arrayBuffer = Response.prototype.arrayBuffer;
    Response.prototype.arrayBuffer = function () {
      return new Promise((done) => held.push(done)).then(() => arrayBuffer.call(this));
    };
    window.release = (index) => held[index]();
    window.heldCount = () => held.length;
";

/// Everything that a hasty reader may do.
const EARLY_EVENTS: &str = "
    for (const key of ['p', 'o', '0', '+', '-', 'ArrowLeft', 'ArrowRight', 'Escape', '/', '?'])
      dispatchEvent(new KeyboardEvent('keydown', { key }));
    for (const canvas of document.querySelectorAll('canvas'))
      for (const kind of ['pointermove', 'pointerdown', 'pointerup', 'pointerleave', 'click', 'wheel', 'keydown'])
        canvas.dispatchEvent(new (kind === 'wheel' ? WheelEvent : kind === 'keydown' ? KeyboardEvent : PointerEvent)(kind));
    for (const button of document.querySelectorAll('#app button')) button.click();
    for (const field of document.querySelectorAll('#app input')) field.dispatchEvent(new Event('input'));
    dispatchEvent(new Event('resize'));
    location.hash = '#t=3';
";

/// A snapshot that another rank requested is a part of the one that its own process wrote later.
#[test]
fn a_rank_of_a_directory_is_there_once() {
    let directory = tempfile::tempdir().unwrap();
    let ranks = directory.path().join("ranks");
    std::fs::create_dir(&ranks).unwrap();
    for name in ["rank0-asked1", "rank0-exit1"] {
        std::fs::copy(fixtures::path("recorded/ranks/rank0-asked1"), ranks.join(format!("{name}.pickle.gz"))).unwrap();
    }
    let page = std::fs::read_to_string(page(directory.path(), &[&text(&ranks)])).unwrap();
    assert!(page.contains("rank0-exit1.pickle.gz") && !page.contains("rank0-asked1.pickle.gz"));
}

#[test]
fn events_before_it_is_ready_do_no_harm() {
    let Some(mut browser) = Browser::start() else { return };
    let file = browser.write_report(&["2.15.0-oom_varlen-at-oom"]);
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": HOLD_DEVICES }));
    browser.show(&file);
    assert_eq!(browser.value("document.querySelectorAll('#app canvas').length > 3 && heldCount() === 1"), true);
    browser.apply(EARLY_EVENTS);
    browser.value("release(0)");
    browser.value("oomscope.ready.then(() => true)");
    assert_eq!(browser.value("oomscope.view().moment"), 3);
    browser.key("p");
    assert_eq!(browser.value("oomscope.view().moment"), 53_038);
}

#[test]
fn the_last_device_clicked_is_shown() {
    let Some(mut browser) = Browser::start() else { return };
    let file = browser.write_report(&["2.15.0-two_devices", "2.15.0-holes-at-oom"]);
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": HOLD_DEVICES }));
    browser.show(&file);
    browser.value("release(0)");
    browser.value("oomscope.ready.then(() => true)");
    browser.value("for (const index of [1, 2]) document.querySelectorAll('.page')[index].click()");
    for slower in ["release(2)", "release(1)"] {
        browser.apply(slower);
    }
    assert_eq!(browser.value("oomscope.view().page"), 2);
}

/// A file that anyone may have written, with names that would be markup or script, and no entries but these.
#[test]
fn hostile_names_stay_text() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let hostile = "</script><script>window.taken=1</script><img src=x onerror=window.taken=2>";
    let frames = made::frames(&[(&format!("/app/{hostile}.py"), 7, hostile)]);
    let entry = |action: &str, addr: u64, size: u64| made::entry(action, addr, size, 1, &frames);
    let segment = made::segment(0, &[made::live(4096, 1024, &frames), made::free(5120, 2_096_128)]);
    let written = |entries: Value| json!({ "segments": [segment], "device_traces": [entries] }).to_string();
    let traced =
        written(json!([entry("segment_alloc", 4096, 2_097_152), entry("alloc", 4096, 1024), entry("oom", 0, 1 << 30)]));
    for (name, snapshot) in [("traced.json", traced), ("untraced.json", written(json!([])))] {
        let file = directory.path().join(name);
        std::fs::write(&file, snapshot).unwrap();
        browser.open(&page(directory.path(), &[&text(&file)]), "#sel=0");
        browser.apply("oomscope.show({ mode: 'line', query: 'onerror' })");
        for moved in ["timeline", "map", "flame"] {
            let over = browser.middle(moved);
            browser.mouse("mouseMoved", over, 0.0);
        }
        assert_eq!(
            browser.value("[window.taken, document.querySelectorAll('img, #app script, main script').length]"),
            json!([null, 0]),
            "{name}"
        );
        assert_eq!(
            browser.value("document.getElementById('selection').textContent.includes('onerror=window.taken=2')"),
            true,
            "{name}"
        );
    }
}
