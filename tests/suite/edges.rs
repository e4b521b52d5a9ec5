//! Where the program meets other users, signals and terminals.
#![cfg(unix)]

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::program::{self, run, run_with, text};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// `oomscope run -o DIRECTORY` of a command that prints the mode of the recorder's directory and leaves a file there.
fn record(directory: &Path) -> Output {
    let show = "stat -c %a \"$OOMSCOPE_DIR/.recorder\"; touch \"$OOMSCOPE_DIR/x.pickle.gz.1.part\"";
    program::command().args(["run", "-o"]).arg(directory).args(["--", "sh", "-c", show]).output().unwrap()
}

#[test]
fn the_recorder_is_written_only_where_no_other_user_can_change_it() {
    let parent = TempDir::new().unwrap();
    let made = parent.path().join("new/runs");
    let ran = record(&made);
    assert_eq!((ran.status.code(), String::from_utf8(ran.stdout).unwrap().trim()), (Some(0), "700"));
    assert!(!made.exists(), "nothing was recorded, and what killed processes left is removed");

    let refused = |directory: &Path, why: &str| {
        let ran = record(directory);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.code() == Some(2) && said.contains(why), "{said}");
    };
    let directory = |name: &str, mode: u32| {
        let path = parent.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    };
    refused(&directory("shared", 0o777), "other users may write to it");
    refused(&directory("sticky", 0o1777), "other users may write to it");
    assert_eq!(record(&directory("mine", 0o755)).status.code(), Some(0));

    let victim = parent.path().join("victim");
    fs::write(&victim, "kept").unwrap();
    let linked = directory("linked", 0o755);
    symlink(parent.path(), linked.join(".recorder")).unwrap();
    refused(&linked, "is not a directory");
    // The recorder that an ended job left is replaced, with everything in it.
    let replaced = |directory: &Path| {
        let ran = record(directory);
        assert_eq!((ran.status.code(), String::from_utf8(ran.stdout).unwrap().trim()), (Some(0), "700"));
    };
    let planted = directory("planted", 0o755);
    fs::create_dir(planted.join(".recorder")).unwrap();
    symlink(&victim, planted.join(".recorder/sitecustomize.py")).unwrap();
    replaced(&planted);
    assert_eq!(fs::read(&victim).unwrap(), b"kept");
    let open = directory("open", 0o755);
    fs::create_dir(open.join(".recorder")).unwrap();
    fs::set_permissions(open.join(".recorder"), Permissions::from_mode(0o777)).unwrap();
    replaced(&open);
}

/// Python writes snapshots that only their user may read, and not through links.
#[test]
fn snapshots_are_private() {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("victim"), "kept").unwrap();
    symlink(path("victim"), path("linked.part")).unwrap();
    let script = "import sys; sys.path.insert(0, 'python/oomscope'); import _recorder as r\n\
        for name in ('a.pickle', 'b.pickle.gz'): r.write_to({'segments': []}, sys.argv[1] + '/' + name, sys.argv[1] + '/p')\n\
        try: r.write_to({}, sys.argv[1] + '/c.pickle', sys.argv[1] + '/linked.part')\n\
        except OSError: print('refused')\n";
    let ran = Command::new("python3").args(["-c", script]).arg(directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "refused\n", "{said}");
    assert_eq!((mode(&path("a.pickle")), mode(&path("b.pickle.gz"))), (0o600, 0o600));
    assert_eq!(run(&["analyze", &text(&path("b.pickle.gz"))]).code, 0);
    assert_eq!(fs::read(path("victim")).unwrap(), b"kept");
}

#[test]
fn a_signal_leaves_no_temporary_file() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1), (Signal::INT, 2)] {
        if program::ignores(number) {
            continue;
        }
        let directory = TempDir::new().unwrap();
        let names = || fs::read_dir(directory.path()).unwrap().count();
        fs::write(directory.path().join("report.json"), "before").unwrap();
        // It waits for standard input.
        let mut child = program::command()
            .args(["analyze", "--format", "json", "-", "-o"])
            .arg(directory.path().join("report.json"))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It stays open until the signal has ended the program.
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"\x80\x04").unwrap();
        let start = Instant::now();
        while names() < 2 && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(names(), 2, "the temporary file");
        kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        drop(input);
        assert_eq!(names(), 1, "only the old result");
        assert_eq!(fs::read(directory.path().join("report.json")).unwrap(), b"before");
    }
}

#[test]
fn arguments_are_plain_text() {
    let evil = "x\u{1b}]0;title\u{7}\u{202e}\u{9b}1m\n::error::y";
    for args in [
        &["analyze", evil, "--format", evil][..],
        &[evil],
        &[&format!("--{evil}")],
        &["check", "--max-ooms", evil, "a"],
        &["check", "--allow-missing", evil, "a"],
        &["run", "--keep", evil, "a"],
        &["whatif", "--set", evil, "fixtures/2.15.0-holes.pickle.gz"],
        &["analyze", evil],
    ] {
        let ran = run_with(args, &[("CLICOLOR_FORCE", "1")]);
        let has_active = ran.err.contains(['\u{7}', '\u{202e}', '\u{9b}']) || ran.err.contains("\u{1b}]");
        let obeyed = ran.err.lines().any(|line| line.trim_start().starts_with("::"));
        assert!(ran.code == 2 && !has_active && !obeyed, "{args:?}: {:?}", ran.err);
    }
    // What is plain keeps its colours.
    assert!(run_with(&["analyze", "--formt"], &[("CLICOLOR_FORCE", "1")]).err.contains("\u{1b}["));
}

#[test]
fn endless_input_is_refused_at_its_start() {
    for (device, why) in [("/dev/zero", "without end"), ("/dev/urandom", "without end"), ("/dev/full", "without end")] {
        for command in ["analyze", "check", "report"] {
            let limit = if command == "check" { &["--max-ooms", "0"][..] } else { &[] };
            let ran = run(&[&[command], limit, &[device]].concat());
            assert!(ran.code == 2 && ran.err.contains(why), "{}", ran.err);
        }
    }
    let zeros = fs::File::open("/dev/zero").unwrap();
    let ran = program::command().args(["analyze", "-"]).stdin(zeros).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(2) && said.contains("starts with zeros"), "{said}");
    assert!(run(&["analyze", "/dev/null"]).err.contains("is empty"));
}
