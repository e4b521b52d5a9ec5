//! Every command says the same of what a job does under the same conditions.
//! Slow: every failure is replayed with other settings.

use oomscope::analysis::{AnalyzeReport, DeviceReport};
use oomscope::study::{Scope, Study};
use oomscope::whatif::{
    JobOutcome, Overrides, TriedKind, TriedMark, TriedRow, Tries, WhatIfOptions, WhatIfReport, compare_settings,
    replay_with,
};
use serde_json::{Value, json};

use crate::support::fixtures;

/// Programs that PyTorch really ran on.
const CONTINUED: [&str; 7] = [
    "goes_on/buckets-430",
    "goes_on/first_adam_step-330",
    "goes_on/first_gradients-420",
    "goes_on/kept_losses-420",
    "goes_on/memory_bank-420",
    "goes_on/predictions_with_graph-800",
    "goes_on/varying_lengths-430",
];
/// Those of them whose memory grows in every step.
const GROWING: [&str; 3] = ["goes_on/kept_losses-420", "goes_on/memory_bank-420", "goes_on/predictions_with_graph-800"];

/// Settings of each device that are compared: each costs several replays.
const COMPARED: usize = 2;

fn with_failures() -> impl Iterator<Item = String> {
    let names = fixtures::names().into_iter().filter(|name| name.contains("oom"));
    names.chain(CONTINUED.map(str::to_owned))
}

fn json_of(then: &JobOutcome) -> Value {
    json!(then)
}

/// Those that get furthest, and one that does not serve the request.
fn compared(device: &DeviceReport) -> Vec<(String, Value)> {
    let remedies = device.ooms.last().map_or(&[][..], |oom| &oom.remedies);
    let serving = remedies.iter().filter(|remedy| remedy.avoids_oom).take(COMPARED - 1);
    let compared = serving.chain(remedies.iter().rev().filter(|remedy| !remedy.avoids_oom)).take(COMPARED);
    compared.map(|remedy| (remedy.settings_change(), json_of(&remedy.then))).collect()
}

#[test]
fn analyze_whatif_and_replay_agree_on_what_the_job_does_then() {
    let mut words = std::collections::BTreeSet::new();
    let mut count = 0;
    for name in with_failures() {
        for device in &fixtures::report(&name).devices {
            let compared = compared(device);
            let settings: Vec<String> = compared.iter().map(|(settings, _)| settings.clone()).collect();
            if settings.is_empty() {
                continue;
            }
            let snapshot = fixtures::study(&name).snapshot();
            let study = Study::new(snapshot, Scope { device: Some(device.device), ..Scope::default() });
            let options = WhatIfOptions { options: &settings, ..WhatIfOptions::default() };
            let report: WhatIfReport = compare_settings(&study, "a", options, &|_, _| {}).unwrap();
            for (settings, expected) in compared {
                let row = report.rows.iter().find(|row| row.settings == settings).unwrap();
                assert_eq!(json_of(&row.then), expected, "whatif: {name} {settings}");
                let tried = report.devices[0].tried.iter().find(|row| row.what == settings).unwrap();
                assert_eq!(json_of(&tried.then), expected, "tried: {name} {settings}");
                let traced = study.devices().find(|traced| traced.id() == device.device).unwrap();
                let overrides = Overrides::for_device(traced, &settings, None, None).unwrap();
                let (replayed, _) = replay_with(&study, "a", &overrides, false);
                assert_eq!(json!(replayed.devices[0].then), expected, "replay: {name} {settings}");
                words.insert(expected["outcome"].as_str().unwrap().to_owned());
                count += 1;
            }
        }
    }
    assert!(count > 30, "only {count} settings were compared");
    assert_eq!(Vec::from_iter(words), ["fails-again", "goes-on", "not-known", "request-fails"]);
}

/// `whatif` tries more changes than `analyze`: those that do not serve the failed request, and all if a setting helps.
#[test]
fn the_table_of_analyze_is_that_of_whatif() {
    for name in
        ["2.14.1-gpt_varlen-oom", "2.15.0-fuzz-max_split-oom", "2.15.0-fuzz-fraction-oom", "goes_on/buckets-430"]
    {
        let options = WhatIfOptions { tries: Tries::Both, ..WhatIfOptions::default() };
        let whole = compare_settings(fixtures::study(name), name, options, &|_, _| {}).unwrap();
        for device in &fixtures::report(name).devices {
            let whole = &whole.devices.iter().find(|whole| whole.device == device.device).unwrap().tried;
            assert!(!device.tried.is_empty(), "{name}");
            let common: Vec<_> = whole.iter().filter(|row| device.tried.contains(row)).collect();
            assert_eq!(common, Vec::from_iter(&device.tried), "{name}");
            assert_eq!(whole.first(), device.tried.first(), "{name}");
            let is_setting_enough = device.tried.iter().all(|row| row.kind == TriedKind::Settings);
            let is_left_out = |row: &&TriedRow| !device.tried.contains(row);
            for row in whole.iter().filter(is_left_out) {
                assert_eq!(row.kind, TriedKind::Program, "{name}: {row:?}");
                assert!(is_setting_enough || row.mark == TriedMark::NoHelp, "{name}: {row:?}");
            }
        }
    }
}

#[test]
fn the_first_line_has_the_word_of_the_conclusion() {
    let mut overruled = 0;
    for name in with_failures() {
        let report = fixtures::report(&name);
        let failed: Vec<_> = report.devices.iter().filter(|device| device.oom_count > 0).collect();
        let [device] = failed.as_slice() else { continue };
        let conclusion = device.conclusion.unwrap();
        let verdict = device.ooms.last().unwrap().verdict;
        overruled += usize::from(conclusion != verdict);
        let answer = AnalyzeReport::new(vec![report.clone()], Vec::new(), 1).summary().answer;
        assert!(answer.contains(&format!("; {conclusion}")), "{name}: {answer}");
    }
    assert!(overruled > 2, "{overruled}");
}

/// What was reserved before the recording does not count as saved by a change that is replayed without it.
#[test]
fn changes_that_start_without_the_cache_are_compared_with_the_program_without_it() {
    let study = fixtures::study("2.15.0-gpt_varlen-wrapped");
    let options = ["expandable_segments:True".to_owned()];
    let options = WhatIfOptions { options: &options, tries: Tries::Both, ..WhatIfOptions::default() };
    let report = compare_settings(study, "a", options, &|_, _| {}).unwrap();
    let changes = report.devices[0].tried.iter().filter(|row| row.kind == TriedKind::Program);
    let unchanged = changes.map(|row| row.unchanged_peak_reserved_bytes.unwrap());
    let unchanged: std::collections::BTreeSet<u64> = unchanged.collect();
    assert_eq!(unchanged.len(), 1, "{unchanged:?}");
    assert!(unchanged.first().unwrap() < &report.rows[0].figures.peak_reserved_bytes, "{unchanged:?}");
}

/// Settings and changes continue the job after a failure that ended its recording to the same point.
#[test]
fn on_a_device_with_room_everything_is_compared_with_one_peak() {
    let mut compared = 0;
    for name in fixtures::names() {
        let study = fixtures::study(&name);
        let options = ["expandable_segments:True".to_owned()];
        let capacity = Some(1 << 40);
        let options = WhatIfOptions { options: &options, capacity, tries: Tries::Both };
        let Ok(report) = compare_settings(study, "a", options, &|_, _| {}) else { continue };
        for device in report.devices.iter().filter(|device| device.reserved_before_bytes == 0 && device.exact) {
            let goes_on = device.tried.iter().filter(|row| row.then.goes_on());
            let unchanged: std::collections::BTreeSet<_> =
                goes_on.map(|row| row.unchanged_peak_reserved_bytes).collect();
            assert!(unchanged.len() <= 1, "{name}: {unchanged:?}");
            compared += usize::from(device.tried.len() > 1);
        }
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn nothing_helps_that_fails_again() {
    for name in with_failures() {
        for device in &fixtures::report(&name).devices {
            assert!(device.tried.is_sorted_by_key(|row| row.mark), "{name}");
            for row in &device.tried {
                assert_eq!(
                    row.mark == TriedMark::NoHelp,
                    !row.then.goes_on() && !matches!(row.then, JobOutcome::NotKnown { .. }),
                    "{row:?}"
                );
                assert!(row.mark != TriedMark::Helps || row.then.goes_on(), "{name}: {row:?}");
            }
        }
    }
}

/// Half the batch only halves what a step leaves behind.
#[test]
fn only_what_stops_a_growth_helps() {
    for name in GROWING {
        let study = fixtures::study(name);
        let options = ["expandable_segments:True".to_owned()];
        let options = WhatIfOptions { options: &options, tries: Tries::Both, ..WhatIfOptions::default() };
        let report = compare_settings(study, name, options, &|_, _| {}).unwrap();
        let device = &report.devices[0];
        assert!(!device.tried.is_empty(), "{name}");
        for row in device.tried.iter().filter(|row| row.mark == TriedMark::Helps) {
            assert_eq!(row.kind, TriedKind::Program, "{name}: {row:?}");
            assert!(row.what.contains("leaves behind"), "{name}: {row:?}");
        }
        let changes = &report.program.as_ref().unwrap()[0].rows;
        for row in changes.iter().filter(|row| row.goes_on) {
            assert!(!row.then.fails_again(), "{name}: {row:?}");
        }
    }
}
