//! Files that several runs write, or that a run writes when it is killed.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::check_ci::Project;
use super::check_command::holding;
use crate::support::program::{self, file, run, text};

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

fn send(signal: i32, child: &Child) {
    let _ = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
}

fn export(snapshot: &str, directory: &str) -> Command {
    let mut command = program::command();
    command.args(["export", "--format", "csv", "-o", directory, &format!("fixtures/{snapshot}.pickle.gz")]);
    command.stderr(Stdio::null());
    command
}

/// The name and contents of each file.
fn contents(directory: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap_or_default()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_directory_of_tables_belongs_to_one_export() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| text(&directory.path().join(name));
    let snapshots = ["2.15.0-holes", "2.15.0-streams"];
    let whole = snapshots.map(|snapshot| {
        assert!(export(snapshot, &path(snapshot)).status().unwrap().success());
        contents(&path(snapshot))
    });
    assert_eq!((whole[0].len(), whole[0] == whole[1]), (5, false));
    let tables = path("tables");
    let mut seen = [0, 0, 0];
    for round in 0..40u64 {
        let mut child = export(snapshots[round as usize % 2], &tables).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 7 % 60));
        send([SIGTERM, SIGINT][round as usize % 2], &child);
        child.wait().unwrap();
        let found = contents(&tables);
        let which = whole.iter().position(|whole| *whole == found).or_else(|| found.is_empty().then_some(2));
        seen[which
            .unwrap_or_else(|| panic!("round {round}: {:?}", found.iter().map(|it| &it.0).collect::<Vec<_>>()))] += 1;
    }
    // Files of others stay.
    file(&directory, "tables/notes.md", b"mine");
    assert!(export(snapshots[0], &tables).status().unwrap().success());
    let mut expected = whole[0].clone();
    expected.push(("notes.md".to_owned(), b"mine".to_vec()));
    expected.sort();
    assert_eq!(contents(&tables), expected);
    let left: Vec<String> = contents(&text(directory.path())).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, [snapshots[0], snapshots[1], "tables"], "{seen:?}");
    // A failed export changes nothing.
    assert!(!export("no-such-file", &tables).status().unwrap().success());
    assert_eq!(contents(&tables), expected);
}

#[test]
fn a_temporary_file_of_a_process_that_lives_stays() {
    let directory = TempDir::new().unwrap();
    let host = String::from_utf8(Command::new("uname").arg("-n").output().unwrap().stdout).unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let name = |host: &str, pid: u32| format!(".oomscope-{}-{pid}-a1b2c3.tmp", host.trim());
    let kept = [name(&host, std::process::id()), name("elsewhere", gone.id()), ".oomscope-notes.tmp".to_owned()];
    for name in kept.iter().chain([&name(&host, gone.id())]) {
        file(&directory, name, b"x");
    }
    let output = text(&directory.path().join("a.json"));
    let analyzed = run(&["analyze", "--format", "json", "-o", &output, "fixtures/2.15.0-holes.pickle.gz"]);
    assert_eq!(analyzed.code, 0, "{}", analyzed.err);
    let mut left: Vec<String> = contents(&text(directory.path())).into_iter().map(|(name, _)| name).collect();
    left.retain(|name| name != "a.json");
    let mut kept = kept.to_vec();
    kept.sort();
    assert_eq!(left, kept);
}

#[test]
fn checks_in_one_directory_judge_each_its_own() {
    let project = Project::new();
    project.write("small.json", holding(100, 7).to_string());
    project.write("large.json", holding(300, 7).to_string());
    let job = "sleep 0.3; cp $0 \"$OOMSCOPE_DIR/vm-pid$$-exit1.pickle.gz\"; sleep 0.3";
    let check = |recording: &str| {
        let mut command = program::command();
        command.current_dir(project.0.path()).args(["check", "--gpu", "a10", "--dir", "kept", "--format", "json"]);
        command.args(["--max-peak-reserved", "200MiB", "--", "sh", "-c", job, recording]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let running: Vec<Child> = ["small.json", "large.json", "small.json"].map(check).into();
    let results = running.into_iter().map(|child| {
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report["findings"].as_array().unwrap().len())
    });
    assert_eq!(results.collect::<Vec<_>>(), [(Some(0), 1), (Some(1), 1), (Some(0), 1)]);
}

#[test]
fn an_interrupt_of_the_recorder_alone_reaches_the_job() {
    let directory = TempDir::new().unwrap();
    for (signal, name, code) in [(SIGINT, "INT", 7), (SIGTERM, "TERM", 8)] {
        if program::ignores(signal) {
            continue;
        }
        let job = format!("trap 'exit {code}' {name}; echo ready; for i in $(seq 600); do sleep 0.05; done");
        let mut command = program::command();
        command.current_dir(directory.path()).args(["run", "--", "sh", "-c", &job]);
        // A group of its own is not in the foreground of a terminal.
        let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        send(signal, &child);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
    }
}

#[test]
fn a_hint_names_a_directory_that_is_there() {
    let project = Project::new();
    for options in [&["--dir", "kept"][..], &[]] {
        let (_, _, err) = project.oomscope("", &[&["check", "--gpu", "a10"], options, &["--", "true"]].concat());
        for hint in err.lines().filter_map(|line| line.strip_prefix("oomscope: for details: oomscope ")) {
            assert!(Path::new(&project.path(hint)).exists(), "{err}");
        }
    }
}
