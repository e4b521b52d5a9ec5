//! The scripts of the GitHub action, in the environment of a runner. Slow: many runs of a shell.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::check_ci::Project;
use super::check_command::holding;
use super::dry_run::recording;
use crate::support::python::has_python;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A project with a commit, and the files of a runner beside it.
fn project() -> Project {
    let project = Project::new();
    std::fs::create_dir(project.path("runner")).unwrap();
    project.write(".gitignore", "runner\n");
    project
}

fn commit(project: &Project) -> String {
    project.git(&["add", "--all"]);
    project.git(&["commit", "--quiet", "--message", "Change"]);
    project.git(&["rev-parse", "HEAD"]).trim().to_owned()
}

/// Runs a script with these variables and those of the runner. Returns its output and the step summary.
fn run(project: &Project, command: &[&str], variables: &[(&str, &str)]) -> (Output, String) {
    let runner = project.path("runner");
    let file = |name: &str| runner.join(name).into_os_string();
    let output = Command::new(command[0])
        .args(&command[1..])
        .current_dir(project.0.path())
        .env("OOMSCOPE", env!("CARGO_BIN_EXE_oomscope"))
        .env("RUNNER_TEMP", &runner)
        .env("GITHUB_ACTION_PATH", ROOT)
        .env("GITHUB_WORKSPACE", project.0.path())
        .env("GITHUB_EVENT_PATH", file("event.json"))
        .env("GITHUB_OUTPUT", file("output"))
        .env("GITHUB_STEP_SUMMARY", file("summary.md"))
        .env("LIMITS", "")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    (output, std::fs::read_to_string(file("summary.md")).unwrap_or_default())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The comparison of two commits, with this recording in each.
fn compare(before: &Value, after: &Value, variables: &[(&str, &str)]) -> (Project, Output, String) {
    let project = project();
    project.records(before);
    let base = commit(&project);
    project.records(after);
    commit(&project);
    project.write("runner/event.json", json!({ "pull_request": { "number": 7, "base": { "sha": base } } }).to_string());
    let script = format!("{ROOT}/action/pull_request.py");
    let variables = [&[("RUN", "sh job.sh"), ("GPUS", "a10")], variables].concat();
    let (output, summary) = run(&project, &["python3", "-I", &script], &variables);
    (project, output, summary)
}

#[test]
fn a_pull_request_gets_a_table_of_base_and_head() {
    if !has_python() {
        return;
    }
    let (project, output, summary) = compare(&holding(100, 7), &holding(150, 7), &[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    for line in [
        "| peak allocated | 100.00 MiB | 150.00 MiB |",
        "| fits on <code>a10</code> | would fit | would fit |",
        "- <code>+50 MiB at train.py:7 in main: other +50 MiB</code>",
    ] {
        assert!(summary.contains(line), "{summary}");
    }
    assert_eq!(project.git(&["worktree", "list"]).lines().count(), 1, "the base is removed");
    assert_eq!(project.git(&["status", "--porcelain"]), "");
    assert!(std::fs::read_to_string(project.path("runner/output")).unwrap().starts_with("sarif-file="));

    let limits = [("LIMITS", "--max-growth 20MiB")];
    let (_, output, summary) = compare(&holding(100, 7), &holding(150, 7), &limits);
    assert_eq!(output.status.code(), Some(1), "{summary}");
    assert!(text(&output.stdout).contains("::error file=train.py,line=7,title=growth-peak-allocated"));
    assert!(summary.contains("Failed:"), "{summary}");

    let (_, output, summary) = compare(&holding(100, 7), &recording(&json!([]), 0, true), &[]);
    assert_eq!(output.status.code(), Some(1), "{summary}");
    assert!(summary.contains("**It no longer fits on <code>a10</code>.**"), "{summary}");
}

#[test]
fn names_of_strangers_are_text_and_no_commands() {
    if !has_python() {
        return;
    }
    let name = "</code><img src=x>@everyone|[a](b)`\\n::error::gotcha";
    let evil = |mib: u64| {
        let text = holding(mib, 7).to_string().replace("\"main\"", &format!("\"{name}\""));
        serde_json::from_str(&text).unwrap()
    };
    let (_, output, summary) = compare(&evil(100), &evil(150), &[("RUN", "sh job.sh '::warning::x' '`a` | @b'")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(summary.contains("+50 MiB at train.py:7 in "), "{summary}");
    for part in ["<img", "@everyone", "@b", "](", "`", "\n::"] {
        assert!(!summary.contains(part), "{part}: {summary}");
    }
    // The output of the job is between ::stop-commands:: and its token; after it, only the program writes.
    let out = text(&output.stdout);
    let token = out.strip_prefix("::stop-commands::").unwrap().lines().next().unwrap();
    let (_, after) = out.split_once(&format!("\n::{token}::\n")).unwrap();
    assert!(!after.lines().any(|line| line.starts_with("::") && line.contains("gotcha")), "{after}");
}

/// The program of a stranger, and what it leaves running, ends before the step that has the token.
#[test]
fn one_comment_is_written_and_replaced_and_the_job_sees_no_token() {
    if !has_python() {
        return;
    }
    let tools = tempfile::tempdir().unwrap();
    let gh = tools.path().join("gh");
    std::fs::write(&gh, "#!/bin/sh\necho \"$GH_TOKEN $*\" >> \"$LOG\"\ncase $* in *--jq*) cat \"$OWN\";; esac\n")
        .unwrap();
    std::fs::set_permissions(&gh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let (log, own, left) = (tools.path().join("log"), tools.path().join("own"), tools.path().join("left"));
    std::fs::write(&own, "").unwrap();
    let [log_name, own_name, left_name] = [&log, &own, &left].map(|path| path.display().to_string());
    let job = format!("sh -c 'setsid sh -c \"sleep 600; true\" & echo $! > {left_name}; sh job.sh'");
    let (project, output, _) = compare(&holding(100, 7), &holding(150, 7), &[("RUN", &job)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let pid = std::fs::read_to_string(&left).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "process {pid} of the command goes on");
    let outputs = std::fs::read_to_string(project.path("runner/output")).unwrap();
    let comment = outputs.lines().find_map(|line| line.strip_prefix("comment-file=")).unwrap();
    let variables = [
        ("COMMENT_FILE", comment),
        ("GH_TOKEN", "secret"),
        ("GITHUB_REPOSITORY", "owner/name"),
        ("PATH", &path),
        ("LOG", &log_name),
        ("OWN", &own_name),
    ];
    let script = format!("{ROOT}/action/comment.py");
    for (known, request) in
        [("", "api repos/owner/name/issues/7/comments"), ("12\n", "--method PATCH repos/owner/name/issues/comments/12")]
    {
        std::fs::write(&own, known).unwrap();
        let (output, _) = run(&project, &["python3", "-I", &script], &variables);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.lines().last().unwrap().contains(request), "{log}");
        assert!(log.lines().all(|line| line.starts_with("secret ")), "{log}");
    }
    // The step that runs the command has no token, and only that of the comment has one.
    let action = std::fs::read_to_string(format!("{ROOT}/action.yml")).unwrap();
    let (before, comment) = action.split_once("- name: Comment on the pull request").unwrap();
    assert!(!before.contains("github.token") && comment.contains("inputs.comment == 'true'"));
}

/// `--help` among the limits checks nothing, and nothing checked is nothing passed.
#[test]
fn an_option_that_checks_nothing_fails() {
    let project = project();
    project.write("a.json", holding(100, 7).to_string());
    let script = format!("{ROOT}/action/check.sh");
    let (output, _) = run(&project, &["bash", &script], &[("SNAPSHOTS", "a.json"), ("LIMITS", "--help")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    if has_python() {
        let (_, output, _) = compare(&holding(100, 7), &holding(150, 7), &[("LIMITS", "--help")]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    }
}

#[test]
fn without_a_base_only_the_head_is_checked() {
    if !has_python() {
        return;
    }
    let script = format!("{ROOT}/action/pull_request.py");
    for (event, note) in [
        (json!({ "ref": "refs/heads/main" }), "not for a pull request"),
        (json!({ "pull_request": { "base": { "sha": "0".repeat(40) } } }), "fetch-depth: 0"),
        (json!({ "pull_request": { "base": { "sha": "--output=x" } } }), "not for a pull request"),
    ] {
        let project = project();
        project.records(&holding(100, 7));
        commit(&project);
        project.write("runner/event.json", event.to_string());
        let (output, summary) = run(&project, &["python3", "-I", &script], &[("RUN", "sh job.sh"), ("GPUS", "a10")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(summary.contains(note) && summary.contains("| could not be checked | would fit |"), "{summary}");
    }
}

#[test]
fn snapshots_are_checked_once_in_three_formats() {
    let project = project();
    project.write("a b.json", holding(100, 7).to_string());
    let script = format!("{ROOT}/action/check.sh");
    let variables = [("SNAPSHOTS", "a b.json\n"), ("LIMITS", "--max-peak-allocated\n1MiB")];
    let (output, summary) = run(&project, &["bash", &script], &variables);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}{}", text(&output.stderr));
    assert!(out.starts_with("::error file=train.py,line=7,title=peak-allocated"), "{out}");
    assert!(summary.contains("peak-allocated"), "{summary}");
    let sarif = std::fs::read_to_string(project.path("runner/output")).unwrap();
    let sarif = sarif.trim().strip_prefix("sarif-file=").unwrap();
    assert!(Path::new(sarif).exists());
}

#[test]
fn pip_is_not_taken_from_the_checkout_and_hashes_are_required() {
    if !has_python() {
        return;
    }
    let project = project();
    let script = format!("{ROOT}/action/install.sh");
    for name in ["pip.py", "runner/pip.py", "json.py", "runner/json.py"] {
        project.write(name, "raise SystemExit('a module of the checkout ran')");
    }
    let hash = "0".repeat(64);
    let path = project.0.path().display().to_string();
    // There is no such version, so this fails, but in the real pip.
    let variables = [("VERSION", "0.0.0"), ("SHA256", &*hash), ("PYTHONPATH", &*path), ("PIP_NO_INDEX", "1")];
    let (output, _) = run(&project, &["bash", &script], &variables);
    assert_ne!(output.status.code(), Some(0));
    assert!(!text(&output.stderr).contains("a module of the checkout ran"), "{}", text(&output.stderr));
    let requirement = std::fs::read_to_string(project.path("runner/oomscope-requirement.txt")).unwrap();
    assert_eq!(requirement, format!("oomscope==0.0.0 --hash=sha256:{hash}\n"));
    // A line break would be a further requirement.
    for (version, hash) in [("0.0.0\nother", &*hash), ("0.0.0", "x;y")] {
        let (output, _) =
            run(&project, &["bash", &script], &[("VERSION", version), ("SHA256", hash), ("PIP_NO_INDEX", "1")]);
        assert!(text(&output.stdout).contains("is no version or SHA-256"), "{}", text(&output.stderr));
    }
}
