//! `analyze --watch`: snapshots of ranks that are written one after the other.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::support::program::{command, pickled, run, text, wait_briefly};
use serde_json::Value;
use tempfile::TempDir;

const OOM: &str = "fixtures/2.15.0-holes-at-oom.pickle.gz";
const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";

struct Watch {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watch {
    fn start(directory: &TempDir, options: &[&str]) -> Self {
        let mut command = command();
        command.args(["analyze", "--watch", &text(directory.path())]).args(options);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    fn terminate(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// The exit code, and what was printed until then.
    fn end(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (wait_briefly(&mut self.child).unwrap().code().unwrap(), rest)
    }
}

#[test]
fn each_snapshot_has_a_line_and_the_page_begins_with_the_worst() {
    let directory = TempDir::new().unwrap();
    fs::copy(HOLES, directory.path().join("rank0.pickle.gz")).unwrap();
    let mut watch = Watch::start(&directory, &["--until", "3"]);
    assert!(watch.line().contains("rank0.pickle.gz: "), "a file that was there before");
    fs::create_dir(directory.path().join("node1")).unwrap();
    fs::copy(OOM, directory.path().join("node1/rank1.pickle.gz")).unwrap();
    let line = watch.line();
    assert!(line.contains("node1/rank1.pickle.gz: ") && line.contains("fragmentation"), "{line}");
    fs::copy("fixtures/2.15.0-conv_train.pickle.gz", directory.path().join("rank2.pickle.gz")).unwrap();
    assert!(watch.line().contains("rank2.pickle.gz: "));
    let (code, page) = watch.end();
    assert_eq!(code, 0);
    assert!(page.starts_with("3 ranks: 1 ran out of memory, 2 did not"), "{page}");
    let row = |name: &str| page.find(&format!(" {name} ")).unwrap_or_else(|| panic!("{name}: {page}"));
    assert!(row("node1/rank1") < row("rank0"), "{page}");
}

#[test]
fn a_file_that_is_being_written_is_not_read_half() {
    let directory = TempDir::new().unwrap();
    let mut watch = Watch::start(&directory, &["--format", "jsonl", "--until", "1"]);
    let bytes = pickled(400, "end");
    let mut file = fs::File::create(directory.path().join("rank0.pickle")).unwrap();
    // The first part ends with the byte of STOP, within a string.
    let half = bytes.len() / 2;
    file.write_all(&bytes[..half]).unwrap();
    file.write_all(b".").unwrap();
    file.flush().unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert!(watch.child.try_wait().unwrap().is_none());
    let mut file = fs::File::create(directory.path().join("rank0.pickle")).unwrap();
    file.write_all(&bytes).unwrap();
    drop(file);
    let row: Value = serde_json::from_str(&watch.line()).unwrap();
    assert!(row.get("error").is_none() && row["path"].as_str().unwrap().ends_with("rank0.pickle"), "{row}");
    assert_eq!(watch.end(), (0, String::new()));
}

#[test]
fn a_signal_ends_with_the_page_and_names_the_files_that_are_incomplete() {
    let directory = TempDir::new().unwrap();
    let mut watch = Watch::start(&directory, &[]);
    fs::copy(OOM, directory.path().join("rank0.pickle.gz")).unwrap();
    assert!(watch.line().contains("rank0.pickle.gz"));
    fs::write(directory.path().join("rank1.pickle"), &pickled(50, "x")[..200]).unwrap();
    watch.terminate();
    let (code, rest) = watch.end();
    assert_eq!(code, 2, "{rest}");
    assert!(rest.contains("rank1.pickle: ") && rest.contains("rank0.pickle.gz"), "{rest}");
}

#[test]
fn a_file_that_is_written_again_with_the_same_length_and_time_has_a_new_line() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("rank0.pickle");
    let write = |name| {
        fs::write(&path, pickled(50, name)).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    write("one");
    let mut watch = Watch::start(&directory, &["--format", "jsonl"]);
    assert!(watch.line().contains("rank0.pickle"));
    write("two");
    assert!(watch.line().contains("rank0.pickle"));
    watch.terminate();
    assert_eq!(watch.end().0, 0);
}

#[test]
fn nothing_that_comes_is_no_failure() {
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("later");
    let ran = run(&["analyze", "--watch", "--idle", "1s", &text(&missing)]);
    let expected =
        format!("oomscope: {}: does not exist yet; waiting for it\noomscope: no snapshot came\n", text(&missing));
    assert_eq!((ran.code, ran.out.as_str(), ran.err), (0, "", expected));
    assert!(run(&["analyze", "--watch", OOM]).err.contains("is not a directory"));
    assert_eq!(run(&["analyze", "--idle", "1s", OOM]).code, 2);
    assert!(run(&["analyze", "--watch", "--idle", "soon", "."]).err.contains("such as 30s"));
}
