//! What `oomscope check` writes for CI systems keeps to their formats, and says the same as its JSON.

use crate::support::json_schema::faults;
use crate::support::program::{file, run};
use oomscope::cli::Config;
use oomscope::compare::gate::Limit;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A run that passes in part, warns, fails, and cannot read one file, with a file name that every format has to
/// escape.
fn output(directory: &TempDir, format: &str) -> String {
    let more = std::fs::read("fixtures/gate/more.pickle.gz").unwrap();
    let odd = file(directory, "100% <a>, \"b\" & c: d.pickle.gz", &more);
    let broken = file(directory, "broken.pickle", b"no pickle");
    let ran = run(&[
        "check",
        "--format",
        format,
        "--config",
        "fixtures/gate/limits.toml",
        "--max-peak-reserved",
        "1MiB",
        &odd,
        "fixtures/2.15.0-holes-at-oom.pickle.gz",
        &broken,
    ]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    ran.out
}

fn findings(directory: &TempDir) -> Vec<Value> {
    let report: Value = serde_json::from_str(&output(directory, "json")).unwrap();
    report["findings"].as_array().unwrap().clone()
}

fn is_lost(finding: &&Value) -> bool {
    finding["passed"] == false
}

#[test]
fn sarif_keeps_to_the_schema() {
    let schema = std::fs::read_to_string("fixtures/schemas/sarif-2.1.0.json").unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let directory = TempDir::new().unwrap();
    let log: Value = serde_json::from_str(&output(&directory, "sarif")).unwrap();
    assert_eq!(faults(&schema, &schema, &log), [""; 0]);
    // The check itself can fail.
    for (place, wrong) in [
        ("/runs/0/results/0/level", json!("bad")),
        ("/runs/0/results/0/message", json!({})),
        ("/runs/0/results/0/ruleIndex", json!(-2)),
        ("/runs/0/results/0/locations/0/physicalLocation", json!({})),
        ("/runs/0/tool/driver/rules", json!([{ "id": "a" }, { "id": "a" }])),
        ("/runs/0/tool", json!({ "driver": { "name": "oomscope", "nam": "oomscope" } })),
        ("/version", json!(2.1)),
    ] {
        let mut log = log.clone();
        *log.pointer_mut(place).unwrap() = wrong;
        assert_ne!(faults(&schema, &schema, &log), [""; 0], "{place}");
    }

    let run = &log["runs"][0];
    let results = run["results"].as_array().unwrap();
    let lost = findings(&directory).iter().filter(is_lost).count();
    assert_eq!((results.len(), lost > 4), (lost, true));
    for result in results {
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert!(!place.as_str().unwrap().contains([' ', '<', '"']), "{place}");
    }
    assert_eq!(run["invocations"][0]["executionSuccessful"], false);
}

#[test]
fn junit_has_a_test_for_each_limit_and_counts_them() {
    let directory = TempDir::new().unwrap();
    let xml = output(&directory, "junit");
    let document = roxmltree::Document::parse(&xml).unwrap();
    let suite = document.root_element().first_element_child().unwrap();
    let cases: Vec<_> = suite.children().filter(|node| node.has_tag_name("testcase")).collect();
    let with = |tag: &str| cases.iter().filter(|c| c.children().any(|node| node.has_tag_name(tag))).count();
    let count = |name: &str| suite.attribute(name).unwrap().parse::<usize>().unwrap();
    assert_eq!((count("tests"), count("failures")), (cases.len(), with("failure")));
    assert_eq!((count("errors"), with("error")), (1, 1));
    let findings = findings(&directory);
    let mut tests: Vec<(String, String)> = findings
        .iter()
        .map(|f| {
            let class = format!("{}, device {}", f["path"].as_str().unwrap(), f["device"]);
            (class, f["code"].as_str().unwrap().to_owned())
        })
        .collect();
    tests.dedup();
    let named = cases.iter().map(|case| {
        let name = |attribute| case.attribute(attribute).unwrap().to_owned();
        (name("classname"), name("name"))
    });
    let named: Vec<_> = named.filter(|(_, name)| name != "readable").collect();
    assert_eq!(named, tests);
    let failed = findings.iter().filter(is_lost).filter(|f| f["severity"] == "fail").count();
    assert_eq!(with("failure"), failed);
    assert_eq!(with("system-out"), findings.iter().filter(is_lost).count() - failed);
}

/// A command is `::name key=value,key=value::message`, on one line.
#[test]
fn workflow_commands_can_be_read_back() {
    let directory = TempDir::new().unwrap();
    let text = output(&directory, "github");
    let unescaped = |text: &str| {
        let text = text.replace("%0A", "\n").replace("%3A", ":").replace("%2C", ",");
        text.replace("%25", "%")
    };
    let commands: Vec<(&str, String, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("::"))
        .map(|line| {
            let (command, message) = line.split_once("::").unwrap();
            let (name, properties) = command.split_once(' ').unwrap();
            let (_, title) = properties.split(',').filter_map(|p| p.split_once('=')).find(|p| p.0 == "title").unwrap();
            (name, unescaped(title), unescaped(message))
        })
        .collect();
    let findings = findings(&directory);
    let lost: Vec<&Value> = findings.iter().filter(is_lost).collect();
    for finding in &lost {
        let (code, message) = (finding["code"].as_str().unwrap(), finding["message"].as_str().unwrap());
        let title = format!("{code}, GPU 0 of {}", finding["path"].as_str().unwrap());
        let name = if finding["severity"] == "fail" { "error" } else { "warning" };
        assert!(commands.iter().any(|(n, t, m)| *n == name && *t == title && m.starts_with(message)), "{title}");
    }
    assert_eq!(commands.len(), lost.len() + 1, "and one for the file that cannot be read");
}

#[test]
fn the_documentation_lists_every_limit_as_the_catalogue_has_it() {
    let page = std::fs::read_to_string("docs/gate.md").unwrap();
    for limit in Limit::all() {
        for (figure, meaning) in limit.figures().zip(limit.meanings()) {
            let row = format!("\n| `{}` | `{}` | {meaning} |\n", limit.key(), figure.word());
            assert!(page.contains(&row), "docs/gate.md lacks {row}");
        }
    }
}

#[test]
fn the_configurations_in_the_documentation_are_read() {
    let page = std::fs::read_to_string("docs/gate.md").unwrap();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).map(|b| b.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 1);
    for block in blocks {
        Config::parse(block).unwrap();
    }
}
