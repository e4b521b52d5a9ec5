//! An independent Python program comes to the same figures, on every fixture.
//!
//! Needs `python3`; without it these tests say so and pass.

use crate::support::fixtures;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("passed over: there is no python3 here");
    }
    found
}

fn confirm(oomscope: &Path, paths: &[String]) -> Output {
    Command::new("python3")
        .arg("tests/confirm/confirm.py")
        .arg("--oomscope")
        .arg(oomscope)
        .args(paths)
        .current_dir(root())
        .output()
        .unwrap()
}

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_oomscope"))
}

fn paths(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("fixtures/{name}.pickle.gz")).collect()
}

/// Whether `output` of the confirmation of `files` files is as it should be, else what is wrong.
fn judge(output: &Output, files: usize, expected: &[(&str, &str)]) -> Result<(), String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let Some((summary, mismatches)) = lines.split_last() else {
        return Err(format!("nothing was said; {}", String::from_utf8_lossy(&output.stderr)));
    };
    let said = format!("{files} files confirmed, {} mismatches", expected.len());
    let is =
        |line: &str, (name, figure): &(&str, &str)| line.starts_with(&format!("fixtures/{name}.pickle.gz: {figure}: "));
    let surprise = mismatches.iter().find(|line| !expected.iter().any(|e| is(line, e)));
    let missing = expected.iter().find(|e| !mismatches.iter().any(|line| is(line, e)));
    let code = i32::from(!expected.is_empty());
    if let Some(line) = surprise {
        Err((*line).to_owned())
    } else if let Some((name, figure)) = missing {
        Err(format!("{name} confirms {figure}: it needs no exception any more"))
    } else if *summary != said || output.status.code() != Some(code) {
        Err(format!("'{summary}' with {}, where '{said}' with {code} belongs", output.status))
    } else {
        Ok(())
    }
}

#[test]
fn python_comes_to_the_same_figures_on_every_fixture() {
    if has_python() {
        let names = fixtures::names();
        let output = confirm(&binary(), &paths(&names));
        assert_eq!(judge(&output, names.len(), &[]), Ok(()));
    }
}

/// A program that stands for oomscope and changes its JSON with one Python statement.
#[cfg(unix)]
fn liar(directory: &tempfile::TempDir, lie: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;

    let script = format!(
        "#!/usr/bin/env python3\n\
         import json, subprocess, sys\n\
         said = subprocess.run([{:?}] + sys.argv[1:], stdout=subprocess.PIPE)\n\
         report = json.loads(said.stdout)\n\
         device = report['snapshots'][0]['devices'][0]\n\
         {lie}\n\
         print(json.dumps(report))\n\
         sys.exit(said.returncode)\n",
        binary().to_str().unwrap()
    );
    let path = directory.path().join("liar.py");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[cfg(unix)]
#[test]
fn a_wrong_figure_does_not_pass() {
    if !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let names = ["2.15.0-holes-at-oom".to_owned()];
    let honest = liar(&directory, "pass");
    assert_eq!(judge(&confirm(&honest, &paths(&names)), 1, &[]), Ok(()));
    for (figure, lie) in [
        ("reserved_bytes", "device['reserved_bytes'] += 512"),
        ("peak.allocated_bytes", "device['peak']['allocated_bytes'] -= 512"),
        ("stranded_bytes", "device['fragmentation']['stranded_bytes'] = 0"),
        ("device_free_bytes", "device['ooms'][0]['device_free_bytes'] = 0"),
        ("ooms", "device['ooms'] = []"),
        ("top_stacks", "device['details']['top_stacks'][0]['blocks'] += 1"),
    ] {
        let output = confirm(&liar(&directory, lie), &paths(&names));
        let verdict = judge(&output, 1, &[]);
        assert!(verdict.as_ref().is_err_and(|line| line.contains(figure)), "{lie}: {verdict:?}");
    }
}

#[test]
fn an_exception_that_is_not_needed_does_not_pass() {
    if has_python() {
        let output = confirm(&binary(), &paths(&["2.15.0-holes-at-oom".to_owned()]));
        let verdict = judge(&output, 1, &[("2.15.0-holes-at-oom", "device 0.reserved_bytes")]);
        assert!(verdict.is_err_and(|line| line.contains("no exception")));
    }
}
