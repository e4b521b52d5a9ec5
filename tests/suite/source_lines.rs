//! The text of source lines: what the recorder stored, what `--source` may read, and files that lie.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::ZlibEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::pickle_bytes::{Py, dict};
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

/// With `oomscope.program`.
fn with_program(snapshot: Py, program: Py) -> Py {
    snapshot.with("oomscope", dict([("recorder", 1.into()), ("program", program)]))
}

/// A character for each byte of the compressed text.
fn compressed(text: &str) -> String {
    let mut bytes = Vec::new();
    ZlibEncoder::new(text.as_bytes(), Compression::default()).read_to_end(&mut bytes).unwrap();
    bytes.into_iter().map(char::from).collect()
}

fn program_of(file: &str, text: &str) -> Py {
    dict([("files", dict([(file, compressed(text).as_str().into())])), ("complete", Py::Bool(true))])
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
    for (text, lines) in [
        ("one\ndef main():\n\tx.cuda()  \n\nfar", &["def main():", "    x.cuda()", ""][..]),
        ("one\ntwo\nx.cuda()\ny\u{1b}[31m", &["two", "x.cuda()", "y\\u{1b}[31m"]),
        ("one\ntwo\nx.cuda()", &["two", "x.cuda()"]),
    ] {
        let snapshot = with_program(failed_in("/app/train.py"), program_of("/app/train.py", text));
        let expected = json!({ "file": "/app/train.py", "first_line": 2, "lines": lines, "line": 3 });
        assert_eq!(excerpt(directory.path(), &snapshot, &[]), expected);
    }
    let short = with_program(failed_in("/app/train.py"), program_of("/app/train.py", "one\ntwo"));
    assert_eq!(excerpt(directory.path(), &short, &[]), Value::Null);
}

#[test]
fn text_that_no_recorder_writes_is_ignored() {
    let directory = TempDir::new().unwrap();
    let file = "/app/train.py";
    let of_file = |value: Py| dict([("files", dict([(file, value)]))]);
    let good = compressed("one\ntwo\nthree");
    for program in [
        Py::None,
        "text".into(),
        dict([("files", vec![Py::from(good.as_str())].into())]),
        of_file(3.into()),
        of_file("no compressed text".into()),
        of_file("\u{e0001}".into()),
        of_file(Py::Bytes(good.chars().map(|one| one as u8).collect())),
        of_file(good.chars().take(8).collect::<String>().as_str().into()),
        program_of(&"x".repeat(5000), "one\ntwo\nthree"),
        // As releases before wrote single lines.
        dict([(file, vec![3.into(), Py::from("x.cuda()")].into())]),
    ] {
        let found = excerpt(directory.path(), &with_program(failed_in(file), program.clone()), &[]);
        assert_eq!(found, Value::Null, "{program:?}");
    }
}

#[test]
fn a_text_that_many_files_share_is_read_a_few_times() {
    let text = compressed(&" ".repeat(40 << 20));
    let files: Vec<(Py, Py)> =
        (0..900).map(|file| (format!("f{file}.py").as_str().into(), text.as_str().into())).collect();
    let bytes = with_program(failed_in("/app/train.py"), dict([("files", Py::Dict(files))])).pickle(4);
    let start = Instant::now();
    let snapshot = Snapshot::read(&bytes, &|_| ()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(snapshot.source.iter().count(), 1);
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
    let snapshot = with_program(failed_in("/app/train.py"), program_of("/app/train.py", "1\n2\nas it ran\n4"));
    let quoted = excerpt(directory.path(), &snapshot, &["--source", directory.path().to_str().unwrap()]);
    assert_eq!(quoted["lines"], json!(["2", "as it ran", "4"]));
}

#[test]
fn a_page_without_directories_has_no_source() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("snapshot.pickle");
    let snapshot = with_program(failed_in("/app/train.py"), program_of("/app/train.py", "1\n2\nour_secret()"));
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
    assert!(named.contains("into `kept` at") && named.contains("train.py:4: it holds 384 MiB"), "{named}");
    assert!(!action(&[]).contains("kept"), "no text is read without the option");
    // Other programs in the same directory, then modules of this one.
    fs::create_dir(directory.path().join("data")).unwrap();
    for path in ["other.py", "data/other.py"] {
        fs::write(directory.path().join(path), "batches = itertools.cycle(loader)\n").unwrap();
    }
    let with_statement = |statement: &str| {
        fs::write(directory.path().join("train.py"), text.replace("kept.append(g(x).detach())", statement)).unwrap();
        action(&["--source", directory.path().to_str().unwrap()])
    };
    assert!(!with_statement("g(x)").contains("batches"));
    assert!(with_statement("import other; g(x)").contains("start the loader of `batches` anew"));
    fs::remove_file(directory.path().join("other.py")).unwrap();
    assert!(with_statement("from data import other; g(x)").contains("start the loader of `batches` anew"));
    fs::write(directory.path().join("train.py"), text).unwrap();
    // The file has changed since.
    fs::write(directory.path().join("train.py"), text.replace("main", "other")).unwrap();
    let changed = action(&["--source", directory.path().to_str().unwrap()]);
    assert!(!changed.contains("kept"), "{changed}");
}
