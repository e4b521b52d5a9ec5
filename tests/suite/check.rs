//! `oomscope check`: what holds, what does not, and what is refused. Slow: many runs of the program.

use crate::support::program::{Ran, file, refusal, run, text};
use crate::support::{fixtures, program};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(super) const OOM: &str = "fixtures/2.15.0-gpt_varlen-at-oom.pickle.gz";
const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";
const STREAMS: &str = "fixtures/2.15.0-streams.pickle.gz";
const TWO_DEVICES: &str = "fixtures/2.15.0-two_devices.pickle.gz";
pub(super) const NO_TRACE: &str = "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz";

/// Exit code and JSON of `oomscope check` with `args`.
pub(super) fn check(args: &[&str]) -> (i32, Value) {
    let Ran { code, out, err } = run(&[&["check", "--format", "json"], args].concat());
    let report = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?}: {e}: {out}{err}"));
    (code, report)
}

/// The only finding.
pub(super) fn finding(args: &[&str]) -> (i32, Value) {
    let (code, report) = check(args);
    let [finding] = &report["findings"].as_array().unwrap()[..] else { panic!("{args:?}: {report}") };
    assert_eq!(report["passed"], finding["passed"], "{args:?}");
    (code, finding.clone())
}

/// Every figure is the one that analysis, or PyTorch itself, has for the same file: as a limit it holds, and a
/// little less does not.
#[test]
fn a_limit_holds_up_to_the_figure_itself() {
    let report = program::analyze(&[OOM]);
    let device = &report["snapshots"][0]["devices"][0];
    let (free, peak) = (&device["fragmentation"], &device["peak"]);
    for (flag, code, words, actual) in [
        ("--max-fragmentation", "fragmentation", "free beside live blocks", &free["stranded_ratio"]),
        ("--max-gap-ratio", "gap-ratio", "not held by the program", &free["gap_ratio"]),
        (
            "--max-inactive-split-ratio",
            "inactive-split-ratio",
            "GiB reserved is free in partly used segments",
            &free["inactive_split_ratio"],
        ),
        ("--max-peak-reserved", "peak-reserved", "reserved memory peaks at ", &peak["reserved_bytes"]),
        ("--max-peak-allocated", "peak-allocated", "allocated memory peaks at ", &peak["allocated_bytes"]),
        ("--max-ooms", "ooms", "failed; the last requested ", &device["oom_count"]),
    ] {
        let less = match actual.as_u64() {
            Some(whole) => (whole - 1).to_string(),
            None => (actual.as_f64().unwrap() - 1e-9).to_string(),
        };
        for (limit, passes) in [(actual.to_string(), true), (less, false)] {
            let (exit, finding) = finding(&[flag, &limit, OOM]);
            assert_eq!((exit, &finding["passed"]), (i32::from(!passes), &json!(passes)), "{finding}");
            assert_eq!((&finding["code"], &finding["actual"]), (&json!(code), actual), "{finding}");
            assert!(finding["message"].as_str().unwrap().contains(words), "{finding}");
            assert_eq!((&finding["path"], &finding["device"]), (&json!(OOM), &json!(0)));
        }
    }
}

#[test]
fn a_broken_limit_names_lines_of_the_users_code() {
    let other = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
    for (file, flag, limit, first) in [
        (OOM, "--max-fragmentation", "1%", ("/app/workloads.py", 52, "train_step")),
        (OOM, "--max-peak-allocated", "1GiB", ("/app/workloads.py", 27, "attention")),
        (other, "--max-ooms", "0", ("/app/workloads.py", 26, "attention")),
    ] {
        let (code, finding) = finding(&[flag, limit, file]);
        assert_eq!(code, 1);
        let line = &finding["lines"][0];
        let named = (line["file"].as_str(), line["line"].as_u64(), line["name"].as_str());
        assert_eq!(named, (Some(first.0), Some(first.1), Some(first.2)), "{flag}");
        assert!(line["bytes"].as_u64() > Some(0) && line["source"].is_null(), "{line}");
    }
}

#[test]
fn an_override_that_applies_to_nothing_is_named() {
    let directory = TempDir::new().unwrap();
    let overrides = "max-ooms = 0\n[[override]]\npath = '2.15.0-hole.*'\nmax-ooms = 1\n\
        [[override]]\npath = '2.15.0-holes.*'\nmax-ooms = 2\n[[override]]\ndevice = 7\nmax-ooms = 3\n";
    let config = file(&directory, "oomscope.toml", overrides.as_bytes());
    let (code, report) = check(&["--config", &config, HOLES]);
    let unused = report["warnings"].as_array().unwrap().iter().filter(|warning| warning["code"] == "unused-override");
    let unused: Vec<&str> = unused.map(|warning| warning["message"].as_str().unwrap()).collect();
    assert_eq!((code, unused.len()), (0, 2), "{unused:?}");
    assert!(unused[0].contains("path = \"2.15.0-hole.*\"") && unused[1].contains("device = 7"), "{unused:?}");
}

#[test]
fn the_stated_number_of_ranks_must_be_there() {
    let directory = TempDir::new().unwrap();
    for (rank, recording) in [HOLES, STREAMS].iter().enumerate() {
        std::fs::copy(recording, directory.path().join(format!("rank{rank}.pickle.gz"))).unwrap();
    }
    let job = text(directory.path());
    let ranks = |n: &str| check(&["--max-ooms", "0", "--ranks", n, &job]);
    assert_eq!((ranks("2").0, ranks("1").0), (0, 1));
    let (code, report) = ranks("4");
    assert_eq!((code, &report["ranks"]), (1, &json!({"expected": 4, "checked": 2})));
    for format in ["github", "junit", "sarif", "markdown"] {
        let ran = run(&["check", "--format", format, "--max-ooms", "0", "--ranks", "4", &job]);
        assert_eq!(ran.code, 1);
        assert!(ran.out.contains("there must be 4"), "{}", ran.out);
    }
    // One process counts once, whatever its file is called.
    let expanded = file(&directory, "expanded.pickle", &fixtures::pickle("2.15.0-holes"));
    let (code, report) = ranks("3");
    let repeated = &report["ranks"]["repeated"];
    assert_eq!((code, &report["ranks"]["checked"], repeated.as_array().unwrap().len()), (1, &json!(2), 1));
    assert!(repeated[0]["same_as"] == expanded && repeated[0]["path"].as_str().unwrap().ends_with("rank0.pickle.gz"));
    assert!(run(&["check", "--max-ooms", "0", "--ranks", "3", &job]).err.contains("are of the same process"));
    std::fs::remove_file(&expanded).unwrap();
    for (first, second) in [(HOLES, HOLES), (NO_TRACE, NO_TRACE)] {
        let (code, report) = check(&["--max-gap-ratio", "1", "--ranks", "2", first, second]);
        assert_eq!((code, &report["ranks"]["checked"]), (1, &json!(1)));
    }
    // The recorder noted that the job has two ranks; one of them is not the job, however it is named.
    let part = directory.path().join("part");
    std::fs::create_dir(&part).unwrap();
    std::fs::copy(fixtures::path("recorded/ranks/rank0-asked1"), part.join("rank0-asked1.pickle.gz")).unwrap();
    let [whole, one] = [text(&part), text(&part.join("rank0-asked1.pickle.gz"))];
    let allowed = |more: &str, path: &str| check(&["--max-ooms", "0", "--allow-missing", more, path]);
    let (code, report) = allowed("truncated", &whole);
    assert_eq!((code, &report["ranks"]), (1, &json!({"expected": 2, "checked": 1})));
    let pattern = text(&part.join("*.gz"));
    for path in [&whole, &pattern, &one] {
        assert_eq!((allowed("truncated", path).0, allowed("truncated,not-checked", path).0), (1, 0), "{path}");
        assert_eq!(check(&["--max-ooms", "0", "--allow-missing", "truncated", "--ranks", "1", path]).0, 0);
    }
    std::fs::remove_dir_all(&part).unwrap();
    // A rank whose dump failed left something else under its name. What lies beside a rank is not one.
    file(&directory, "rank0.json", b"{\"steps\": 3}");
    assert_eq!(check(&["--max-ooms", "0", &job]).0, 0);
    file(&directory, "rank2.json", b"{\"error\": \"dump failed\"}");
    let (code, report) = check(&["--max-ooms", "0", &job]);
    assert_eq!((code, &report["passed"]), (2, &json!(false)));
    assert!(report["unreadable"][0]["path"].as_str().unwrap().ends_with("rank2.json"));
}

#[test]
fn two_figures_that_print_the_same_are_distinguished() {
    let reserved = &program::analyze(&[OOM])["snapshots"][0]["devices"][0]["peak"]["reserved_bytes"];
    let less = reserved.as_u64().unwrap() - 1;
    let (_, finding) = finding(&["--max-peak-reserved", &less.to_string(), OOM]);
    let told = |bytes: u64| format!("{} bytes", oomscope::base::units::count(bytes));
    let message = finding["message"].as_str().unwrap();
    assert!(message.contains(&told(less)) && message.contains(&told(less + 1)), "{message}");
    let page = run(&["--full", "check", "--max-fragmentation", "6.62%", OOM]).out.replace('\n', " ");
    assert!(page.contains("6.63%") && page.contains("the limit is 6.62%"), "{page}");
}

/// The entries of `fixtures/baselines/gate.json` are of the recordings in `fixtures/gate`.
#[test]
fn growth_is_that_of_the_replay_from_an_empty_pool() {
    let grown = |before: &str, after: &str, limits: &[&str]| {
        let after = format!("fixtures/gate/{after}.pickle.gz");
        let baseline = ["--baseline", "fixtures/baselines/gate.json", "--entry", before];
        check(&[&baseline[..], limits, &["--allow-missing", "truncated", &after]].concat())
    };
    for kind in ["", "-expandable"] {
        for (before, after) in [("none", "cached"), ("cached", "scattered"), ("scattered", "none")] {
            let [before, after] = [before, after].map(|name| format!("{name}{kind}"));
            let (code, report) = grown(&before, &after, &["--max-growth", "0", "--max-growth-ratio", "0%"]);
            // Both peaks in bytes and relative, and the growth by steps that every entry has.
            assert_eq!((code, report["findings"].as_array().unwrap().len()), (0, 5), "{report}");
        }
    }
    let (code, report) = grown("none", "more", &["--max-growth", "8MiB"]);
    assert_eq!(code, 1);
    let actual = |index: usize| report["findings"][index]["actual"].as_i64().unwrap();
    assert!(actual(1) > 15 << 20 && actual(2) > 15 << 20, "{report}");
    // Without a limit, a percent.
    assert_eq!(grown("none", "more", &[]).0, 1);
    let (code, report) = grown("more", "none", &["--max-growth", "0"]);
    let shrunk = &report["findings"][1];
    assert!(code == 0 && shrunk["actual"].as_i64() < Some(0), "{shrunk}");
    assert!(shrunk["message"].as_str().unwrap().contains("shrank by "), "{shrunk}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_baseline_without_end_is_refused() {
    let directory = TempDir::new().unwrap();
    let baseline = directory.path().join("baseline.json");
    std::os::unix::fs::symlink("/dev/zero", &baseline).unwrap();
    let ran = run(&["check", HOLES, "--max-growth", "1GiB", "--baseline", &text(&baseline)]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("it has more than 64 MiB"), "{}", ran.err);
}

#[test]
fn an_entry_has_the_name_of_the_only_file_or_directory() {
    let directory = TempDir::new().unwrap();
    let baseline = text(&directory.path().join("baseline.json"));
    let with = |args: &[&str]| {
        let ran = run(&[&["check", "--baseline", &baseline, "--allow-missing", "truncated"], args].concat());
        (ran.code, ran.err)
    };
    let none = "fixtures/gate/none.pickle.gz";
    assert!(with(&["--add", none]).1.ends_with("entry none.pickle.gz added\n"));
    assert!(with(&["--add", "fixtures/gate"]).1.ends_with("entry gate added\n"));
    let written = std::fs::read_to_string(&baseline).unwrap();
    assert!(!written.contains("fixtures"), "{written}");
    assert_eq!(with(&["--max-growth", "0", none]).0, 0);
    // Of several, each is compared with the one of its name.
    assert_eq!(with(&["--max-growth", "0", "fixtures/gate"]).0, 0);
    assert_eq!(with(&["fixtures/gate/more.pickle.gz"]).0, 1, "not in the baseline");
    assert_eq!(with(&["--entry", "none.pickle.gz", "--max-growth", "1MiB", "fixtures/gate/more.pickle.gz"]).0, 1);
    assert_eq!(
        with(&["--update", "fixtures/gate/more.pickle.gz"]),
        (0, format!("oomscope: {baseline}: entry more.pickle.gz added\n"))
    );
}

#[test]
fn a_file_sets_limits_flags_win_and_warnings_do_not_fail() {
    let directory = TempDir::new().unwrap();
    let config = |text: &str| file(&directory, "limits.toml", text.as_bytes());
    let strict = config("max-ooms = 0\n[warn]\nmax-gap-ratio = '1%'\n");
    let (code, report) = check(&["--config", &strict, OOM]);
    assert_eq!((code, report["findings"].as_array().unwrap().len()), (1, 2));
    let (code, report) = check(&["--config", &strict, "--max-ooms", "1", OOM]);
    assert_eq!((code, &report["passed"]), (0, &json!(true)), "{report}");
    let warned = &report["findings"][0];
    assert_eq!((&warned["severity"], &warned["passed"]), (&json!("warn"), &json!(false)));

    let overridden = config("max-ooms = 0\n[[override]]\npath = '*-at-oom.*'\nmax-ooms = 1\n");
    assert_eq!(finding(&["--config", &overridden, OOM]).0, 0);
    let other = config("max-ooms = 0\n[[override]]\npath = 'other/*'\nmax-ooms = 1\n");
    assert_eq!(finding(&["--config", &other, OOM]).0, 1);
    let two = "fixtures/2.15.0-two_devices.pickle.gz";
    let device = config("max-peak-reserved = '1B'\n[[override]]\ndevice = 1\nmax-peak-reserved = '80G'\n");
    let (code, report) = check(&["--config", &device, two]);
    let passed: Vec<_> = report["findings"].as_array().unwrap().iter().map(|f| f["passed"].clone()).collect();
    assert_eq!((code, passed), (1, vec![json!(false), json!(true)]));
    // The baseline is beside the file that names it.
    let beside = config("baseline = 'b.json'\nmax-growth = 0\n");
    let saved = text(&directory.path().join("b.json"));
    assert_eq!(run(&["check", "--baseline", &saved, "--add", two]).code, 0);
    assert_eq!(check(&["--config", &beside, two]).0, 0);
}

#[test]
fn none_of_several_is_skipped() {
    let directory = TempDir::new().unwrap();
    let job = program::job(&directory);
    let (code, report) = check(&["--max-ooms", "0", "--max-gap-ratio", "99%", &text(&job)]);
    assert_eq!((code, report["findings"].as_array().unwrap().len()), (1, 6));

    let broken = file(&directory, "broken.pickle", b"no pickle");
    let ran = run(&["check", "--format", "json", "--max-ooms", "9", &broken, OOM]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("broken.pickle"), "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["passed"], false);
    assert_eq!(report["findings"][0]["passed"], true, "the others are checked");
    assert_eq!(report["unreadable"].as_array().unwrap().len(), 1);

    // A rank that the baseline has, and that left no file.
    let three = text(&directory.path().join("three.json"));
    let growth = ["--max-growth", "0", "--max-step-growth", "1GiB", "--entry", "three", "--baseline", &three];
    assert_eq!(run(&[&["check", "--add"], &growth[..], &[HOLES, OOM, STREAMS]].concat()).code, 0);
    let grown = |more: &[&str], snapshots: &[&str]| -> (i32, Vec<Value>) {
        let (code, report) = check(&[&growth, more, snapshots].concat());
        assert_eq!(report["passed"], code == 0, "{report}");
        let findings = report["findings"].as_array().unwrap().iter();
        let missing = findings.filter(|f| f["missing"] == "not-checked" && f["actual"].is_null());
        (code, missing.map(|f| f["path"].clone()).collect())
    };
    let gone = vec![json!(STREAMS.trim_start_matches("fixtures/")); 2];
    assert_eq!(grown(&[], &[HOLES, OOM, STREAMS]), (0, vec![]));
    assert_eq!(grown(&[], &[HOLES, OOM]), (1, gone.clone()));
    assert_eq!(grown(&["--allow-missing", "not-checked"], &[HOLES, OOM]), (0, gone));
    let alone = TempDir::new().unwrap();
    std::fs::copy(HOLES, alone.path().join("2.15.0-holes.pickle.gz")).unwrap();
    assert_eq!(grown(&[], &[&text(alone.path())]).1.len(), 4, "a directory for all of them");

    let empty = json!({"segments": [], "device_traces": []}).to_string();
    let empty = file(&directory, "empty.json", empty.as_bytes());
    let ran = run(&["check", "--format", "json", "--max-ooms", "9", &empty]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("no memory and no trace to check"), "{}", ran.err);
}

#[test]
fn a_snapshot_without_the_device_is_noted() {
    let (code, report) = check(&["--max-ooms", "0", "--device", "1", HOLES, TWO_DEVICES]);
    assert_eq!((code, report["findings"].as_array().unwrap().len()), (0, 1));
    let noted = &report["warnings"][0];
    assert_eq!((&noted["code"], &noted["path"]), (&json!("no-device"), &json!(HOLES)));
}

#[test]
fn the_printed_configuration_is_one() {
    let directory = TempDir::new().unwrap();
    let ran = run(&["check", "--print-config"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let config = file(&directory, "oomscope.toml", ran.out.as_bytes());
    let (_, report) = check(&["--config", &config, OOM]);
    assert_eq!(report["findings"].as_array().unwrap().len(), 8 + 2 + 2 + 2, "all limits, both ways");
}

#[test]
fn mistakes_are_refused_in_one_sentence() {
    let directory = TempDir::new().unwrap();
    let toml = |text: &str| file(&directory, "bad.toml", text.as_bytes());
    let wrong = toml("max-ooms = 0\nmax-gap = 0.3\n");
    let said = refusal(&["check", "--config", &wrong, OOM]);
    assert!(said.contains("bad.toml:2: unknown key max-gap; did you mean max-gap-ratio?"), "{said}");

    let analysis = file(&directory, "a.json", program::result_of(&["analyze", "--format", "json", OOM]).as_bytes());
    let not_one = file(&directory, "b.json", b"{\"schema\": \"oomscope/baseline/1\"}");
    let grow = |baseline: &str| refusal(&["check", "--max-growth", "0", "--baseline", baseline, OOM]);
    for (said, wanted) in [
        (refusal(&["check", OOM]), "no limit to check"),
        (refusal(&["check", "--max-growth", "1B", OOM]), "max-growth needs a baseline"),
        (grow(NO_TRACE), "is no baseline; oomscope check --baseline FILE.json --add writes one"),
        (grow(&analysis), "is oomscope/analyze/1, no baseline"),
        (grow(&not_one), "is no baseline: missing field `entries`"),
        (refusal(&["check", "--config", "missing.toml", OOM]), "missing.toml: cannot be read"),
        (refusal(&["check", "--max-ooms", "1", "--device", "7", OOM]), "no trace of GPU 7"),
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    for (flag, value) in [
        ("--max-gap-ratio", "-0.1"),
        ("--max-gap-ratio", "101%"),
        ("--max-gap-ratio", "NaN"),
        ("--max-growth-ratio", "5"),
        ("--max-peak-reserved", "-5GiB"),
        ("--max-peak-reserved", "lots"),
        ("--max-ooms", "-1"),
        ("--max-ooms", "1.5"),
        ("--max-peak-reserved", "1.5"),
    ] {
        let ran = run(&["check", flag, value, OOM]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{flag} {value}");
        assert!(ran.err.contains(&format!("'{value}' is not a ")), "{}", ran.err);
    }
}

#[test]
fn nothing_is_written_over_a_file_that_is_read() {
    let directory = TempDir::new().unwrap();
    let before = std::fs::read("fixtures/baselines/gate.json").unwrap();
    let own = file(&directory, "own.json", &before);
    assert!(refusal(&["check", "--max-growth", "0", "--baseline", &own, "-o", &own, OOM]).contains("would overwrite"));
    assert_eq!(std::fs::read(&own).unwrap(), before);
    let limits = file(&directory, "limits.toml", b"max-ooms = 0");
    let said = refusal(&["check", "--config", &limits, "-o", &limits, OOM]);
    assert!(said.contains("limits.toml: is an input"), "{said}");
    assert_eq!(std::fs::read(&limits).unwrap(), b"max-ooms = 0");
}

#[test]
fn a_gate_that_nobody_listens_to_fails_all_the_same() {
    let command = |args: &[&str]| {
        let piped = std::process::Stdio::piped;
        let mut child = program::command().args(args).stdout(piped()).stderr(piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for format in ["human", "json", "github"] {
        let fails = ["check", "--max-ooms", "0", "--format", format, OOM];
        assert_eq!(command(&fails), (1, String::new()), "{format}");
        let passes = ["check", "--max-ooms", "0", "--format", format, HOLES];
        assert_eq!(command(&passes), (0, String::new()), "{format}");
    }
}

#[test]
fn standard_input_is_read_once() {
    for args in [&["check", "--max-ooms", "0", "-", "-"][..], &["check", "--max-growth", "0", "--baseline", "-", "-"]] {
        assert!(refusal(args).contains("standard input"), "{args:?}");
    }
}
