//! The text of source lines: what the recorder stored, what `--source` may read, and files that lie.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::pickle_bytes::{Py, Script, dict};
use crate::support::program::{refusal, result_of};
use crate::support::sample;
use oomscope::snapshot::Snapshot;

/// A snapshot with a request that failed at line 3 of `file`.
fn failed_in(file: &str) -> Py {
    let frames: Py = vec![sample::frame(file, 3, "main")].into();
    let failed = sample::event("oom", 0, 64 << 20, sample::TIME + 9).with("frames", frames);
    let mut events = sample::events(sample::ADDRESS);
    events.push(failed);
    sample::snapshot().with("device_traces", vec![events.into()])
}

fn with_source(snapshot: Py, source: Py) -> Py {
    snapshot.with("oomscope", dict([("recorder", 1.into()), ("source", source)]))
}

/// `oomscope.source` of one file.
fn lines_of(file: &str, lines: &[(i32, &str)]) -> Py {
    let items: Vec<Py> = lines.iter().flat_map(|(line, text)| [Py::from(*line), Py::from(*text)]).collect();
    dict([(file, items.into())])
}

/// The excerpt in the result for `snapshot`; null if there is none.
fn excerpt(directory: &Path, snapshot: &Py, options: &[&str]) -> Value {
    let path = directory.join("snapshot.pickle");
    fs::write(&path, snapshot.pickle(4)).unwrap();
    let arguments = [&["analyze", "--format", "json", path.to_str().unwrap()], options].concat();
    let result: Value = crate::support::program::read_with_details(&result_of(&arguments));
    let oom = &result["snapshots"][0]["devices"][0]["ooms"][0];
    assert_eq!(oom["culprit"]["line"], 3, "{oom}");
    oom["source"].clone()
}

#[test]
fn a_failure_quotes_the_recorded_line_with_its_neighbours() {
    let directory = TempDir::new().unwrap();
    for (recorded, first_line, lines) in [
        (
            &[(2, "def main():"), (3, "\tx.cuda()  \n"), (4, ""), (5, "far")][..],
            2,
            &["def main():", "    x.cuda()", ""][..],
        ),
        (&[(3, "x.cuda()"), (4, "y\u{1b}[31m")], 3, &["x.cuda()", "y\\u{1b}[31m"]),
        (&[(3, "first"), (3, "second")], 3, &["first"]),
    ] {
        let snapshot = with_source(failed_in("/app/train.py"), lines_of("/app/train.py", recorded));
        let expected = json!({ "file": "/app/train.py", "first_line": first_line, "lines": lines, "line": 3 });
        assert_eq!(excerpt(directory.path(), &snapshot, &[]), expected);
    }
    let neighbours = with_source(failed_in("/app/train.py"), lines_of("/app/train.py", &[(2, "a"), (4, "b")]));
    assert_eq!(excerpt(directory.path(), &neighbours, &[]), Value::Null);
}

#[test]
fn source_that_no_recorder_writes_is_ignored() {
    let directory = TempDir::new().unwrap();
    let file = "/app/train.py";
    let of_file = |value: Py| dict([(file, value)]);
    let list = |items: Vec<Py>| of_file(items.into());
    for source in [
        Py::None,
        "text".into(),
        vec![Py::from("text")].into(),
        of_file("text".into()),
        of_file(dict([("3", "text".into())])),
        list(vec![3.into(), 3.into()]),
        list(vec!["text".into(), 3.into()]),
        list(vec!["3".into(), "text".into()]),
        list(vec![Py::Int(-3), "text".into()]),
        list(vec![Py::Int(3 + (1 << 32)), "text".into()]),
        list(vec![3.into(), Py::Bytes(b"text".to_vec())]),
        list(vec![3.into(), "x".repeat(5000).as_str().into()]),
        list(vec![3.into()]),
        lines_of(&"x".repeat(5000), &[(3, "text")]),
        Py::Dict(vec![(3.into(), "text".into())]),
    ] {
        let found = excerpt(directory.path(), &with_source(failed_in(file), source.clone()), &[]);
        assert_eq!(found, Value::Null, "{source:?}");
    }
    // What is right among the rest is read.
    let mixed = list(vec![Py::None, Py::None, 3.into(), "x".into(), 4.into()]);
    let found = excerpt(directory.path(), &with_source(failed_in(file), mixed), &[]);
    assert_eq!(found["lines"], json!(["x"]));
}

#[test]
fn a_list_that_many_files_share_is_read_once() {
    let text = "\u{e0001}".repeat(160);
    let list = Script::default().text(&text).put(8).op(b'0').raw(b"](");
    let list = (0..100_000).fold(list, |list, line| list.int(line).get(8)).raw(b"e").put(9).op(b'0');
    let files = (0..100_000).fold(list.raw(b"}("), |files, file| files.text(&format!("f{file}.py")).get(9));
    let bytes = with_source(failed_in("/app/train.py"), Py::Raw(files.op(b'u').0)).pickle(4);
    let start = Instant::now();
    let snapshot = Snapshot::read(&bytes, &|_| ()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(snapshot.source.get("f0.py", 7).is_some());
    assert!(snapshot.source.get("f0.py", 5000).is_none() && snapshot.source.get("f1.py", 7).is_none());
}

#[test]
fn files_are_read_only_below_the_directory_that_is_given() {
    let outside = TempDir::new().unwrap();
    let directory = TempDir::new().unwrap();
    let project = directory.path().join("project");
    fs::create_dir_all(project.join("jobs")).unwrap();
    fs::create_dir(project.join("jobs/folder.py")).unwrap();
    let text = |name: &str| format!("one\ntwo\r\n\t{name}\n{}\nfive", "é".repeat(1000));
    for name in ["project/train.py", "project/jobs/train.py", "outside.py"] {
        fs::write(directory.path().join(name), text(name)).unwrap();
    }
    fs::write(outside.path().join("secret.py"), text("secret")).unwrap();
    fs::write(project.join("large.py"), format!("one\ntwo\nthree\n{}", "#".repeat(5 << 20))).unwrap();
    let below = project.join("train.py");
    let beside = directory.path().join("outside.py");
    let secret = outside.path().join("secret.py");
    let with_dots = project.join("../outside.py");
    let found = |recorded: &str, options: &[&str]| excerpt(directory.path(), &failed_in(recorded), options);
    let named = |path: &Path| found(path.to_str().unwrap(), &["--source", project.to_str().unwrap()]);

    assert_eq!(found(below.to_str().unwrap(), &[]), Value::Null, "without --source nothing is read");
    let expected = json!(["two", "    project/train.py", "é".repeat(160)]);
    assert_eq!(named(&below)["lines"], expected);
    for (recorded, line) in [
        ("/home/me/train.py", "    project/train.py"),
        ("train.py", "    project/train.py"),
        ("/home/me/jobs/train.py", "    project/jobs/train.py"),
        ("C:\\me\\jobs\\train.py", "    project/jobs/train.py"),
    ] {
        let quoted = named(Path::new(recorded));
        assert_eq!((&quoted["lines"][1], &quoted["file"]), (&json!(line), &json!(recorded)));
    }
    for path in [&beside, &secret, &with_dots, &project.join("large.py"), &project.join("jobs/folder.py")] {
        assert_eq!(named(path), Value::Null, "{}", path.display());
    }
    assert_eq!(named(Path::new("../outside.py")), Value::Null);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, project.join("linked.py")).unwrap();
        std::os::unix::fs::symlink(outside.path(), project.join("linked")).unwrap();
        std::os::unix::fs::symlink(&below, project.join("inside.py")).unwrap();
        for link in ["linked.py", "linked/secret.py"] {
            assert_eq!(named(&project.join(link)), Value::Null, "{link}");
            assert_eq!(named(Path::new(link)), Value::Null, "{link}");
        }
        assert_eq!(named(&project.join("inside.py"))["lines"], expected);
    }
    let missing = refusal(&["analyze", "--source", "no/such", "fixtures/2.15.0-holes.pickle.gz"]);
    assert!(missing.contains("no/such: cannot be opened"), "{missing}");
}

#[test]
fn recorded_text_wins_over_files() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("train.py"), "one\ntwo\nedited\nfour\n").unwrap();
    let snapshot = with_source(failed_in("/app/train.py"), lines_of("/app/train.py", &[(3, "as it ran")]));
    let quoted = excerpt(directory.path(), &snapshot, &["--source", directory.path().to_str().unwrap()]);
    assert_eq!(quoted["lines"], json!(["two", "as it ran", "four"]));
}

#[test]
fn a_page_without_directories_has_no_source() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("snapshot.pickle");
    let snapshot = with_source(failed_in("/app/train.py"), lines_of("/app/train.py", &[(3, "our_secret()")]));
    fs::write(&path, snapshot.pickle(4)).unwrap();
    let path = path.to_str().unwrap();
    assert!(result_of(&["report", path]).contains("our_secret()"));
    assert!(!result_of(&["report", "--strip-paths", path]).contains("our_secret()"));
}

#[test]
fn the_statement_that_keeps_the_memory_is_named_without_a_recorder() {
    let directory = TempDir::new().unwrap();
    let text = "kept = []\ndef main():\n    while f(x):\n        kept.append(g(x).detach())\n";
    fs::write(directory.path().join("train.py"), text).unwrap();
    let size = 64 << 20;
    let at = |line| Py::from(vec![sample::frame("/app/train.py", line, "main")]);
    let mut events = Vec::new();
    for step in 0..6 {
        let address = sample::ADDRESS + step * size;
        for action in ["segment_alloc", "alloc"] {
            events.push(sample::event(action, address, size, sample::TIME).with("frames", at(4)));
        }
    }
    events.push(sample::event("oom", 0, size, sample::TIME + 9).with("frames", at(3)));
    let snapshot = sample::snapshot().with("device_traces", vec![events.into()]).with("segments", Vec::<Py>::new());
    let path = directory.path().join("snapshot.pickle");
    fs::write(&path, snapshot.pickle(4)).unwrap();
    let action = |options: &[&str]| {
        let result = result_of(&[&["analyze", "--format", "json", path.to_str().unwrap()], options].concat());
        let result: Value = serde_json::from_str(&result).unwrap();
        result["summary"]["action"].as_str().unwrap_or_default().to_owned()
    };
    let named = action(&["--source", directory.path().to_str().unwrap()]);
    assert!(named.contains("into `kept` at") && named.contains("train.py:4: it holds 6"), "{named}");
    assert!(!action(&[]).contains("kept"), "no text is read without the option");
    // The file has changed since.
    fs::write(directory.path().join("train.py"), text.replace("main", "other")).unwrap();
    let changed = action(&["--source", directory.path().to_str().unwrap()]);
    assert!(!changed.contains("kept"), "{changed}");
}
