//! The gate as a CI job runs it: in a repository of its own, with its limits and its baseline committed.

use crate::support::{made, program};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A repository.
pub(super) struct Project(pub(super) TempDir);

impl Project {
    /// An empty one.
    pub(super) fn bare() -> Self {
        let project = Self(TempDir::new().unwrap());
        project.git(&["init", "--quiet"]);
        project
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(super) fn git(&self, args: &[&str]) -> String {
        let name = ["-c", "user.name=ci", "-c", "user.email=ci@example.com"];
        let output = Command::new("git").args(name).args(args).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the program in `directory`.
    pub(super) fn oomscope(&self, directory: &str, args: &[&str]) -> (i32, String, String) {
        let output = program::command().args(args).current_dir(self.path(directory)).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// The job of [`gate_job`] runs and dumps a snapshot.
    fn train(&self, recording: &str) {
        self.write("snapshot.pickle.gz", std::fs::read(format!("fixtures/gate/{recording}.pickle.gz")).unwrap());
    }
}

/// The job whose recordings are in `fixtures/gate`, with its limits. It ran in a container, as /app.
fn gate_job() -> Project {
    let project = Project::bare();
    project.write("gate.py", std::fs::read("tests/oracle/gate.py").unwrap());
    project.write("oomscope.toml", "max-ooms = 0\nbaseline = 'ci/baseline.json'\nmax-growth-ratio = '1%'\n");
    std::fs::create_dir(project.path("ci")).unwrap();
    project.write(".gitignore", "*.pickle.gz\n");
    project
}

#[test]
fn a_job_passes_until_it_keeps_more_and_the_line_is_annotated() {
    let repository = gate_job();
    repository.train("none");
    let accept = |entry: &str| {
        let ran = ["check", "--update", "--entry", entry, "--allow-missing", "truncated", "snapshot.pickle.gz"];
        let (code, _, err) = repository.oomscope("", &ran);
        assert_eq!(code, 0, "{err}");
    };
    accept("train");
    accept("other");
    repository.git(&["add", "--all"]);
    repository.git(&["commit", "--quiet", "--message", "Limits and baseline"]);

    let check =
        ["check", "--format", "github", "--allow-missing", "truncated", "--entry", "train", "snapshot.pickle.gz"];
    for warm_up in ["none", "cached", "scattered"] {
        repository.train(warm_up);
        let (code, log, _) = repository.oomscope("", &check);
        assert_eq!((code, log.contains("::error")), (0, false), "{warm_up}: {log}");
        assert!(log.ends_with("oomscope check passed: all 4 limits hold\n"), "{log}");
    }

    repository.train("more");
    let (code, log, _) = repository.oomscope("", &check);
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
    let (code, below, _) = repository.oomscope("ci", &[&check[..7], &["../snapshot.pickle.gz"]].concat());
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
    let repository = gate_job();
    repository.write("src/a,b.py", "x = torch.empty(512)\n");
    let root = repository.0.path().canonicalize().unwrap();
    let file = root.join("src/a,b.py");
    let frames = made::frames(&[(file.to_str().unwrap(), 1, "main")]);
    let segment = made::segment(0, &[made::live(4096, 512, &frames), made::free(4608, 512)]);
    let snapshot = made::snapshot(&[segment], &[]);
    repository.write("snapshot.json", snapshot.to_string());
    repository.write("no-limits.toml", "");
    let config = root.join("no-limits.toml");
    let config = config.to_str().unwrap();
    for directory in ["", "src"] {
        let path = if directory.is_empty() { "snapshot.json" } else { "../snapshot.json" };
        let args = ["check", "--config", config, "--max-fragmentation", "1%", "--format", "github", path];
        let (code, log, _) = repository.oomscope(directory, &args);
        assert_eq!(code, 1, "{log}");
        assert!(log.starts_with("::error file=src/a%2Cb.py,line=1,title=fragmentation"), "{log}");
        assert!(!log.contains(root.to_str().unwrap()), "{log}");
    }
}
