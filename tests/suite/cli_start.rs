//! The first things that somebody types, right or nearly so.

use crate::support::program::{refusal, result_of, run};

const SNAPSHOT: &str = "fixtures/2.15.0-holes.pickle.gz";
const LOG: &str = "fixtures/logs/2.15.0-capacity.log";

#[test]
fn a_file_alone_is_analyzed() {
    for options in [&[][..], &["--format", "json"]] {
        let with = |args: &[&str]| result_of(&[args, options].concat());
        assert_eq!(with(&[SNAPSHOT]), with(&["analyze", SNAPSHOT]));
    }
}

#[test]
fn a_log_alone_is_explained() {
    assert_eq!(result_of(&[LOG]), result_of(&["explain", LOG]));
}

#[test]
fn what_is_neither_a_file_nor_a_command_is_refused() {
    let ran = run(&["no-such-thing"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("unrecognized subcommand"), "{}", ran.err);
    for path in ["snapsot.pickle", "./no/such/directory"] {
        let ran = run(&[path]);
        assert_eq!((ran.code, ran.err), (2, format!("oomscope: {path}: no such file\n")));
    }
}

#[test]
fn a_log_and_a_snapshot_each_name_the_other_command() {
    assert!(refusal(&["analyze", LOG]).contains("`oomscope explain` reads logs"));
    assert!(refusal(&["explain", SNAPSHOT]).contains("`oomscope analyze` reads snapshots"));
}

#[test]
fn colour_is_what_one_asks_for() {
    let failed = "fixtures/2.15.0-holes-at-oom.pickle.gz";
    assert!(result_of(&["analyze", "--color", "always", failed]).contains("\u{1b}["));
    for options in [&["--color", "never"][..], &["--color", "auto"], &[]] {
        assert!(!result_of(&[&["analyze", failed], options].concat()).contains('\u{1b}'));
    }
}

#[test]
fn a_package_gets_its_manual_page_and_completions() {
    let man = result_of(&["generate", "man"]);
    for command in ["analyze", "diff", "check", "explain"] {
        assert!(man.contains(&format!("oomscope\\-{command}")), "{command}");
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = result_of(&["generate", "completions", shell]);
        assert!(script.contains("max-peak-reserved"), "{shell}");
    }
}
