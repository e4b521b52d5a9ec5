//! Chromium without a window, where one is installed: DevTools' messages over two pipes, each ended by a zero byte.
#![allow(clippy::print_stderr, unreachable_pub)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixtures::{self, Shared};
use super::program::{result_of, text};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 5] = ["/usr/lib/chromium/chromium", "chromium", "chromium-browser", "google-chrome", "chrome"];

/// Browsers that a test has left: the next one takes them over. They end with the pipe to the tests.
static IDLE: Mutex<Vec<Process>> = Mutex::new(Vec::new());

/// A page, in a context of its own, of a browser that no other test uses meanwhile. Dropping it fails if the page had errors.
pub struct Browser {
    /// `None` once it is left.
    process: Option<Process>,
    context: Value,
    session: Option<String>,
    /// The session of the page, while `session` is that of a frame.
    page_session: Option<String>,
    /// Its events that no command answered.
    events: VecDeque<Value>,
    /// Where its reports are.
    directory: TempDir,
}

struct Process {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    sent: u64,
    _profile: TempDir,
}

/// A browser's program, or `None` with a sentence.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found =
        NAMES.iter().find_map(|name| places.iter().map(|place| place.join(name)).find(|candidate| candidate.is_file()));
    if found.is_none() {
        eprintln!("no Chromium is installed: the page was not tried in a browser");
    }
    found
}

impl Process {
    /// `None` where there is no browser.
    fn start() -> Option<Self> {
        let program = program()?;
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(
                "exec \"$0\" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                 --remote-debugging-pipe --window-size=1280,900 \"--user-data-dir=$1\" about:blank \
                 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null",
            )
            .arg(&program)
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (send, from) = channel();
        std::thread::spawn(move || {
            let (mut all, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
            while let Ok(length @ 1..) = out.read(&mut chunk) {
                all.extend_from_slice(&chunk[..length]);
                while let Some(end) = all.iter().position(|byte| *byte == 0) {
                    let rest = all.split_off(end + 1);
                    let message = serde_json::from_slice(&all[..end]).unwrap();
                    all = rest;
                    if send.send(message).is_err() {
                        return;
                    }
                }
            }
        });
        Some(Self { child, to, from, sent: 0, _profile: profile })
    }

    fn send(&mut self, message: &Value) {
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// `None` where there is none.
    pub fn start() -> Option<Self> {
        let idle = IDLE.lock().unwrap().pop();
        let process = Some(idle.or_else(Process::start)?);
        let (context, directory) = (Value::Null, tempfile::tempdir().unwrap());
        let mut browser =
            Self { process, context, session: None, page_session: None, events: VecDeque::new(), directory };
        browser.context = browser.call("Target.createBrowserContext", json!({}))["browserContextId"].take();
        let page = json!({ "url": "about:blank", "browserContextId": browser.context, "width": 1280, "height": 900 });
        let target = browser.call("Target.createTarget", page);
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Runtime", "Page", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// What the browser answers to a command.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let process = self.process.as_mut().expect("a browser that is in use");
        process.sent += 1;
        let id = process.sent;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        process.send(&message);
        loop {
            let mut answer = process.from.recv_timeout(PATIENCE).expect("the browser answers");
            if answer["id"] == id {
                assert_eq!(answer.get("error"), None, "{method}");
                return answer["result"].take();
            }
            self.events.push_back(answer);
        }
    }

    /// Goes on in a frame that has a process of its own, whose address starts with `url`. False if there is none.
    pub fn enter_frame(&mut self, url: &str) -> bool {
        self.leave_frame();
        let targets = self.call("Target.getTargets", json!({}))["targetInfos"].take();
        let is_it = |one: &&Value| one["type"] == "iframe" && one["url"].as_str().unwrap().starts_with(url);
        let Some(target) = targets.as_array().unwrap().iter().find(is_it) else { return false };
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        self.page_session.clone_from(&self.session);
        self.session = Some(self.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned());
        true
    }

    /// Goes back to the page.
    pub fn leave_frame(&mut self) {
        self.session = self.page_session.take().or(self.session.take());
    }

    /// Drops a file at a place in the window.
    pub fn drop_file(&mut self, (x, y): (f64, f64), file: &str) {
        for kind in ["dragEnter", "dragOver", "drop"] {
            let data = json!({ "items": [], "files": [file], "dragOperationsMask": 1 });
            self.call("Input.dispatchDragEvent", json!({ "type": kind, "x": x, "y": y, "data": data }));
        }
    }

    /// The value of an expression; of a promise, what it promised.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", params);
        assert_eq!(answer.get("exceptionDetails"), None, "{expression}");
        answer["result"]["value"].take()
    }

    /// Does what an expression says, and waits until it is drawn.
    pub fn apply(&mut self, expression: &str) -> Value {
        let value = self.value(expression);
        self.settle();
        value
    }

    /// The text of an element as it is shown, on one line.
    pub fn text(&mut self, selector: &str) -> String {
        let shown = self.value(&format!("document.querySelector('{selector}').innerText"));
        shown.as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The text in the element `id`, once it is drawn.
    pub fn content(&mut self, id: &str) -> String {
        self.settle();
        self.value(&format!("document.getElementById('{id}').textContent")).as_str().unwrap().to_owned()
    }

    /// Opens a file, at `hash`, and waits until the page has drawn itself.
    pub fn open(&mut self, path: &Path, hash: &str) {
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        let url = format!("file://{}{hash}", path.display());
        self.call("Page.navigate", json!({ "url": url }));
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.value("location.protocol === 'file:' && !!window.oomscope") != true {
            assert!(std::time::Instant::now() < deadline, "{url} has no script");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.value("oomscope.ready.then(() => true)");
    }

    /// Writes the report of fixtures, which is made once for all tests.
    pub fn write_report(&self, names: &[&str]) -> PathBuf {
        static REPORTS: Shared<String> = Shared::new();
        let report = REPORTS.get(&names.join(" "), || {
            let files: Vec<String> = names.iter().map(|name| text(&fixtures::path(name))).collect();
            result_of(&["report"].into_iter().chain(files.iter().map(String::as_str)).collect::<Vec<_>>())
        });
        let out = self.directory.path().join("page.html");
        std::fs::write(&out, report).unwrap();
        out
    }

    /// Writes the report of fixtures and opens it.
    pub fn report(&mut self, names: &[&str], hash: &str) -> PathBuf {
        let out = self.write_report(names);
        self.open(&out, hash);
        out
    }

    /// Gives the window a size, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Opens a file that has no script.
    pub fn show(&mut self, path: &Path) {
        let url = format!("file://{}", path.display());
        self.call("Page.navigate", json!({ "url": url }));
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.value("location.protocol === 'file:' && document.readyState === 'complete'") != true {
            assert!(std::time::Instant::now() < deadline, "{url} is not shown");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Exceptions, and what was written to the console as an error, since the last time.
    pub fn errors(&mut self) -> Vec<Value> {
        self.value("true");
        let is_error = |one: &Value| match one["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => one["params"]["type"] == "error",
            Some("Log.entryAdded") => one["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.drain(..).filter(is_error).collect()
    }

    /// Where the middle of an element is on the screen, after scrolling to it.
    pub fn middle(&mut self, id: &str) -> (f64, f64) {
        let place = self.value(&format!(
            "(() => {{ const e = document.getElementById('{id}'); e.scrollIntoView({{ block: 'center' }}); \
             const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; }})()"
        ));
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    /// A pointer's event: `mousePressed`, `mouseReleased`, `mouseMoved`, `mouseWheel`.
    pub fn mouse(&mut self, kind: &str, place: (f64, f64), turned: f64) {
        self.mouse_with(kind, place, turned, 0);
    }

    /// The same, with modifier keys: 2 is Ctrl, 8 is Shift.
    pub fn mouse_with(&mut self, kind: &str, (x, y): (f64, f64), turned: f64, keys: u8) {
        let button = if kind == "mouseMoved" || kind == "mouseWheel" { "none" } else { "left" };
        let params = json!({ "type": kind, "x": x, "y": y, "deltaX": 0, "deltaY": turned, "button": button,
                             "clickCount": 1, "modifiers": keys });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Presses the button at one place and releases it at another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64), keys: u8) {
        for (kind, place) in [("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            self.mouse_with(kind, place, 0.0, keys);
        }
    }

    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key }));
        }
    }

    /// Waits until what was asked for is drawn.
    pub fn settle(&mut self) {
        self.value(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 320))))",
        );
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // After a failure its state is not known.
        if !std::thread::panicking() {
            assert_eq!(self.errors(), Vec::<Value>::new());
            self.session = None;
            self.call("Target.disposeBrowserContext", json!({ "browserContextId": self.context }));
            IDLE.lock().unwrap().extend(self.process.take());
        }
    }
}
