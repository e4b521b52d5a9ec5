//! The page of `oomscope fit`: its curve, and that nothing in it runs.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::program::{file, result_of};

fn page(files: &[String], more: &[&str]) -> String {
    let files = files.iter().map(String::as_str);
    let args = ["fit", "--format", "html"].into_iter().chain(files).chain(more.iter().copied());
    result_of(&args.collect::<Vec<_>>())
}

fn recordings(program: &str, sizes: &[&str]) -> Vec<String> {
    let file = |size: &&str| format!("{size}=fixtures/sizes/2.15.0-{program}-{size}.pickle.gz");
    sizes.iter().map(file).collect()
}

/// How often `what` stands in `text`.
fn times(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn the_curve_has_the_device_the_recordings_and_what_fits() {
    let html = page(&recordings("dense", &["4", "8", "13"]), &["--capacity", "316MiB"]);
    assert_eq!(times(&html, "<figure class=\"curve\">"), 1);
    assert_eq!(times(&html, "316 MiB, device capacity</text>"), 1);
    assert_eq!(times(&html, ">19 fits</text>"), 1);
    assert_eq!(times(&html, ">22 fits with max_split_size_mb:32</text>"), 1);
    assert_eq!(times(&html, "<path class=\"main\"") - 1, 1, "one line, and its key");
    assert_eq!(times(&html, "<circle class=\"measured main\"") - 1, 3, "and its key");
    assert!(html.contains("<title>13: 252 MiB reserved, fits</title>"));
    assert!(html.contains("<title>20: 324 MiB reserved, does not fit</title>"));
    assert!(html.contains("<h2>Evidence</h2>"));
}

#[test]
fn each_second_number_has_its_curve() {
    let grid = recordings("two_fused", &["4x128", "8x128", "4x256", "8x256"]);
    let html = page(&grid, &["--capacity", "200MiB", "--at", "x512"]);
    for title in ["Peak by size with x512", "Peak by size with x256", "Peak by size with x128"] {
        assert_eq!(times(&html, &format!("<h2>{title}</h2>")), 1);
    }
    assert!(html.contains(">8x512 fits</text>"));
    let without = page(&grid, &[]);
    assert_eq!((times(&without, "<figure"), times(&without, "device capacity")), (2, 0));
}

const HOSTILE: &str = "</title><script>window.taken=1</script><img src=x onerror=window.taken=2>\"'";

/// Two recordings with a line that would be much in a page, were it more than text.
fn hostile(directory: &tempfile::TempDir) -> Vec<String> {
    let frames = json!([{ "filename": format!("/app/{HOSTILE}.py"), "line": 7, "name": HOSTILE }]);
    let recording = |size: u64| {
        let entry = |action: &str, addr: u64, size: u64| json!({ "action": action, "addr": addr, "size": size, "stream": 0, "frames": frames });
        let (bytes, segment) = (size << 20, 20 << 20);
        let trace = [entry("segment_alloc", 4096, segment), entry("alloc", 4096, bytes)];
        let block = |address: u64, size: u64, state: &str| json!({ "address": address, "size": size, "requested_size": size, "state": state, "frames": frames });
        let blocks = [block(4096, bytes, "active_allocated"), block(4096 + bytes, segment - bytes, "inactive")];
        let segment = json!({ "device": 0, "address": 4096, "total_size": segment, "stream": 0, "segment_type": "large", "is_expandable": false, "blocks": blocks });
        let text = json!({ "segments": [segment], "device_traces": [trace] }).to_string();
        format!("{size}={}", file(directory, &format!("a<b>'\"&{size}.json"), text.as_bytes()))
    };
    vec![recording(4), recording(8)]
}

#[test]
fn names_are_text_and_nothing_runs() {
    let directory = tempfile::tempdir().unwrap();
    let html = page(&hostile(&directory), &["--capacity", "1GiB"]);
    assert!(html.contains("onerror=window.taken=2"));
    for markup in ["<script", "<img", "<b>", " style=", " onclick=", "http://", "https://", "url("] {
        assert!(!html.contains(markup), "{markup}");
    }
    let policy = html.split_once("Content-Security-Policy\" content=\"").unwrap().1;
    let policy = policy.split_once('"').unwrap().0;
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("script-src") && !policy.contains("unsafe"), "{policy}");
}

#[test]
fn a_browser_shows_it_wide_and_narrow() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let pages = [
        page(&recordings("dense", &["4", "8", "13"]), &["--capacity", "316MiB"]),
        page(&hostile(&directory), &["--capacity", "1GiB"]),
    ];
    for html in pages {
        let path = file(&directory, "fit.html", html.as_bytes());
        for width in [1400, 360] {
            let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
            browser.call("Emulation.setDeviceMetricsOverride", size);
            browser.show(Path::new(&path));
            let asked = "[document.querySelector('svg.curve path.main').getBoundingClientRect().width > 300, \
                         document.documentElement.scrollWidth <= innerWidth, \
                         getComputedStyle(document.querySelector('svg.curve path.limit')).stroke !== 'none', \
                         document.querySelectorAll('img, script').length, window.taken ?? null]";
            assert_eq!(browser.value(asked), json!([true, true, true, 0, null]), "{width}");
        }
        assert_eq!(browser.errors(), Vec::<Value>::new());
    }
}
