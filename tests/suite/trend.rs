//! `check --trend`: lines of real analyses, with sizes that change from run to run.

use crate::support::program::{file, refusal, result_of, run};
use crate::support::schema::list;
use serde_json::{Value, json};
use tempfile::TempDir;

const OOM: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
const DAY_US: u64 = 86_400_000_000;

/// Noise between -1 and 1, the same in every call.
fn noise(seed: u64) -> f64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// `days` daily runs of `ranks` ranks, one line each. Every figure has noise of `noisy`; the first source line of the last
/// rank is multiplied by `factor` of the day.
fn runs(days: u64, ranks: u64, noisy: f64, factor: impl Fn(f64) -> f64) -> Vec<String> {
    let line = result_of(&["analyze", "--format", "jsonl", OOM]);
    let analysis: Value = serde_json::from_str(&line).unwrap();
    assert!(analysis["time_us"].as_u64().is_some() && list(&analysis["top_lines"]).len() > 3);
    let mut lines = Vec::new();
    for day in 0..days {
        for rank in 0..ranks {
            let mut run = analysis.clone();
            let seed = (day * 64 + rank) * 64;
            let scaled = |bytes: &Value, seed: u64, factor: f64| {
                json!((bytes.as_f64().unwrap() * factor * (1.0 + noisy * noise(seed))).round() as u64)
            };
            run["path"] = json!(format!("nightly/{day}/rank{rank}.pickle"));
            run["rank"] = json!(rank);
            run["time_us"] = json!(analysis["time_us"].as_u64().unwrap() + day * DAY_US);
            for (index, key) in ["peak_allocated_bytes", "peak_reserved_bytes"].into_iter().enumerate() {
                run[key] = scaled(&analysis[key], seed + index as u64, 1.0);
            }
            for (index, line) in list(&analysis["top_lines"]).iter().enumerate() {
                let factor = if index == 0 && rank + 1 == ranks { factor(day as f64) } else { 1.0 };
                run["top_lines"][index]["bytes"] = scaled(&line["bytes"], seed + 2 + index as u64, factor);
            }
            lines.push(run.to_string());
        }
    }
    lines
}

fn first_line() -> String {
    let line: Value = serde_json::from_str(&result_of(&["analyze", "--format", "jsonl", OOM])).unwrap();
    line["top_lines"][0]["line"].as_str().unwrap().to_owned()
}

fn trend(lines: &[String], options: &[&str]) -> (i32, Value) {
    let directory = TempDir::new().unwrap();
    let path = file(&directory, "runs.jsonl", lines.join("\n").as_bytes());
    let ran = run(&[&["check", "--trend", "--format", "json", &path], options].concat());
    (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err)))
}

#[test]
fn noise_alone_passes() {
    let (code, report) = trend(&runs(60, 4, 0.03, |_| 1.0), &[]);
    assert_eq!((code, &report["passed"], list(&report["rows"]).len()), (0, &json!(true), 0), "{report}");
    assert_eq!((&report["runs"], report["series"].as_u64().unwrap() > 8), (&json!(240), true));
}

#[test]
fn a_line_that_creeps_by_one_percent_a_week_in_noise_is_named() {
    let (code, report) = trend(&runs(60, 4, 0.03, |day| 1.0 + 0.01 * day / 7.0), &[]);
    let row = &report["rows"][0];
    assert_eq!((code, &row["growth"], row["line"].as_str()), (1, &json!("creep"), Some(&*first_line())), "{report}");
    assert_eq!((&row["rank"], &row["ranks"], &row["runs"]), (&json!("rank 3"), &json!(1), &json!(60)));
    let ratio = row["ratio_per_week"].as_f64().unwrap();
    assert!((0.005..0.02).contains(&ratio), "{ratio}");
    assert_eq!(list(&report["rows"]).len(), 1);
}

#[test]
fn a_creep_that_begins_late_says_since_when_and_how_much() {
    let (code, report) = trend(&runs(70, 2, 0.005, |day| 1.0 + 0.02 * (day - 35.0).max(0.0) / 7.0), &[]);
    let row = &report["rows"][0];
    let since = row["since"].as_str().unwrap();
    let day: i64 = since.split('/').nth(1).unwrap().parse().unwrap();
    assert!(code == 1 && (day - 36).abs() <= 6, "{row}");
    let growth = row["after_bytes"].as_f64().unwrap() / row["before_bytes"].as_f64().unwrap();
    assert!((growth - 1.1).abs() < 0.01, "{growth}");
}

#[test]
fn a_step_is_shown_and_does_not_fail() {
    let (code, report) = trend(&runs(60, 4, 0.02, |day| if day < 30.0 { 1.0 } else { 1.1 }), &[]);
    let row = &report["rows"][0];
    assert_eq!((code, &row["growth"], list(&report["rows"]).len()), (0, &json!("step"), 1), "{report}");
    assert_eq!(row["since"], "nightly/30/rank3.pickle");
}

#[test]
fn the_page_names_line_time_and_growth() {
    let directory = TempDir::new().unwrap();
    let lines = runs(60, 4, 0.01, |day| 1.0 + 0.01 * day / 7.0);
    for (index, part) in lines.chunks(4).enumerate() {
        file(&directory, &format!("{index:02}.jsonl"), part.join("\n").as_bytes());
    }
    let error = json!({"path": "x", "error": "cannot be read"}).to_string();
    let without = json!({"path": "x", "top_lines": []}).to_string();
    file(&directory, "99.jsonl", format!("{error}\n\n{without}\n").as_bytes());
    let ran = run(&["check", "--trend", directory.path().to_str().unwrap()]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let page: String = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = first_line();
    for wanted in ["FAILED: ", &line, " a week ", " rank 3", "1 line without a time", "1 line with an error"] {
        assert!(page.contains(wanted), "{wanted}: {}", ran.out);
    }
    let pattern = format!("{}/*.jsonl", directory.path().display());
    assert_eq!(run(&["check", "--trend", &pattern]).out, ran.out);
}

#[test]
fn growth_within_hours_is_not_extrapolated_to_weeks() {
    let hourly = |factor: f64| -> Vec<String> {
        let lines = runs(24, 1, 0.0, |hour| 1.0 + factor * hour);
        let mut runs: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let first = runs[0]["time_us"].as_u64().unwrap();
        for (hour, run) in (0..).zip(&mut runs) {
            run["time_us"] = json!(first + hour * DAY_US / 24);
        }
        runs.iter().map(Value::to_string).collect()
    };
    assert_eq!(trend(&hourly(0.0001), &[]).0, 0, "0.24% in a day");
    assert_eq!(trend(&hourly(0.001), &[]).0, 1, "2.4% in a day");
}

#[test]
fn formats_of_limits_are_refused() {
    let directory = TempDir::new().unwrap();
    let runs = file(&directory, "runs.jsonl", runs(20, 1, 0.0, |_| 1.0).join("\n").as_bytes());
    assert!(refusal(&["check", "--trend", "--format", "junit", &runs]).contains("use markdown or json"));
    assert!(refusal(&["check", "--trend", &runs, "-o", &runs]).contains("is an input file"));
}

#[test]
fn too_few_runs_and_other_files_are_refused() {
    let directory = TempDir::new().unwrap();
    let few = file(&directory, "few.jsonl", runs(7, 2, 0.0, |_| 1.0).join("\n").as_bytes());
    let refused = refusal(&["check", "--trend", &few]);
    assert!(refused.contains("needs at least 8 runs of a rank; here: 7 runs of the rank that has most"), "{refused}");
    let pickle = refusal(&["check", "--trend", OOM]);
    assert!(pickle.contains("line 1 is not one of"), "{pickle}");
    let empty = TempDir::new().unwrap();
    assert!(refusal(&["check", "--trend", empty.path().to_str().unwrap()]).contains("no file of lines"));
    let other = file(&directory, "other.jsonl", b"[1]\n");
    assert!(refusal(&["check", "--trend", &other]).contains("line 1 is not one of"));
    assert!(refusal(&["check", "--trend", "missing.jsonl"]).contains("cannot be read"));
    assert_eq!(run(&["check", "--trend", "--max-ooms", "0", &few]).code, 2);
}
