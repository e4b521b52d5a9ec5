//! `docs/schema` has a JSON Schema of what each command writes, made from the serialized types and their comments.
//!
//! `UPDATE_DOCS=1` writes the files. `oomscope schema` prints them, and what the commands write keeps to them.
//! Slow: the source of both crates is parsed.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize as _;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use serde_json::{Value, json};

use crate::schema_types::Types;
use crate::support::program::{result_of, run};
use crate::support::schema;

/// The schemas of each command. The first is that of its report.
const COMMANDS: [(&str, &[&str]); 11] = [
    ("analyze", &["analyze/1", "analyze-brief/1"]),
    ("check", &["check/1", "baseline/1"]),
    ("diff", &["diff/1"]),
    ("dry-run", &["dry-run-fit/1", "dry-run-try/1"]),
    ("explain", &["explain/1"]),
    ("fit", &["fit/1", "fit-refused/1", "dry-run-fit/1"]),
    ("live", &["live/1"]),
    ("plan", &["plan/1", "plan-serving/1"]),
    ("replay", &["replay/1"]),
    ("timeline", &["timeline/1"]),
    ("whatif", &["whatif/1"]),
];

/// Compact, but with a line for each type, key and word, for `git diff`.
#[derive(Default)]
struct Lines {
    depth: usize,
}

impl Formatter for Lines {
    fn begin_object<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        self.depth += 1;
        CompactFormatter.begin_object(writer)
    }

    fn end_object<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        self.depth -= 1;
        CompactFormatter.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        CompactFormatter.begin_object_key(writer, first)?;
        if [1, 2, 4].contains(&self.depth) { writer.write_all(b"\n") } else { Ok(()) }
    }
}

fn written(types: &Types, command: &str, schemas: &[&str]) -> String {
    let roots = types.roots();
    let roots: Vec<&str> = schemas.iter().map(|schema| roots[format!("oomscope/{schema}").as_str()]).collect();
    let forms: Vec<Value> = roots.iter().map(|root| json!({ "$ref": format!("#/$defs/{root}") })).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("oomscope {command} --format json"),
        "anyOf": forms,
        "$defs": types.definitions(&roots),
    });
    let mut text = Vec::new();
    schema.serialize(&mut Serializer::with_formatter(&mut text, Lines::default())).unwrap();
    String::from_utf8(text).unwrap() + "\n"
}

#[test]
fn the_files_are_made_from_the_types() {
    let types = Types::read();
    let listed: BTreeSet<&str> = COMMANDS.iter().flat_map(|(_, schemas)| *schemas).copied().collect();
    assert_eq!(listed.len(), types.roots().len(), "COMMANDS has every schema: {:?}", types.roots());
    for (command, schemas) in COMMANDS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schema/{command}.json"));
        let written = written(&types, command, schemas);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &written).unwrap();
        }
        let shipped = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == shipped, "{} is out of date: run with UPDATE_DOCS=1", path.display());
    }
}

/// A run that writes each schema, but those of other tests; `~` stands for `fixtures/2.15.0-`.
const RUNS: [(&str, &str); 24] = [
    ("analyze/1", "analyze ~oom_varlen-at-oom.pickle.gz"),
    ("analyze/1", "analyze --request 1GiB --capacity 3GiB ~fuzz_streams-oom-lag.pickle.gz"),
    ("analyze/1", "analyze --request 1KiB ~gpt_varlen-late.pickle.gz"),
    ("analyze/1", "analyze fixtures/2.1.2-fuzz-max_split-oom.pickle.gz"),
    ("analyze/1", "analyze --capacity 1GiB fixtures/where/2.15.0-leak_cache.pickle.gz"),
    ("analyze/1", "analyze fixtures/recorded/ranks"),
    ("analyze/1", "analyze ~graphs.pickle.gz ~two_devices.pickle.gz ~gpt_varlen-no-history.pickle.gz Cargo.toml"),
    ("analyze-brief/1", "analyze --brief ~oom_varlen-at-oom.pickle.gz"),
    ("check/1", "check --baseline fixtures/gate/baseline.json --entry none fixtures/gate/more.pickle.gz"),
    ("check/1", "check --max-ooms 0 ~oom_varlen-at-oom.pickle.gz ~streams.pickle.gz Cargo.toml"),
    ("check/1", "check --max-gap-ratio 0 ~oom_varlen-at-oom.pickle.gz ~gpt_varlen-no-history.pickle.gz"),
    ("diff/1", "diff fixtures/diff/base.pickle.gz fixtures/diff/renamed.pickle.gz"),
    ("diff/1", "diff --at end fixtures/diff/base.pickle.gz fixtures/diff/later.pickle.gz"),
    ("diff/1", "diff ~streams-lag.pickle.gz ~two_devices.pickle.gz"),
    ("explain/1", "explain fixtures/logs/ranks.log"),
    (
        "fit/1",
        "fit 4=fixtures/sizes/2.15.0-dense-4.pickle.gz 8=fixtures/sizes/2.15.0-dense-8.pickle.gz --capacity 3GiB",
    ),
    ("fit-refused/1", "fit 4=fixtures/sizes/2.15.0-dense-4.pickle.gz 8=fixtures/sizes/2.15.0-gan-8.pickle.gz"),
    ("plan/1", "plan 4=fixtures/sizes/2.15.0-dense-4.pickle.gz 8=fixtures/sizes/2.15.0-dense-8.pickle.gz --gpus t4"),
    ("replay/1", "replay ~oom_varlen-at-oom.pickle.gz"),
    ("replay/1", "replay --set expandable_segments:True ~oom_varlen-at-oom.pickle.gz"),
    ("replay/1", "replay --torch-version 2.4 fixtures/2.3.1-fuzz-roundup.pickle.gz"),
    ("timeline/1", "timeline ~graphs.pickle.gz"),
    ("whatif/1", "whatif --set max_split_size_mb:512 ~two_devices.pickle.gz"),
    ("whatif/1", "whatif --program fixtures/changes/2.15.0-dense-320MiB.pickle.gz"),
];

fn answer_of(command: &str) -> Value {
    let command = format!("{command} --format json").replace('~', "fixtures/2.15.0-");
    let ran = run(&command.split_whitespace().collect::<Vec<_>>());
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{command}: {error}\n{}", ran.err))
}

#[test]
fn every_answer_keeps_to_its_schema() {
    for (schema, command) in RUNS {
        let answer = answer_of(command);
        assert_eq!(answer["schema"], format!("oomscope/{schema}"), "{command}");
        assert_eq!(schema::faults(&answer), [""; 0], "{command}");
    }
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("baseline.json");
    let file = path.to_str().unwrap();
    let late = ["--allow-missing", "truncated", "fixtures/gate/none.pickle.gz"];
    let ran = run(&[&["check", "--add", "--entry", "none", "--baseline", file], &late[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let baseline: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(baseline["schema"], "oomscope/baseline/1");
    assert_eq!(schema::faults(&baseline), [""; 0]);
    let written = RUNS.iter().map(|(schema, _)| *schema).chain(["baseline/1"]);
    let mut unwritten: Vec<&str> = schema::names().map(|name| name.trim_start_matches("oomscope/")).collect();
    written.for_each(|schema| unwritten.retain(|name| *name != schema));
    // tests/live, dry_run_remedies.rs and serving.rs have runs of these.
    assert_eq!(unwritten, ["dry-run-fit/1", "dry-run-try/1", "live/1", "plan-serving/1"]);
}

#[test]
fn an_answer_with_another_key_word_or_type_is_found() {
    let answer = answer_of("analyze ~oom_varlen-at-oom.pickle.gz");
    for (pointer, wrong) in [
        ("/snapshots/0/devices/0/reserved_bytes", json!("5 GiB")),
        ("/snapshots/0/devices/0/reserved_bytes", json!(-1)),
        ("/snapshots/0/devices/0/segments", json!({})),
        ("/snapshots/0/devices/0/ooms/0/verdict", json!("bad-luck")),
        ("/snapshots/0/devices/0/ooms/0/culprit/new", json!(1)),
        ("/summary", Value::Null),
    ] {
        let mut answer = answer.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        answer.pointer_mut(parent).unwrap()[key] = wrong;
        assert!(!schema::faults(&answer).is_empty(), "{pointer}");
    }
}

#[test]
fn the_program_prints_the_files() {
    let names = result_of(&["schema"]);
    assert_eq!(names.lines().collect::<Vec<_>>(), COMMANDS.map(|(command, _)| command));
    for command in names.lines() {
        let shipped = std::fs::read_to_string(format!("docs/schema/{command}.json")).unwrap();
        assert_eq!(result_of(&["schema", command]), shipped);
    }
    let other = run(&["schema", "report"]);
    assert!(other.code == 2 && other.err.contains("[possible values: analyze, check,"), "{}", other.err);
}
