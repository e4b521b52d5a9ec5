//! One file, several commands: the same fact is the same in each. Slow: every failure is replayed with other settings.

use oomscope::analysis::Advice;
use oomscope::whatif::{TriedKind, TriedMark, WhatIfOptions, compare_settings};
use serde_json::Value;

use crate::support::fixtures;
use crate::support::program::run;

/// What `analyze` says of all that was tried is what its table and `whatif` show.
#[test]
fn nothing_helps_only_if_no_row_does() {
    let mut said = 0;
    for name in fixtures::names() {
        let study = fixtures::study(&name);
        for device in &fixtures::report(&name).devices {
            let Some(Advice::NothingHelps(_, may_help)) = device.advice.first() else { continue };
            said += 1;
            let is_helpful = |mark: TriedMark| mark != TriedMark::NoHelp;
            assert_eq!(device.tried.iter().any(|row| is_helpful(row.mark)), *may_help, "{name}: {:?}", device.tried);
            let report = compare_settings(study, &name, WhatIfOptions::default(), &|_, _| ()).unwrap();
            let of_device = report.devices.iter().filter(|one| one.device == device.device);
            for row in of_device.flat_map(|one| one.tried.clone()).filter(|row| row.kind == TriedKind::Settings) {
                assert!(!is_helpful(row.mark), "{name}: {row:?}");
            }
        }
    }
    assert!(said > 2, "{said}");
}

/// The line of a failed request in `check` is the headline's; the user's line that called a package follows.
#[test]
fn check_names_the_line_that_analyze_names() {
    let mut compared = 0;
    let recorded = fixtures::all_names().into_iter().filter(|name| name.starts_with("recorded/"));
    for name in fixtures::names().into_iter().chain(recorded) {
        let report = fixtures::report(&name);
        if report.devices.iter().all(|device| device.ooms.is_empty()) {
            continue;
        }
        let report = serde_json::to_value(report).unwrap();
        let file = &format!("fixtures/{name}.pickle.gz");
        let checked = run(&["check", "--max-ooms", "0", "--format", "json", file]).out;
        let checked: Value = serde_json::from_str(&checked).unwrap();
        for device in report["devices"].as_array().unwrap() {
            let Some(oom) = device["ooms"].as_array().unwrap().last().filter(|oom| !oom["culprit"].is_null()) else {
                continue;
            };
            let findings = checked["findings"].as_array().unwrap();
            let finding =
                findings.iter().find(|one| one["code"] == "ooms" && one["device"] == device["device"]).unwrap();
            for key in ["file", "line", "name"] {
                assert_eq!(finding["lines"][0][key], oom["culprit"][key], "{file}");
            }
            compared += 1;
        }
    }
    assert!(compared > 15, "{compared}");
}
