//! Runs the built program as a script would, in an environment of its own.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::schema;

/// What changes how the page looks or how the work is shared out.
const VARIABLES: &str = "CLICOLOR CLICOLOR_FORCE COLORTERM COLUMNS LANG LC_ALL LC_CTYPE NO_COLOR RAYON_NUM_THREADS \
    RUST_BACKTRACE TERM TERM_PROGRAM";

/// The program, to be run in the root of the repository, where `fixtures/` is.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oomscope"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    for name in VARIABLES.split(' ') {
        command.env_remove(name);
    }
    command
}

/// [`command`] with assertions.
pub fn oomscope(args: &[&str]) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::from_std(command());
    command.args(args);
    command
}

/// How a run ended and what it said.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn run(args: &[&str]) -> Ran {
    run_with(args, &[])
}

/// [`run`] with variables set. JSON has to keep to its schema.
pub fn run_with(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let output = oomscope(args).envs(variables.iter().copied()).output().unwrap();
    let ran = Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    schema::check(args, &ran.out);
    ran
}

/// The result of a run that must go well and say nothing on standard error.
pub fn result_of(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    ran.out
}

/// Ends with 2, nothing on standard output, and one line on standard error, which is returned.
pub fn refusal(args: &[&str]) -> String {
    let Ran { code, out, err } = run(args);
    assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("oomscope: ") && err.ends_with('\n'), "{args:?}: {err}");
    err
}

/// The result of `oomscope analyze` in `directory`, where its configuration is.
pub fn analyze_in(directory: &Path, args: &[&str]) -> String {
    let output = command().current_dir(directory).arg("analyze").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The result of `args` as JSON.
pub fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&result_of(&[args, &["--format", "json"]].concat())).unwrap()
}

/// The JSON of `oomscope analyze` with `args`.
pub fn analyze(args: &[&str]) -> Value {
    with_details(json_of(&[&["analyze"], args].concat()))
}

/// The JSON in `text`, with the `details` of each part beside the keys that are promised.
pub fn read_with_details(text: &str) -> Value {
    with_details(serde_json::from_str(text).unwrap())
}

/// `json` with the `details` of each part beside the keys that are promised.
pub fn with_details(json: Value) -> Value {
    match json {
        Value::Array(items) => items.into_iter().map(with_details).collect(),
        Value::Object(mut members) => {
            if let Some(Value::Object(details)) = members.remove("details") {
                members.extend(details);
            }
            members.into_iter().map(|(key, value)| (key, with_details(value))).collect()
        }
        other => other,
    }
}

/// Whether this process ignores a signal, as after nohup or in a background job of a shell: the program then does so, too.
pub fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1)
}

/// Waits for a program that should need no time at all.
pub fn wait_briefly(child: &mut Child) -> Option<ExitStatus> {
    let patience = Instant::now() + Duration::from_secs(20);
    while Instant::now() < patience {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// A new file in `directory`, as an argument. Windows knows fewer names.
pub fn file(directory: &TempDir, name: &str, bytes: &[u8]) -> String {
    let refused = |c: char| cfg!(windows) && (c.is_control() || "<>:\"|?*".contains(c));
    let path = directory.path().join(name.replace(refused, "_"));
    std::fs::write(&path, bytes).unwrap();
    text(&path)
}

/// As the program writes it.
pub fn text(path: &Path) -> String {
    path.to_str().unwrap().replace('/', std::path::MAIN_SEPARATOR_STR)
}

/// A sound snapshot with `entries` trace entries; the last one has `mark` in it.
pub fn pickled(entries: usize, mark: &str) -> Vec<u8> {
    let entry = |i: usize| {
        let metadata = if i + 1 == entries { mark } else { "" };
        json!({"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "user_metadata": metadata})
    };
    let trace: Vec<Value> = (0..entries).map(entry).collect();
    let snapshot = json!({"segments": [], "device_traces": [trace]});
    serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new()).unwrap()
}

/// Where `wanted` begins.
pub fn find(bytes: &[u8], wanted: &str) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted.as_bytes()).unwrap()
}

/// Three ranks, one in a directory of its own, and JSON files that are no snapshots.
pub fn job(directory: &TempDir) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let job = directory.path().join("job");
    std::fs::create_dir_all(job.join("node1")).unwrap();
    for (name, from) in [
        ("rank_0.pickle.gz", "2.15.0-holes.pickle.gz"),
        ("rank_1.PICKLE.gz", "2.15.0-holes-at-oom.pickle.gz"),
        ("node1/rank_2.pickle.gz", "2.15.0-conv_train.pickle.gz"),
        ("rank_0.stats.json", "2.15.0-holes.stats.json"),
        ("node1/config.json", "2.15.0-holes.stats.json"),
        ("notes.txt", "2.15.0-holes.stats.json"),
    ] {
        std::fs::copy(fixtures.join(from), job.join(name)).unwrap();
    }
    job
}
