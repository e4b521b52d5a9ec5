//! The page of `oomscope viewer`: in node, its analyzer writes the pages that `report` writes and refuses what `report`
//! refuses; in a browser, it shows files that are chosen in the dialog or named in the address. A test whose tool is missing
//! prints so and passes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use oomscope::output::page::write_viewer;
use serde_json::json;

use crate::support::browser::Browser;
use crate::support::cases::cases;
use crate::support::fixtures;
use crate::support::mutate::{Random, mutant};
use crate::support::program::{refusal, run, text};
use crate::support::viewer::{module, run_in_node};

/// One of every kind, by release.
const FIXTURES: [&str; 20] = [
    "2.1.2-fuzz-max_split-oom",
    "2.1.2-streams-expandable-lag",
    "2.10.0-mempool",
    "2.12.1-graphs",
    "2.14.1-gpt_varlen-oom",
    "2.15.0-conv_train",
    "2.15.0-fuzz-expandable-oom",
    "2.15.0-fuzz-max_split-gc-oom",
    "2.15.0-fuzz_streams-expandable-oom-lag",
    "2.15.0-gpt_train-cpp_stacks",
    "2.15.0-gpt_varlen-no-history",
    "2.15.0-gpt_varlen-wrapped",
    "2.15.0-graphs-expandable",
    "2.15.0-holes-expandable",
    "2.15.0-mempool",
    "2.15.0-oom_varlen-at-oom",
    "2.15.0-two_devices",
    "2.9.1-oom_varlen-expandable-at-oom",
    "recorded/2.15.0-annotated",
    "recorded/2.15.0-losses_kept",
];

/// A page, or the sentence in place of one.
#[derive(Debug, PartialEq)]
enum Answer {
    Page(String),
    Refusal(String),
}

fn answer_of_module(directory: &Path, index: usize) -> Answer {
    let read = |kind: &str| std::fs::read_to_string(directory.join(format!("{index}.{kind}")));
    read("html").map_or_else(|_| Answer::Refusal(read("txt").unwrap()), Answer::Page)
}

fn answer_of_report(file: &str) -> Answer {
    let ran = run(&["report", file]);
    match ran.err.strip_prefix("oomscope: ") {
        Some(message) => Answer::Refusal(message.trim_end().to_owned()),
        None => Answer::Page(ran.out),
    }
}

/// Analyzes `files` in node and compares with `report`.
fn compare(files: &[&str]) {
    let Some(module) = module() else { return };
    let directory = tempfile::tempdir().unwrap();
    if !run_in_node(module, files, directory.path()) {
        return;
    }
    for (index, file) in files.iter().enumerate() {
        let [from_module, from_report] = [answer_of_module(directory.path(), index), answer_of_report(file)];
        if let [Answer::Page(_), Answer::Page(_)] = [&from_module, &from_report] {
            assert!(from_module == from_report, "{file}: the pages of the viewer and of `report` differ");
        } else {
            assert_eq!(from_module, from_report);
        }
    }
}

#[test]
fn its_pages_are_those_of_report() {
    let paths: Vec<PathBuf> = FIXTURES.iter().map(|name| fixtures::path(name)).collect();
    compare(&paths.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>());
}

#[test]
fn a_bad_file_ends_in_the_sentence_of_report() {
    let directory = tempfile::tempdir().unwrap();
    let whole = fixtures::pickle("2.15.0-oom_varlen-at-oom");
    let other = fixtures::pickle("2.1.2-streams-expandable-lag");
    let mut random = Random::new(30);
    let mut contents: Vec<Vec<u8>> = (0..cases(24)).map(|_| mutant(&mut random, &whole, &other)).collect();
    contents.extend([
        Vec::new(),
        b"{\"segments\": 1}".to_vec(),
        b"PK\x03\x04".to_vec(),
        b"\x1f\x8b\x08\x00".to_vec(),
        [&[0x80, 4][..], &b"]".repeat(1_000_000), &b"a".repeat(999_999), b"."].concat(),
    ]);
    let write = |(index, bytes): (usize, &Vec<u8>)| {
        let path = directory.path().join(format!("{index}.pickle"));
        std::fs::write(&path, bytes).unwrap();
        text(&path)
    };
    let files: Vec<String> = contents.iter().enumerate().map(write).collect();
    compare(&files.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_compressed_file_is_not_held_beside_its_content() {
    let Some(module) = module() else { return };
    let directory = tempfile::tempdir().unwrap();
    // Bytes that gzip does not make smaller, so that a second copy would show.
    let mut random = Random::new(31);
    let content: Vec<u8> = (0..2 << 20).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(&content).unwrap();
    let file = directory.path().join("noise.gz");
    std::fs::write(&file, encoder.finish().unwrap()).unwrap();
    if !run_in_node(module, &[&text(&file)], directory.path()) {
        return;
    }
    let memory: usize = std::fs::read_to_string(directory.path().join("0.memory")).unwrap().parse().unwrap();
    assert!(memory < content.len() * 7 / 4, "{memory} bytes of memory for {} of content", content.len());
}

/// A browser, and a site with the page and a snapshot.
struct Viewer {
    browser: Browser,
    site: String,
    directory: tempfile::TempDir,
}

impl Viewer {
    fn start() -> Option<Self> {
        let module = std::fs::read(module()?).unwrap();
        let browser = Browser::start()?;
        let directory = tempfile::tempdir().unwrap();
        let page = directory.path().join("viewer.html");
        write_viewer(&module, "0", &mut std::fs::File::create(&page).unwrap()).unwrap();
        std::fs::copy(fixtures::path("2.15.0-mempool"), directory.path().join("run.pickle.gz")).unwrap();
        let site = serve(directory.path().to_owned());
        Some(Self { browser, site, directory })
    }

    /// Opens the page at `hash`, from the site: a page at `file:` may not look into its own frame.
    fn open(&mut self, hash: &str) {
        self.browser.call("Page.navigate", json!({ "url": "about:blank" }));
        self.browser.call("Page.navigate", json!({ "url": format!("{}/viewer.html{hash}", self.site) }));
        self.wait_for("location.protocol === 'http:' && document.readyState === 'complete'");
    }

    /// Waits until the page in the frame has heard of the viewer.
    fn wait_for_page(&mut self) {
        self.wait_for("!!frame.contentWindow.oomscope");
        self.browser.value("frame.contentWindow.oomscope.ready.then(() => 0)");
    }

    /// Chooses `files` in the dialog.
    fn choose(&mut self, files: &[&str]) {
        let document = self.browser.call("DOM.getDocument", json!({}));
        let query = json!({ "nodeId": document["root"]["nodeId"], "selector": "#files" });
        let input = self.browser.call("DOM.querySelector", query);
        self.browser.call("DOM.setFileInputFiles", json!({ "nodeId": input["nodeId"], "files": files }));
    }

    /// Waits until an expression is true.
    fn wait_for(&mut self, expression: &str) {
        let start = std::time::Instant::now();
        while self.browser.value(expression) != true {
            assert!(start.elapsed().as_secs() < 60, "{expression}: {}", self.browser.value("document.body.innerText"));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Waits for the page of `name`, or a message in its place, and returns the text of its first screen.
    fn answer(&mut self, name: &str) -> String {
        self.wait_for(&format!(
            "!message.hidden || !result.hidden && shown.textContent.startsWith('{name}') \
             && !!frame.contentDocument?.getElementById('first')"
        ));
        let text = "message.hidden ? frame.contentDocument.getElementById('first').innerText : message.innerText";
        self.browser.value(text).as_str().unwrap().to_owned()
    }
}

/// Serves the files of `directory`; returns the address.
fn serve(directory: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or("/").trim_start_matches('/').to_owned();
            let (status, body) = match std::fs::read(directory.join(&path)) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let kind = if path.ends_with(".html") { "text/html" } else { "application/octet-stream" };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    site
}

#[test]
fn a_browser_shows_the_files_that_are_chosen() {
    let Some(mut viewer) = Viewer::start() else { return };
    viewer.open("");
    let failed = text(&fixtures::path("2.15.0-oom_varlen-at-oom"));
    viewer.choose(&[&failed]);
    let shown = viewer.answer("2.15.0-oom_varlen");
    assert!(shown.contains("out of memory on GPU 0"), "{shown}");
    // The page's own script runs in the frame, and its state is that of the file.
    viewer.wait_for("!!frame.contentWindow.oomscope");
    let state =
        viewer.browser.value("frame.contentWindow.oomscope.ready.then(() => frame.contentWindow.oomscope.state(100))");
    assert!(state["reserved"].as_u64().unwrap() > 0, "{state}");
    assert_eq!(viewer.browser.value("save.download"), "2.15.0-oom_varlen-at-oom.html");

    // Two ranks at once.
    viewer.browser.value("again.click()");
    viewer.choose(&[&failed, &text(&fixtures::path("2.15.0-two_devices"))]);
    viewer.wait_for("!result.hidden && shown.textContent.endsWith(' and 1 more')");
    let shown = viewer.answer("2.15.0-oom_varlen");
    assert!(shown.contains("2.15.0-two_devices"), "{shown}");

    // A file that cannot be read beside it is named.
    viewer.browser.value("again.click()");
    let zip = viewer.directory.path().join("archive.pickle");
    std::fs::write(&zip, b"PK\x03\x04").unwrap();
    viewer.choose(&[&failed, &text(&zip)]);
    viewer.wait_for("!result.hidden && shown.textContent.endsWith(' and 1 more')");
    let shown = viewer.answer("2.15.0-oom_varlen");
    assert!(shown.contains("archive.pickle: is a zip archive"), "{shown}");

    // A file that is no snapshot gets the sentence of the program.
    viewer.browser.value("again.click()");
    let bad = viewer.directory.path().join("bad.pickle");
    std::fs::write(&bad, b"\x80\x04}.").unwrap();
    viewer.choose(&[&text(&bad)]);
    let message = viewer.answer("bad");
    let refused = refusal(&["report", &text(&bad)]);
    assert_eq!(message, refused.trim_end().replace(&format!("oomscope: {}", text(&bad)), "bad.pickle"));
}

#[test]
fn files_are_dropped_and_reading_is_cancelled() {
    let Some(mut viewer) = Viewer::start() else { return };
    viewer.open("");
    let [failed, other] = ["2.15.0-oom_varlen-at-oom", "2.15.0-mempool"].map(|name| text(&fixtures::path(name)));
    viewer.browser.drop_file((400.0, 200.0), &failed);
    viewer.wait_for("!reading.hidden");
    viewer.browser.value("cancel.click()");
    assert_eq!(viewer.browser.value("[reading.hidden, result.hidden, message.hidden]"), json!([true, true, true]));
    viewer.browser.drop_file((400.0, 200.0), &failed);
    let shown = viewer.answer("2.15.0-oom_varlen");
    assert!(shown.contains("out of memory on GPU 0"), "{shown}");

    // Onto the page that is shown.
    viewer.wait_for_page();
    viewer.browser.drop_file((400.0, 500.0), &other);
    let shown = viewer.answer("2.15.0-mempool");
    assert!(shown.contains("no request failed"), "{shown}");
}

#[test]
fn a_saved_page_has_the_moment() {
    let Some(mut viewer) = Viewer::start() else { return };
    viewer.open("#url=run.pickle.gz");
    viewer.answer("run.pickle.gz");
    viewer.wait_for_page();
    viewer.browser.value("frame.contentWindow.oomscope.show({ moment: 43, pane: 'entries', query: 'a<b' })");
    viewer.wait_for("frame.contentWindow.location.hash.includes('t=43')");
    let to = json!({ "behavior": "allow", "downloadPath": text(viewer.directory.path()) });
    viewer.browser.call("Page.setDownloadBehavior", to);
    viewer.browser.value("save.click()");
    let saved = viewer.directory.path().join("run.html");
    let start = std::time::Instant::now();
    while !saved.exists() {
        assert!(start.elapsed().as_secs() < 60, "nothing is saved");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    viewer.browser.open(&saved, "");
    let view = viewer.browser.value("oomscope.view()");
    assert_eq!([&view["moment"], &view["pane"], &view["query"]], [&json!(43), &json!("entries"), &json!("a<b")]);
}

#[test]
fn it_works_in_the_frame_of_a_notebook() {
    let Some(mut viewer) = Viewer::start() else { return };
    let page = std::fs::read_to_string(viewer.directory.path().join("viewer.html")).unwrap();
    let escaped = page.replace('&', "&amp;").replace('"', "&quot;");
    // The frame of `oomscope.view()` in python/oomscope/_program.py.
    let program = include_str!("../../python/oomscope/_program.py");
    let frame = program.split("frame = '").nth(1).unwrap().split("'\n").next().unwrap();
    let frame = frame.replacen("%s", "width: 100%; height: 85vh; border: 0", 1).replacen("%s", &escaped, 1);
    let notebook = viewer.directory.path().join("notebook.html");
    std::fs::write(&notebook, format!("<!doctype html>{frame}")).unwrap();
    viewer.browser.show(&notebook);
    let enter = |viewer: &mut Viewer, url: &str| {
        let start = std::time::Instant::now();
        while !viewer.browser.enter_frame(url) {
            assert!(start.elapsed().as_secs() < 60, "no frame is at {url}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    enter(&mut viewer, "about:srcdoc");
    viewer.wait_for("document.readyState === 'complete'");
    viewer.browser.leave_frame();
    // Until the browser knows where the frame is, a drop goes to the page around it.
    let start = std::time::Instant::now();
    let mut dropped = None;
    while !viewer.browser.enter_frame("blob:") {
        assert!(start.elapsed().as_secs() < 60, "nothing is shown");
        if dropped.is_none_or(|at: std::time::Instant| at.elapsed().as_secs() >= 10) {
            viewer.browser.drop_file((500.0, 260.0), &text(&fixtures::path("2.15.0-oom_varlen-at-oom")));
            dropped = Some(std::time::Instant::now());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    viewer.wait_for("!!window.oomscope && document.body.innerText.includes('requested 399 MiB')");
}

#[test]
fn it_works_as_a_file() {
    let Some(mut viewer) = Viewer::start() else { return };
    let page = viewer.directory.path().join("viewer.html");
    viewer.browser.show(&page);
    viewer.choose(&[&text(&fixtures::path("2.15.0-mempool"))]);
    viewer.wait_for("!result.hidden && shown.textContent === '2.15.0-mempool.pickle.gz'");
}

#[test]
fn it_connects_to_nothing_but_the_file_in_its_address() {
    let Some(mut viewer) = Viewer::start() else { return };
    viewer.open("");
    let fetched = viewer.browser.value("fetch('run.pickle.gz').then(() => 'fetched', () => 'refused')");
    assert_eq!(fetched, "refused");
    viewer.browser.errors(); // the refusal is one

    viewer.open("#url=run.pickle.gz");
    let shown = viewer.answer("run.pickle.gz");
    assert!(shown.contains("no request failed"), "{shown}");

    viewer.open("#url=https://example.com/a.pickle");
    let message = viewer.answer("a.pickle");
    assert!(message.contains("is not of this site"), "{message}");
    viewer.open("#url=missing.pickle");
    let message = viewer.answer("missing");
    assert!(message.contains("404 Not Found"), "{message}");
    viewer.browser.errors(); // Chromium notes it, too
}

#[test]
fn a_program_built_without_the_module_names_where_it_is() {
    let out = tempfile::tempdir().unwrap();
    let file = text(&out.path().join("viewer.html"));
    let ran = run(&["viewer", "-o", &file]);
    if option_env!("OOMSCOPE_VIEWER_MODULE").is_some() {
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(std::fs::metadata(&file).unwrap().len() < 1_500_000);
    } else {
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("no analyzer for browsers"), "{}", ran.err);
    }
}
