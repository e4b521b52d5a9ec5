//! The gate as a CI job runs it: in a repository of its own, with its limits and its baseline committed.

use crate::support::program;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

struct Repository(TempDir);

impl Repository {
    /// The job whose recordings are in `fixtures/gate`, with its limits. It ran in a container, as /app.
    fn new() -> Self {
        let repository = Self(TempDir::new().unwrap());
        repository.git(&["init", "--quiet"]);
        repository.write("gate.py", &std::fs::read("tests/oracle/gate.py").unwrap());
        let limits = "max-ooms = 0\nbaseline = 'ci/baseline.json'\nmax-growth-ratio = '1%'\n";
        repository.write("oomscope.toml", limits.as_bytes());
        std::fs::create_dir(repository.path("ci")).unwrap();
        repository.write(".gitignore", b"*.pickle.gz\n");
        repository
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=ci", "-c", "user.email=ci@example.com"])
            .args(args)
            .current_dir(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The job runs and dumps a snapshot.
    fn train(&self, recording: &str) {
        let bytes = std::fs::read(format!("fixtures/gate/{recording}.pickle.gz")).unwrap();
        self.write("snapshot.pickle.gz", &bytes);
    }

    /// Runs the program in `directory`.
    fn oomscope(&self, directory: &str, args: &[&str]) -> (i32, String) {
        let mut command = program::command();
        let Output { status, stdout, stderr } = command.args(args).current_dir(self.path(directory)).output().unwrap();
        assert_eq!(String::from_utf8(stderr).unwrap(), "", "{args:?}");
        (status.code().unwrap(), String::from_utf8(stdout).unwrap())
    }
}

#[test]
fn a_job_passes_until_it_keeps_more_and_the_line_is_annotated() {
    let repository = Repository::new();
    repository.train("none");
    let accept = |entry: &str| {
        let ran = ["check", "--update", "--entry", entry, "--allow-missing", "truncated", "snapshot.pickle.gz"];
        let output = program::command().args(ran).current_dir(repository.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    accept("train");
    accept("other");
    repository.git(&["add", "--all"]);
    repository.git(&["commit", "--quiet", "--message", "Limits and baseline"]);

    let check =
        ["check", "--format", "github", "--allow-missing", "truncated", "--entry", "train", "snapshot.pickle.gz"];
    for warm_up in ["none", "cached", "scattered"] {
        repository.train(warm_up);
        let (code, log) = repository.oomscope("", &check);
        assert_eq!((code, log.contains("::error")), (0, false), "{warm_up}: {log}");
        assert!(log.ends_with("oomscope check passed: all 4 limits hold\n"), "{log}");
    }

    repository.train("more");
    let (code, log) = repository.oomscope("", &check);
    assert_eq!(code, 1, "{log}");
    let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("::error ")).collect();
    assert_eq!(errors.len(), 2, "{log}");
    let job = std::fs::read_to_string(repository.path("gate.py")).unwrap();
    for error in errors {
        let place = error.strip_prefix("::error file=gate.py,line=").expect(error);
        let line: usize = place.split_once(',').unwrap().0.parse().unwrap();
        assert!(job.lines().nth(line - 1).unwrap().contains("tensor("), "{error}");
        assert!(error.contains("grew by "), "{error}");
    }
    // From a directory below, limits, baseline and lines are the same.
    let (code, below) = repository.oomscope("ci", &[&check[..7], &["../snapshot.pickle.gz"]].concat());
    assert_eq!((code, below.replace("../", "")), (1, log));

    // The growth is accepted: the new entry is a small change to read.
    accept("train");
    assert_eq!(repository.git(&["status", "--porcelain"]), " M ci/baseline.json\n");
    let changed = repository.git(&["diff", "--numstat"]);
    assert_eq!(changed, "5\t4\tci/baseline.json\n", "the peaks, three lines, and a new one");
    assert_eq!(repository.oomscope("", &check).0, 0);
}

#[test]
fn files_of_the_repository_are_named_from_its_root() {
    let repository = Repository::new();
    repository.write("src/a,b.py", b"x = torch.empty(512)\n");
    let root = repository.0.path().canonicalize().unwrap();
    let file = root.join("src/a,b.py");
    let frames = json!([{"filename": file, "line": 1, "name": "main"}]);
    let block = |address, state, frames| json!({"size": 512, "requested_size": 512, "address": address, "state": state, "frames": frames});
    let blocks = json!([block(4096, "active_allocated", frames), block(4608, "inactive", json!([]))]);
    let segment = json!({"device": 0, "address": 4096, "total_size": 1024, "stream": 0, "segment_type": "small", "blocks": blocks});
    let snapshot = json!({"segments": [segment], "device_traces": []});
    repository.write("snapshot.json", snapshot.to_string().as_bytes());
    repository.write("no-limits.toml", b"");
    let config = root.join("no-limits.toml");
    let config = config.to_str().unwrap();
    for directory in ["", "src"] {
        let path = if directory.is_empty() { "snapshot.json" } else { "../snapshot.json" };
        let args = ["check", "--config", config, "--max-fragmentation", "1%", "--format", "github", path];
        let (code, log) = repository.oomscope(directory, &args);
        assert_eq!(code, 1, "{log}");
        assert!(log.starts_with("::error file=src/a%2Cb.py,line=1,title=fragmentation"), "{log}");
        assert!(!log.contains(root.to_str().unwrap()), "{log}");
    }
}
