//! Replays in the page: in node, every figure is that of `oomscope whatif` and `oomscope replay` on the same file; in a
//! browser, the panel of `report --replay` and of the viewer answers to its controls. A test whose tool is missing prints
//! so and passes.

use std::path::{Path, PathBuf};

use oomscope::analysis::{AnalyzeReport, Options, analyze_study};
use oomscope::output::page::{PageOptions, PageOrder, SnapshotData, write_with};
use oomscope::snapshot::{Snapshot, Source};
use oomscope::study::{Scope, Study};
use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::cases::cases;
use crate::support::fixtures;
use crate::support::program::{refusal, result_of, run, text};
use crate::support::viewer::{module, replay_in_node};

/// Failures of every sort, two devices, streams that lag, graphs, lost entries, releases with and without settings.
const FIXTURES: [(&str, u64); 9] = [
    ("2.15.0-oom_varlen-at-oom", 0),
    ("2.9.1-oom_varlen-expandable-at-oom", 0),
    ("2.15.0-fuzz-max_split-gc-oom", 0),
    ("2.15.0-fuzz_streams-expandable-oom-lag", 0),
    ("2.15.0-two_devices", 1),
    ("2.15.0-graphs-expandable", 0),
    ("2.15.0-gpt_varlen-wrapped", 0),
    ("2.1.2-streams-expandable-lag", 0),
    ("recorded/2.15.0-losses_kept", 0),
];
/// Options, capacity and release of each replay; none twice, so that every row is a what-if.
const CONDITIONS: [(&str, &str, &str); 8] = [
    ("expandable_segments:True", "", ""),
    ("max_split_size_mb:64", "2GiB", ""),
    ("default", "v100", ""),
    ("roundup_power2_divisions:4,garbage_collection_threshold:0.8", "700MiB", ""),
    ("", "300MiB", ""),
    ("", "24GiB", ""),
    ("", "", "2.6"),
    ("expandable_segments:True", "1GiB", "2.7"),
];

fn request(kind: &str, (options, capacity, release): (&str, &str, &str)) -> Value {
    json!({ "request": kind, "conditions": { "options": options, "capacity": capacity, "release": release } })
}

/// The arguments of the command with the same conditions.
fn arguments<'a>(
    file: &'a str,
    device: &'a str,
    (options, capacity, release): (&'a str, &'a str, &'a str),
) -> Vec<&'a str> {
    let command = if release.is_empty() && !options.is_empty() { "whatif" } else { "replay" };
    let mut arguments = vec![command, "--format", "json", "--device", device, file];
    for (flag, value) in [("--set", options), ("--capacity", capacity), ("--torch-version", release)] {
        if !value.is_empty() {
            arguments.extend([flag, value]);
        }
    }
    arguments
}

/// The figures of `oomscope whatif` or `oomscope replay`.
fn figures_of_command(arguments: &[&str]) -> Value {
    let report: Value = serde_json::from_str(&result_of(arguments)).unwrap();
    if arguments[0] == "whatif" {
        let row = report["rows"].as_array().unwrap().last().unwrap();
        return json!({
            "ooms": row["ooms"],
            "first": row["first_oom_event"],
            "then": row["then"],
            "allocated": row["peak_allocated_bytes"],
            "reserved": row["peak_reserved_bytes"],
            "calls": [row["device_allocs"], row["device_frees"], row["retries"]],
        });
    }
    let device = &report["devices"][0];
    json!({
        "ooms": device["ooms"].as_array().unwrap().len(),
        "first": device["ooms"][0]["event"],
        "then": device["then"],
        "allocated": device["peak_allocated_bytes"],
        "reserved": device["peak_reserved_bytes"],
        "calls": [device["device_allocs"], device["device_frees"], device["retries"]],
    })
}

fn figures_of_answer(run: &Value) -> Value {
    json!({
        "ooms": run["ooms"],
        "first": run["failed"][0]["event"],
        "then": run["then"],
        "allocated": run["peak_allocated_bytes"],
        "reserved": run["peak_reserved_bytes"],
        "calls": [run["device_allocs"], run["device_frees"], run["retries"]],
    })
}

#[test]
fn replays_have_the_figures_of_whatif_and_replay() {
    let Some(module) = module() else { return };
    for (index, (name, device)) in FIXTURES.into_iter().enumerate() {
        // In turn, so that the few of each recording are all of them together.
        let tried = cases(CONDITIONS.len() as u64).min(CONDITIONS.len() as u64) as usize;
        let conditions = || CONDITIONS.iter().cycle().skip(index * tried).take(tried);
        let (file, device_text) = (text(&fixtures::path(name)), device.to_string());
        let requests: Vec<Value> = [json!({ "request": "recorded" })]
            .into_iter()
            .chain(conditions().map(|conditions| request("replay", *conditions)))
            .collect();
        let Some(answers) = replay_in_node(module, &file, device, &requests) else { return };
        let recorded = &answers[0]["recorded"]["recorded"];
        let whatif = ["whatif", "--format", "json", "--device", &device_text, "--set", "default", &file];
        let row = &serde_json::from_str::<Value>(&result_of(&whatif)).unwrap()["rows"][0];
        for (key, of_row) in [("peak_reserved_bytes", "peak_reserved_bytes"), ("ooms", "ooms"), ("retries", "retries")]
        {
            assert_eq!(recorded[key], row[of_row], "{name}: {key} as recorded");
        }
        for (conditions, answer) in conditions().zip(&answers[1..]) {
            let arguments = arguments(&file, &device_text, *conditions);
            if let Some(error) = answer.get("error") {
                let refused = refusal(&arguments);
                assert!(
                    refused.trim_end().ends_with(error.as_str().unwrap()),
                    "{name} {conditions:?}: {error} {refused}"
                );
                continue;
            }
            // A release that can have written the file makes no what-if of `replay`.
            let releases = answers[0]["recorded"]["releases"].as_array().unwrap();
            if !conditions.2.is_empty() && !releases.contains(&json!(conditions.2)) {
                continue;
            }
            let figures = figures_of_answer(&answer["replay"]);
            assert_eq!(figures, figures_of_command(&arguments), "{name} {conditions:?}");
            let curve = &answer["replay"]["curve"];
            let peak = curve["reserved"].as_array().unwrap().iter().filter_map(Value::as_u64).max();
            assert!(peak <= answer["replay"]["peak_reserved_bytes"].as_u64(), "{name} {conditions:?}");
        }
    }
}

#[test]
fn changed_programs_have_the_figures_of_whatif_program() {
    let Some(module) = module() else { return };
    for (name, capacity) in [("changes/2.15.0-dense-320MiB", ""), ("changes/2.15.0-dense", "300MiB")] {
        let file = text(&fixtures::path(name));
        let mut arguments = vec!["whatif", "--program", "--format", "json", &file];
        if !capacity.is_empty() {
            arguments.extend(["--capacity", capacity]);
        }
        let report: Value = serde_json::from_str(&result_of(&arguments)).unwrap();
        let rows = report["program"][0]["rows"].as_array().unwrap().clone();
        let list = json!({ "request": "changes", "conditions": { "capacity": capacity } });
        let Some(answers) = replay_in_node(module, &file, 0, &[list]) else { return };
        let changes = answers[0]["changes"]["changes"].as_array().unwrap().clone();
        let keys: Vec<String> = changes.iter().map(|change| change["key"].as_str().unwrap().to_owned()).collect();
        assert_eq!(keys.len(), rows.len(), "{name}");
        let replay =
            |key: &String| json!({ "request": "replay", "conditions": { "capacity": capacity, "change": key } });
        let requests: Vec<Value> = keys.iter().map(replay).collect();
        let answers = replay_in_node(module, &file, 0, &requests).unwrap();
        for ((row, change), answer) in rows.iter().zip(&changes).zip(&answers) {
            let run = &answer["replay"];
            for key in row.as_object().unwrap().keys() {
                assert_eq!(change[key], row[key], "{name}: {key} of {}", change["label"]);
                assert_eq!(run["change"][key], row[key], "{name}: {key} of {}, alone", change["label"]);
            }
            assert_eq!(run["peak_reserved_bytes"], row["peak_reserved_bytes"]);
            assert_eq!(run["then"], row["then"]);
            assert_eq!(run["ooms"].as_u64().unwrap() == 0, row["fits"] == true, "{name}: {}", change["label"]);
        }
    }
}

#[test]
fn the_outcome_names_unknowns_as_whatif_does() {
    let Some(module) = module() else { return };
    let (mut known, mut unknown) = (0, 0);
    for name in ["2.15.0-oom_varlen-at-oom", "2.15.0-holes-at-oom", "2.9.1-oom_varlen-expandable-at-oom"] {
        let file = text(&fixtures::path(name));
        let options = ["expandable_segments:True", "max_split_size_mb:32"];
        let conditions = options.iter().flat_map(|option| ["", "8GiB"].map(|capacity| (*option, capacity, "")));
        let requests: Vec<Value> = conditions.flat_map(|of| [request("replay", of), request("describe", of)]).collect();
        let Some(answers) = replay_in_node(module, &file, 0, &requests) else { return };
        for (pair, asked) in answers.chunks(2).zip(requests.chunks(2)) {
            let outcome = pair[0]["replay"]["outcome"].as_str().unwrap();
            let described = pair[1]["describe"].as_str().unwrap();
            let then = &pair[0]["replay"]["then"]["outcome"];
            let (says_unknown, is_unknown) = (outcome.contains("what follows is not known: "), then == "not-known");
            assert_eq!(says_unknown, is_unknown, "{outcome}");
            assert_eq!(described.contains("not known"), is_unknown, "{name} {}: {described}", asked[0]);
            *(if is_unknown { &mut unknown } else { &mut known }) += 1;
        }
    }
    assert!(known > 0 && unknown > 0, "{known} known, {unknown} not");
}

#[test]
fn a_shown_run_is_the_replayed_one() {
    let Some(module) = module() else { return };
    for (name, device) in
        [("2.15.0-oom_varlen-at-oom", 0), ("2.15.0-two_devices", 1), ("2.1.2-streams-expandable-lag", 0)]
    {
        let file = text(&fixtures::path(name));
        let conditions = ("expandable_segments:True", "", "");
        let requests = [request("replay", conditions), request("show", conditions)];
        let Some(answers) = replay_in_node(module, &file, device, &requests) else { return };
        let (run, shown) = (&answers[0]["replay"], &answers[1]["show"]);
        assert_eq!(shown["page"]["device"], device, "{name}");
        assert_eq!(shown["page"]["peak_reserved_bytes"], run["peak_reserved_bytes"], "{name}");
        assert_eq!(shown["page"]["failures"], run["ooms"], "{name}");
        assert!(!shown["data"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_device_without_a_trace_and_bad_conditions_end_in_a_sentence() {
    let Some(module) = module() else { return };
    let replay = |conditions: Value| json!({ "request": "replay", "conditions": conditions });
    let file = text(&fixtures::path("2.15.0-mempool"));
    let requests = [
        replay(json!({ "capacity": "8" })),
        replay(json!({ "options": "expandable_segment:True" })),
        replay(json!({ "release": "1.13" })),
        replay(json!({ "change": "none" })),
        json!({ "request": "other" }),
    ];
    let Some(answers) = replay_in_node(module, &file, 0, &requests) else { return };
    let sentences =
        ["give a unit", "did you mean expandable_segments?", "give a release", "suggests no change", "variant"];
    for (answer, sentence) in answers.iter().zip(sentences) {
        assert!(answer["error"].as_str().unwrap().contains(sentence), "{answer}");
    }
    let silent = text(&fixtures::path("2.15.0-gpt_varlen-no-history"));
    let answers = replay_in_node(module, &silent, 0, &[json!({ "request": "recorded" })]).unwrap();
    assert_eq!(answers, [json!({ "error": "this device has no trace to replay" })]);
}

/// The page of `report --replay` for `file`, with the module of this build.
fn replaying_page(directory: &Path, module: &Path, file: &str) -> PathBuf {
    let source = Source::open(Path::new(file)).unwrap();
    let snapshot = Snapshot::read(&source, &|_| ()).unwrap();
    let study = Study::new(&snapshot, Scope::default());
    let options = Options { top: 10, ..Options::default() };
    let report = analyze_study(&study, file, source.stored_bytes(), options);
    let mut data = SnapshotData::from_study(&study, &report, 1).unwrap();
    data.stored = std::fs::read(file).unwrap();
    let module = std::fs::read(module).unwrap();
    let page = directory.join("page.html");
    let mut out = std::fs::File::create(&page).unwrap();
    let options = PageOptions { order: PageOrder::WorstFirst, module: Some(&module) };
    write_with(&AnalyzeReport::new(vec![report], Vec::new(), 10), &[data], options, "0", &mut out).unwrap();
    page
}

/// Waits until an expression is true.
fn wait_for(browser: &mut Browser, expression: &str) {
    let start = std::time::Instant::now();
    while browser.value(expression) != true {
        assert!(start.elapsed().as_secs() < 60, "{expression}: {}", browser.value("document.body.innerText"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn by_id(id: &str) -> String {
    format!("document.getElementById('{id}')")
}

#[test]
fn a_browser_replays_as_the_slider_moves() {
    let (Some(module), Some(mut browser)) = (module(), Browser::start()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = text(&fixtures::path("2.15.0-oom_varlen-at-oom"));
    browser.resize(1280, 800);
    browser.open(&replaying_page(directory.path(), module, &file), "");
    // The pane is one of the dock's tabs; to turn to it opens the recording.
    let tab = browser.middle("tab-replay");
    browser.mouse("mousePressed", tab, 0.0);
    browser.mouse("mouseReleased", tab, 0.0);
    wait_for(&mut browser, &format!("!{}.hidden", by_id("replay-panel")));
    for part in ["replay-slider", "replay-outcome"] {
        let bottom = browser.value(&format!("{}.getBoundingClientRect().bottom", by_id(part)));
        assert!(bottom.as_f64().unwrap() < 700.0, "{part} is out of sight, at {bottom}");
    }
    let outcome = |browser: &mut Browser| browser.value(&format!("{}.innerText", by_id("replay-outcome")));
    assert!(outcome(&mut browser).as_str().unwrap().starts_with("a request for 399 MiB fails at entry 53,078"));

    // The slider to its end: everything is served, and the text of the capacity gives `replay` the same figures.
    let slide = |step: u32| {
        let slider = by_id("replay-slider");
        format!(
            "{slider}.value = '{step}', {slider}.dispatchEvent(new Event('input')), {}.value",
            by_id("replay-capacity")
        )
    };
    for (step, fails) in [(1000, false), (300, true)] {
        let capacity = browser.value(&slide(step)).as_str().unwrap().to_owned();
        let is_done = if fails { "fail, the first" } else { "every recorded request is served" };
        wait_for(&mut browser, &format!("{}.innerText.includes('{is_done}')", by_id("replay-outcome")));
        let report = result_of(&["replay", "--format", "json", "--capacity", &capacity, &file]);
        let device = &serde_json::from_str::<Value>(&report).unwrap()["devices"][0];
        let tiles = browser.value(&format!("{}.innerText", by_id("replay-tiles")));
        let failed = device["ooms"].as_array().unwrap().len();
        assert!(tiles.as_str().unwrap().contains(&format!("failed requests\n{failed}\n")), "{capacity}: {tiles}");
    }
    let drawn = browser.value(&format!("{}.querySelectorAll('path.reserved').length", by_id("replay-curves")));
    assert_eq!(drawn, 2);

    // Settings; the text is that of `whatif`, the command is its command.
    browser.value(&format!(
        "{0}.click(), {1}.value = 'expandable_segments:True', {1}.dispatchEvent(new Event('change')), {2}.open = true",
        by_id("replay-reset"),
        by_id("replay-preset"),
        by_id("replay-text")
    ));
    wait_for(&mut browser, &format!("{}.innerText.includes('tried in a replay')", by_id("replay-document")));
    let command = browser.value(&format!("{}.innerText", by_id("replay-command")));
    assert_eq!(command, format!("oomscope whatif --set 'expandable_segments:True' --device 0 '{file}'"));
    assert!(outcome(&mut browser).as_str().unwrap().contains("the job fails again"));

    // The replayed run in the page, and back.
    browser.value(&format!("{}.click()", by_id("replay-show")));
    wait_for(&mut browser, "oomscope.view().page === 1");
    assert_eq!(browser.value("oomscope.view().pane"), "replay");
    let title = browser.value(&format!("{}.innerText", by_id("page-title")));
    assert!(title.as_str().unwrap().ends_with(", replayed: expandable_segments:True"), "{title}");
    let state = browser.value("oomscope.state(1e9)");
    assert!(state["reserved"].as_u64().unwrap() > 0, "{state}");
    browser.value(&format!("{}.click()", by_id("replay-show")));
    wait_for(&mut browser, "oomscope.view().page === 0");
}

#[test]
fn a_page_without_the_analyzer_has_no_panel() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("page.html");
    result_of(&["report", "-o", &text(&out), &text(&fixtures::path("2.15.0-mempool"))]);
    browser.open(&out, "");
    assert_eq!(browser.value(&format!("{}.hidden", by_id("tab-replay"))), true);
    browser.value("oomscope.show({ pane: 'replay' })");
    assert_eq!(browser.value("oomscope.view().pane"), "result");
}

#[test]
fn report_replay_needs_a_build_with_the_analyzer_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let out = text(&directory.path().join("page.html"));
    let file = text(&fixtures::path("2.15.0-mempool"));
    let ran = run(&["report", "--replay", &file, "-o", &out]);
    if option_env!("OOMSCOPE_VIEWER_MODULE").is_some() {
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(std::fs::read_to_string(&out).unwrap().contains("id=\"replay-module\""));
        assert!(refusal(&["report", "--replay", "-", "-o", &out]).contains("reads each file twice"));
    } else {
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("no analyzer for browsers"), "{}", ran.err);
    }
    // The file has the names of directories that the page would not.
    assert_eq!(run(&["report", "--replay", "--strip-paths", &file, "-o", &out]).code, 2);
}
