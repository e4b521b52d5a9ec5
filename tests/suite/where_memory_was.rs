//! Who held the memory: tables of holders, categories of one's own, and lines that keep more with every step.
//! Slow: every recording is analyzed.

use std::sync::LazyLock;

use crate::category_truth::runs;
use crate::support::program::{analyze, analyze_in, file, read_with_details, result_of, text, with_details};
use crate::support::{fixtures, made};
use oomscope::analysis::{Options, analyze_study};
use serde_json::{Value, json};

/// Validation without `no_grad` is named with the line that runs the model, also if nothing fails.
#[test]
fn graphs_that_no_backward_pass_uses_are_named() {
    let graphs = &devices("where/2.15.0-kept_graphs", &[])[0]["at_peak"]["unused_graphs"];
    assert!(graphs["passes"].as_u64().unwrap() >= 2, "{graphs}");
    assert_eq!(graphs["called_at"]["name"], "loss_of");
    assert!(devices("where/2.15.0-adam", &[])[0]["at_peak"]["unused_graphs"].is_null());
}

fn devices(name: &str, more: &[&str]) -> Vec<Value> {
    let path = format!("fixtures/{name}.pickle.gz");
    analyze(&[more, &[path.as_str()]].concat())["snapshots"][0]["devices"].as_array().unwrap().clone()
}

fn sum(rows: &Value, key: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum()
}

/// Every table adds up to what the program held, cut or not.
fn adds_up(held: &Value, allocated: &Value, place: &str) {
    assert_eq!(&held["allocated_bytes"], allocated, "{place}");
    for (key, of) in [("bytes", "allocated_bytes"), ("blocks", "blocks")] {
        let all = held[of].as_u64().unwrap();
        for table in ["by_category", "by_phase"] {
            assert_eq!(sum(&held[table], key), all, "{place} {table}");
        }
        for table in ["by_line", "by_stack"] {
            let rest = held[table]["rest"][key].as_u64().unwrap();
            assert_eq!(sum(&held[table]["rows"], key) + rest, all, "{place} {table}");
        }
    }
}

/// The column of categories in a table of holders adds up to the sum of the category, and no row mixes what the
/// recording saw allocated without a stack with what is older.
fn holders_add_up(held: &Value, place: &str) {
    let by_line = held["by_line"]["rows"].as_array().unwrap();
    let by_variable = held["by_variable"].as_array().map_or(&[][..], Vec::as_slice);
    for of in held["by_category"].as_array().unwrap() {
        let bytes_in = |rows: &[Value]| -> u64 {
            let rows = rows.iter().filter(|row| row["category"] == of["category"]);
            rows.map(|row| row["bytes"].as_u64().unwrap()).sum()
        };
        let bytes = of["bytes"].as_u64().unwrap();
        assert_eq!(bytes_in(by_line), bytes, "{place} {of}");
        assert!(by_variable.is_empty() || bytes_in(by_variable) <= bytes, "{place} {of}");
    }
    let older = |row: &&Value| row["before_recording"] == true;
    let older: u64 = by_line.iter().filter(older).map(|row| row["bytes"].as_u64().unwrap()).sum();
    let phases = held["by_phase"].as_array().unwrap();
    let age = phases.iter().find(|row| row["name"].is_null()).map_or(0, |row| row["bytes"].as_u64().unwrap());
    let no_line = |row: &&Value| row["frame"].is_null() && row.get("backward").is_none() && row["has_stack"] == false;
    let no_line: u64 = by_line.iter().filter(no_line).map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert!(older <= age && older <= no_line, "{place}: {older} of {no_line}, {age}");
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn every_table_of_holders_adds_up_to_the_categories() {
    let (mut named, mut mixed) = (0, 0);
    for name in fixtures::all_names() {
        for device in devices(&name, &["--top", "100000"]) {
            let ooms = device["ooms"].as_array().unwrap().iter().map(|oom| &oom["held"]);
            let shown = ooms.chain([&device["at_peak"], &device["at_moment"]]).filter(|held| held.is_object());
            for held in shown {
                holders_add_up(held, &name);
                let rows = held["by_line"]["rows"].as_array().unwrap();
                let lines = |row: &Value| (row["frame"].clone(), row["called_from"].clone());
                mixed += rows
                    .windows(2)
                    .filter(|pair| !pair[0]["frame"].is_null() && lines(&pair[0]) == lines(&pair[1]))
                    .count();
                named += usize::from(held["by_variable"].is_array());
            }
        }
    }
    assert!(named > 3 && mixed > 20, "{named} with names, {mixed} lines of two categories");
}

/// Two blocks without a stack: one is older than the recording, the other is not.
#[test]
fn memory_without_a_stack_is_not_all_from_before_the_recording() {
    const MIB: u64 = 1 << 20;
    let bare = json!([]);
    let segment = made::segment(0, &[1, 2].map(|index| made::live(index * MIB, MIB, &bare)));
    let actions = ["alloc", "free_requested", "free_completed", "alloc"];
    let trace = actions.map(|action| made::entry(action, 2 * MIB, MIB, 2, &bare));
    let report = made::analyzed(&made::snapshot(&[segment], &[trace.into()]), &[]);
    let rows = report["snapshots"][0]["devices"][0]["at_peak"]["by_line"]["rows"].as_array().unwrap().clone();
    let mut rows: Vec<(u64, bool)> =
        rows.iter().map(|row| (row["bytes"].as_u64().unwrap(), row["before_recording"] == true)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(MIB, false), (MIB, true)]);
}

/// Every recording's devices, with two rows a table.
static DEVICES: LazyLock<Vec<(String, Vec<Value>)>> = LazyLock::new(|| {
    let names = fixtures::names().into_iter().chain(runs());
    let devices = |name: &str| {
        let report = analyze_study(fixtures::study(name), name, 0, Options { top: 2, ..Options::default() });
        with_details(serde_json::to_value(report.devices).unwrap()).as_array().unwrap().clone()
    };
    names.map(|name| (name.clone(), devices(&name))).collect()
});

#[test]
fn every_table_adds_up_in_every_recording() {
    let mut failures = 0;
    for (name, devices) in &*DEVICES {
        for device in devices {
            if device["at_peak"].is_null() {
                assert!(name.contains("no-history"), "{name}");
                continue;
            }
            adds_up(&device["at_peak"], &device["peak"]["allocated_bytes"], name);
            if let Some(oom) = device["ooms"].as_array().unwrap().last() {
                adds_up(&oom["held"], &oom["allocated_bytes"], name);
                failures += 1;
            }
        }
    }
    assert!(failures > 20, "{failures}");
}

/// A configuration above the working directory counts within a repository only: anybody may write to `/tmp`.
#[test]
fn a_configuration_above_counts_within_a_repository() {
    let above = tempfile::tempdir().unwrap();
    let job = above.path().join("job");
    std::fs::create_dir(&job).unwrap();
    std::fs::write(above.path().join("oomscope.toml"), "[[category]]\nname = 'all'\nfunction = 'train'\n").unwrap();
    let arguments = ["--full", &text(&fixtures::path("where/2.15.0-adam"))];
    assert!(!analyze_in(&job, &arguments).contains("by rule"));
    std::fs::create_dir(above.path().join(".git")).unwrap();
    assert!(analyze_in(&job, &arguments).contains("by rule"));
}

/// Rules of the reader's own sort the same memory once more: the first that fits counts.
#[test]
fn categories_of_ones_own_are_beside_the_others() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("oomscope.toml");
    let rules = "max-ooms = 0\n\
        [[category]]\nname = 'blocks'\nfile = 'categories.py'\nfunction = 'forward'\n\
        [[category]]\nname = 'optimizer'\nannotation = 'Optimizer.step#*'\n\
        [[category]]\nname = 'all'\nfunction = 'train'\n\
        [[category]]\nname = 'optimizer'\nfunction = '_init_group'\n";
    std::fs::write(&config, rules).unwrap();
    let file = text(&fixtures::path("where/2.15.0-adam"));
    let report = read_with_details(&analyze_in(place.path(), &["--format", "json", &file]));
    let device = &report["snapshots"][0]["devices"][0];
    let held = &device["at_peak"];
    assert_eq!(sum(&held["by_rule"], "bytes"), held["allocated_bytes"].as_u64().unwrap());
    let of = |table: &str, key: &str, name: &Value| {
        let rows = held[table].as_array().unwrap().iter();
        rows.filter(|row| &row[key] == name).map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let (blocks, optimizer) = (of("by_rule", "name", &"blocks".into()), of("by_rule", "name", &"optimizer".into()));
    assert!(blocks > 0 && blocks <= of("by_phase", "name", &"forward".into()), "{held}");
    assert_eq!(optimizer, of("by_category", "category", &"optimizer-state".into()));
    assert!(of("by_rule", "name", &Value::Null) > 0, "parameters are of none");
    let plain = &devices("where/2.15.0-adam", &[])[0];
    assert!(plain["at_peak"]["by_rule"].is_null());
}

fn suspects(name: &str) -> Vec<Value> {
    devices(name, &[])[0]["leaks"]["suspects"].as_array().unwrap().clone()
}

/// `categories.py` keeps two tensors of 300 x 1024 floats a step, and one that a larger one replaces after each step.
#[test]
fn accumulation_with_every_step_is_found_with_its_slope() {
    let found: Vec<(u64, f64, u64, u64)> = suspects("where/2.15.0-leak_cache")
        .iter()
        .map(|one| {
            assert_eq!(one["frame"]["name"], "each");
            (
                one["bytes_per_step"].as_u64().unwrap(),
                one["blocks_per_step"].as_f64().unwrap(),
                one["steps"].as_u64().unwrap(),
                one["since_step"].as_u64().unwrap(),
            )
        })
        .collect();
    // The program makes them after each of its nine steps, which is when the next one begins.
    assert_eq!(found, [(256 * 4096 * 4, 0.0, 8, 1), (2 * 300 * 1024 * 4, 2.0, 9, 1)]);
}

/// `categories.py` keeps a tensor of 300 x 1024 floats after each third step.
#[test]
fn growth_with_every_third_step_is_found() {
    let found = suspects("where/2.15.0-leak_third");
    assert_eq!(found.len(), 1);
    let told = ["bytes_per_step", "every_steps", "steps", "since_step", "blocks"];
    let told = told.map(|key| found[0][key].as_u64().unwrap());
    assert_eq!(found[0]["frame"]["name"], "each");
    // After steps 2, 5, 8, 11 and 14, which is when the next one has begun.
    assert_eq!(told, [300 * 1024 * 4 / 3, 3, 5, 3, 5]);
}

/// Optimizers that step in the midst of a backward pass end one step, not one each.
#[test]
fn a_step_has_at_least_one_backward_pass() {
    for (name, steps) in [("in_backward", 4), ("penalty", 4), ("sgd", 3), ("sgd_by_hand", 3)] {
        let device = &devices(&format!("where/2.15.0-{name}"), &[])[0];
        assert_eq!(device["steps"]["completed"], steps, "{name}");
    }
}

#[test]
fn graphs_that_are_kept_are_found_by_their_lines() {
    for name in ["where/2.15.0-leak_graph", "where/2.9.1-leak_graph"] {
        let suspects = suspects(name);
        assert!(suspects.len() >= 5, "{name}: {}", suspects.len());
        for one in &suspects {
            let function = one["frame"]["name"].as_str().unwrap();
            assert!(["forward", "loss_of", "batch"].contains(&function), "{name}: {one}");
            assert_eq!(one["steps"], 6, "{name}");
        }
    }
}

#[test]
fn programs_that_keep_nothing_are_not_suspected() {
    // A graph of `rivals` that is not gone through stays: what is saved of it refers to it again.
    // The cache of `write_words` becomes larger with every word.
    let is_growing = |name: &str| ["leak", "rivals", "write_words"].iter().any(|part| name.contains(part));
    for (name, devices) in DEVICES.iter().filter(|(name, _)| !is_growing(name)) {
        for device in devices {
            assert_eq!(device["leaks"]["suspects"], Value::Array(Vec::new()), "{name}");
        }
    }
}

#[test]
fn the_steps_left_follow_from_the_capacity() {
    let leaks = |more: &[&str]| devices("where/2.15.0-leak_cache", more)[0]["leaks"].clone();
    assert!(leaks(&[])["steps_left"].is_null(), "nothing shows how large the device is");
    let leaks = leaks(&["--capacity", "1GiB"]);
    let [left, rate, steps] =
        ["remaining_bytes", "bytes_per_step", "steps_left"].map(|key| leaks[key].as_u64().unwrap());
    assert_eq!(rate, 4 * (2 * 300 * 1024 + 256 * 4096));
    assert_eq!(steps, left / rate);
    assert!(left < 1 << 30);
}

/// What it was for cannot be told of a program that trains nothing, but who held it can.
#[test]
fn without_phases_the_page_shows_who_held_the_memory() {
    let holder = |args: &[&str]| -> String {
        let page = result_of(&[&["analyze"], args].concat());
        let rows = page.lines().skip_while(|line| !line.replace("| ", "").starts_with("held "));
        rows.skip(1).find(|line| !line.contains("---")).unwrap_or_default().to_owned()
    };
    let held = holder(&["fixtures/2.15.0-fuzz.pickle.gz"]);
    assert!(held.contains("workloads.py:187 fuzz"), "{held}");
    // Its failure was survived: at the snapshot others hold the memory.
    let held = holder(&["fixtures/2.15.0-fuzz_streams-oom-lag.pickle.gz"]);
    assert!(held.contains(" 100% "), "{held}");
    let held = holder(&["--format", "markdown", "fixtures/2.15.0-fuzz.pickle.gz"]);
    assert!(held.contains("`workloads.py:187 fuzz`"), "{held}");
    // Without a stack there is nothing to tell.
    let entry = |action: &str, size: u64| json!({"action": action, "addr": 0x1000, "size": size, "stream": 0});
    let trace = [
        entry("segment_alloc", 2 << 20),
        entry("alloc", 512),
        entry("free_requested", 512),
        entry("free_completed", 512),
        entry("segment_free", 2 << 20),
    ];
    let snapshot = json!({"segments": [], "device_traces": [trace]});
    let directory = tempfile::TempDir::new().unwrap();
    let path = file(&directory, "no-stacks.json", snapshot.to_string().as_bytes());
    let page = result_of(&["analyze", "--full", &path]);
    assert!(page.contains("512 B at the peak") && !page.contains("Where the memory was"), "{page}");
}
