//! `oomscope check --gpu .. -- CMD`: limits, baselines and the verdict on a command. The command copies a recording in
//! place of a program that PyTorch records.

use std::process::Command;

use serde_json::{Value, json};

use super::check_ci::Project;
use super::dry_run::{read, recording};
use crate::support::program;

const MIB: u64 = 1 << 20;

impl Project {
    /// A repository with a job.
    pub(super) fn new() -> Self {
        let project = Self::bare();
        project.write("train.py", "\n".repeat(20));
        let job = "echo output of the job\n\
                   [ ! -e recorded.json ] || cp recorded.json \"$OOMSCOPE_DIR/vm-pid$$-exit1.pickle.gz\"\n\
                   exit $(cat code 2>/dev/null || echo 0)\n";
        project.write("job.sh", job);
        project
    }

    /// The job leaves this recording.
    pub(super) fn records(&self, recording: &Value) {
        self.write("recorded.json", recording.to_string());
    }

    /// `oomscope check --gpu a10 OPTIONS -- sh job.sh`
    fn check(&self, options: &[&str]) -> (i32, String, String) {
        self.oomscope("", &[&["check", "--gpu", "a10"], options, &["--", "sh", "job.sh"]].concat())
    }

    fn code(&self, options: &[&str]) -> i32 {
        self.check(options).0
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }
}

/// [`recording`] with `mib` MiB at `line` in place of 100 MiB at line 7.
pub(super) fn holding(mib: u64, line: u64) -> Value {
    let text = recording(&json!([]), 0, false).to_string();
    let text = text.replace(&(100 * MIB).to_string(), &(mib * MIB).to_string());
    serde_json::from_str(&text.replace("\"line\":7", &format!("\"line\":{line}"))).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_job_that_would_fit_passes_and_leaves_nothing() {
    let project = Project::new();
    project.records(&holding(100, 7));
    let (code, out, err) = project.check(&["--format", "json", "--max-peak-reserved", "100MiB"]);
    let report = json(&out);
    assert_eq!((code, report["passed"].as_bool()), (0, Some(true)), "{out}");
    assert_eq!(report["dry_run"]["verdict"], "would-fit");
    assert_eq!(report["dry_run"]["command"], "sh job.sh");
    assert!(err.contains("output of the job"), "{err}");
    assert!(!project.has("oomscope-check-1"));

    let (code, out, err) = project.check(&["--max-peak-reserved", "99MiB"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("FAILED: would fit on NVIDIA A10 (dry run), the limit does not hold"), "{out}");
    assert!(err.ends_with("for details: oomscope oomscope-check-1\n"), "{err}");
    assert!(project.has("oomscope-check-1"));
}

#[test]
fn only_a_certain_verdict_passes() {
    let project = Project::new();
    let branch = |usage: &str| {
        let mut read = read("item", 1, 2_000_000, 9);
        read["usage"] = usage.into();
        recording(&json!([read]), 0, false)
    };
    // Recording, exit code of the job, verdict; exit code of the check.
    let cases = [
        (Some(branch("report")), 0, "would-fit", 0),
        (Some(branch("branch")), 0, "may-fit", 1),
        (Some(recording(&json!([]), 0, true)), 1, "would-not-fit", 1),
        (Some(branch("report")), 3, "did-not-finish", 1),
        (None, 0, "no-verdict", 1),
        (None, 2, "no-verdict", 1),
    ];
    for (recording, job, verdict, code) in cases {
        let _ = std::fs::remove_file(project.path("recorded.json"));
        if let Some(recording) = &recording {
            project.records(recording);
        }
        project.write("code", job.to_string());
        let (actual, out, _) = project.check(&["--format", "json", "--dir", "kept"]);
        let report = json(&out);
        assert_eq!((actual, report["dry_run"]["verdict"].as_str()), (code, Some(verdict)), "{out}");
        assert_eq!(report["passed"].as_bool(), Some(code == 0));
        let allowed = if verdict == "would-not-fit" { 1 } else { 0 };
        if !["would-fit", "would-not-fit"].contains(&verdict) {
            assert_eq!(project.code(&["--allow-missing", verdict]), allowed, "{verdict}");
        }
        let _ = std::fs::remove_dir_all(project.path("kept"));
    }
}

#[test]
fn every_format_has_the_verdict_and_its_line() {
    let project = Project::new();
    project.records(&recording(&json!([]), 0, true));
    let sentence = "would not fit on NVIDIA A10 (dry run): a request for 200 MiB failed at app/train.py:7 in main";
    let also = ["--also", "junit=a.xml", "--also", "sarif=a.sarif", "--also", "markdown=a.md", "--also", "json=a.json"];
    let (code, out, _) = project.check(&[&["--format", "github"], &also[..]].concat());
    assert_eq!(code, 1);
    assert!(out.contains(&format!("::error file=train.py,line=7,title=dry run::{sentence}\n")), "{out}");
    let written = |name: &str| std::fs::read_to_string(project.path(name)).unwrap();
    let junit = written("a.xml");
    assert!(junit.contains("tests=\"1\" failures=\"1\"") && junit.contains(sentence), "{junit}");
    let sarif = json(&written("a.sarif"));
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "train.py");
    let rule = result["ruleIndex"].as_u64().unwrap() as usize;
    assert_eq!(sarif["runs"][0]["tool"]["driver"]["rules"][rule]["id"], "dry-run");
    assert!(written("a.md").contains("would not fit"));
    // The file has another name each time; the test keeps its own.
    let (_, out, _) = project.check(&["--format", "junit", "--max-peak-reserved", "1MiB"]);
    assert!(out.contains("classname=\"sh job.sh, device 0\" name=\"peak-reserved\""), "{out}");
    assert_eq!(json(&written("a.json"))["dry_run"]["source"], "train.py");
}

#[test]
fn an_entry_is_written_once_then_compared_and_accepted() {
    let project = Project::new();
    project.records(&holding(100, 7));
    let baseline = ["--baseline", "oomscope-baseline.json"];
    let with = |option: &'static str| [&baseline[..], &[option]].concat();
    // Nothing to compare with yet.
    let (code, out, _) = project.check(&baseline);
    assert_eq!(code, 1);
    assert!(out.contains("the baseline has no GPU 0 of the entry \"sh job.sh\""), "{out}");

    let (code, _, err) = project.check(&with("--add"));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("oomscope-baseline.json: entry sh job.sh added"), "{err}");
    let text = std::fs::read_to_string(project.path("oomscope-baseline.json")).unwrap();
    assert!(text.contains("{\"file\":\"train.py\",\"line\":7,\"function\":\"main\","), "{text}");
    assert!(!text.contains("pid"), "{text}");

    // The line moved, which changes nothing.
    project.records(&holding(100, 9));
    assert_eq!(project.code(&with("--add")), 0);
    assert_eq!(project.code(&baseline), 0);
    assert_eq!(std::fs::read_to_string(project.path("oomscope-baseline.json")).unwrap(), text);

    project.records(&holding(150, 9));
    let (code, out, _) = project.check(&with("--add"));
    assert_eq!(code, 1);
    let change = "+50 MiB at train.py:9 in main: other +50 MiB";
    assert!(out.contains(change), "{out}");
    assert!(out.contains("peak allocated 100 MiB -> 150 MiB; peak reserved 100 MiB -> 150 MiB"), "{out}");
    let (_, out, _) = project.check(&[&baseline[..], &["--format", "json"]].concat());
    let report = json(&out);
    assert_eq!(report["baseline"]["text"][0], change);
    assert_eq!(report["baseline"]["devices"][0]["changes"][0]["after_bytes"], 150 * MIB);
    let (_, out, _) = project.check(&[&baseline[..], &["--format", "github"]].concat());
    assert!(out.contains("::error file=train.py,line=9,title=growth-ratio-peak-allocated"), "{out}");
    // More growth is allowed.
    assert_eq!(project.code(&[&baseline[..], &["--max-growth", "50MiB"]].concat()), 0);
    // A failed check is no baseline.
    let (code, _, err) = project.check(&[&with("--update")[..], &["--max-peak-reserved", "1MiB"]].concat());
    assert_eq!(code, 1);
    assert!(err.contains("not written, because the check failed"), "{err}");
    // The configuration may name the baseline.
    project.write("oomscope.toml", "baseline = 'oomscope-baseline.json'\n");
    assert_eq!(project.code(&[]), 1);
    std::fs::remove_file(project.path("oomscope.toml")).unwrap();
    // Limits on growth have nothing to compare with when the entry is written.
    assert_eq!(project.code(&[&with("--update")[..], &["--max-growth", "1MiB"]].concat()), 0);
    assert_eq!(project.code(&baseline), 0);
}

#[test]
fn snapshots_and_entries_of_other_names_share_a_file() {
    let project = Project::new();
    project.write("a.json", holding(100, 7).to_string());
    let check = |entry: &str, option: &[&str]| {
        project.oomscope("", &[&["check", "a.json", "--baseline", "b.json", "--entry", entry], option].concat()).0
    };
    std::thread::scope(|scope| {
        for entry in 0..8 {
            scope.spawn(move || assert_eq!(check(&format!("test_{entry}[a-b]"), &["--add"]), 0));
        }
    });
    let text = std::fs::read_to_string(project.path("b.json")).unwrap();
    assert_eq!(text.matches("\"test_").count(), 8, "{text}");
    assert_eq!(check("test_3[a-b]", &[]), 0);
    assert_eq!(check("test_9[a-b]", &[]), 1);
}

#[test]
fn wrong_usage_is_reported_before_the_command_runs() {
    let project = Project::new();
    for (args, sentence) in [
        (&["--gpu", "a10", "recorded.json"][..], "needs a command"),
        (&["--gpu", "a10", "recorded.json", "--", "sh", "job.sh"], "give either snapshots"),
        (&["--gpu", "a10", "--also", "pdf=x", "--", "sh", "job.sh"], "'pdf' is not a format"),
        (&["--gpu", "a10", "-o", "no/such/dir", "--", "sh", "job.sh"], "cannot be written"),
        (&["--gpu", "a10", "--baseline", "train.py", "--entry", "x", "--", "sh", "job.sh"], "is no baseline"),
        (&["--add", "--baseline", "b.json", "train.py", "a.py"], "give --entry NAME"),
        (&["--entry", "x", "train.py"], "need a baseline"),
    ] {
        let (code, _, err) = project.oomscope("", &[&["check"], args].concat());
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(sentence) && !err.contains("output of the job"), "{args:?}: {err}");
    }
}

#[test]
fn a_baseline_with_marks_of_a_merge_conflict_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("baseline.json");
    std::fs::write(&path, "<<<<<<< HEAD\n{}\n").unwrap();
    let snapshot = "fixtures/2.15.0-mempool.pickle.gz";
    let ran = program::run(&["check", "--max-ooms", "9", "--baseline", path.to_str().unwrap(), snapshot]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("is no baseline: expected value at line 1"), "{}", ran.err);
}

#[test]
fn git_bisect_finds_the_commit_among_those_that_cannot_be_judged() {
    let project = Project::new();
    let mut expected = String::new();
    for commit in 0..40 {
        // From commit 27 on the job needs too much. Some commits are broken in other ways.
        let recording = if commit < 27 { holding(100 + commit, 7) } else { recording(&json!([]), 0, true) };
        project.records(&recording);
        let is_broken = commit % 5 == 3 || commit == 26;
        project.write("code", if is_broken || commit >= 27 { "1" } else { "0" });
        if is_broken {
            std::fs::remove_file(project.path("recorded.json")).unwrap();
        }
        project.git(&["add", "--all"]);
        project.git(&["commit", "--quiet", "--allow-empty", "--message", &format!("Commit {commit}")]);
        if commit == 27 {
            expected = project.git(&["rev-parse", "HEAD"]).trim().to_owned();
        }
    }
    project.git(&["bisect", "start", "HEAD", "HEAD~39"]);
    let program = env!("CARGO_BIN_EXE_oomscope");
    // The script of docs/ci.md.
    let docs = include_str!("../../docs/ci.md");
    let script = docs.split("git bisect run sh -c '").nth(1).unwrap().split('\'').next().unwrap();
    let script =
        script.replace("oomscope", program).replace("h100", "a10").replace("python train.py --steps 3", "sh job.sh");
    let run = ["bisect", "run", "sh", "-c", &script];
    let output = Command::new("git").args(run).current_dir(project.0.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Commit 26 cannot be judged, so either may be the first.
    let candidates: Vec<&str> =
        text.lines().skip_while(|line| !line.contains("The first bad commit could be")).collect();
    assert!(candidates.iter().any(|line| line.contains(&expected)), "{text}");
    assert_eq!(candidates.iter().filter(|line| line.len() == 40).count(), 2, "{text}");
}
