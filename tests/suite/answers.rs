//! The figures of every command on every recording of `fixtures/`, against `tests/golden/answers.txt`.
//!
//! A line there has a command and a checksum of its answer without prose. If one changes, compare the answer with that of
//! the commit before, and write the file anew with `UPDATE_ANSWERS=1`. Slow: 1,280 runs of the program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use crate::explain_messages;
use crate::support::{fixtures, late, program};

/// Commands, and the folders of `fixtures/` on whose recordings each is run; the first is run on all. One after a word of
/// [`late::made`] is run on what that makes of a recording.
const COMMANDS: [(&str, &[&str]); 20] = [
    ("analyze --full", &[]),
    ("last analyze --full", &["changes", "gate", "programs", "where"]),
    ("failed analyze --full", &["diff", "gate", "where"]),
    ("early analyze --full", &["dead_ends", "mistakes", "recorded", "where"]),
    ("peak analyze --full", &["advised", "dead_ends", "goes_on", "mistakes", "programs", "where"]),
    ("peak whatif", &["goes_on", "where"]),
    ("whatif --program", &["failures", "goes_on", "gpu"]),
    ("analyze --request 100MiB --at peak", &["dead_ends", "recorded"]),
    ("analyze --request 100MiB", &["diff", "goes_on", "where"]),
    ("last whatif --capacity 30MiB", &["programs", "diff"]),
    ("analyze --full --at peak", &["mistakes", "programs", "recorded", "where"]),
    ("whatif", &["failures", "goes_on", "advised", "recorded"]),
    ("replay", &["changes"]),
    ("timeline", &["diff", "goes_on", "recorded", "gate"]),
    (
        "check --max-gap-ratio 30% --max-inactive-split-ratio 9% --max-fragmentation 9% --max-peak-reserved 1GiB --max-ooms 0 \
            --max-peak-allocated 20MiB --max-step-growth 1MiB",
        &["changes", "dead_ends", "diff", "gate", "goes_on", "recorded"],
    ),
    ("export --format csv", &["advised", "dead_ends", "engines"]),
    ("export --format parquet", &["programs", "recorded"]),
    ("export --format pickle --from 20 --to end-20", &["diff", "goes_on", "recorded", "programs"]),
    ("export --format perfetto", &["diff", "engines", "programs"]),
    ("export --format perfetto --from 20 --to end-20", &["goes_on", "recorded"]),
];

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a.
fn add(checksum: &mut u64, bytes: &[u8]) {
    for byte in bytes {
        *checksum = (*checksum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

/// Adds keys, figures, and words such as codes, but of sentences only the digits.
fn add_figures(checksum: &mut u64, value: &Value) {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().filter(|(key, _)| *key != "version").collect();
            for (key, value) in members {
                add(checksum, key.as_bytes());
                add_figures(checksum, value);
            }
        }
        Value::Array(items) => {
            add(checksum, &items.len().to_le_bytes());
            items.iter().for_each(|item| add_figures(checksum, item));
        }
        Value::String(text) if text.contains(' ') => {
            text.bytes().filter(u8::is_ascii_digit).for_each(|digit| add(checksum, &[digit]));
        }
        other => add(checksum, other.to_string().as_bytes()),
    }
}

/// The checksum of the figures of `answers`.
pub(crate) fn checksum(answers: &[Value]) -> u64 {
    let mut checksum = FNV_OFFSET;
    answers.iter().for_each(|answer| add_figures(&mut checksum, answer));
    checksum
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    if directory.is_file() {
        return vec![directory.to_owned()];
    }
    // A refused command writes none.
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn output_of(args: &[&str], input: Vec<u8>) -> (u8, Vec<u8>) {
    let output = program::oomscope(args).write_stdin(input).output().unwrap();
    (output.status.code().unwrap() as u8, output.stdout)
}

fn checksum_of(command: &str) -> u64 {
    let mut checksum = FNV_OFFSET;
    let mut args: Vec<&str> = command.split(' ').collect();
    let directory = TempDir::new().unwrap();
    if args[0] == "export" {
        let tables = directory.path().join("tables");
        args.extend(["-o", tables.to_str().unwrap()]);
        add(&mut checksum, &[output_of(&args, Vec::new()).0]);
        files_in(&tables).iter().for_each(|table| add(&mut checksum, &std::fs::read(table).unwrap()));
    } else {
        let name = args[args.len() - 1].trim_start_matches("fixtures/").trim_end_matches(".pickle.gz");
        let made = late::made(args[0], name);
        if made.is_some() {
            args.remove(0);
            *args.last_mut().unwrap() = "-";
        }
        args.extend(["--format", "json"]);
        let (code, out) = output_of(&args, made.unwrap_or_default());
        add(&mut checksum, &[code]);
        add_figures(&mut checksum, &serde_json::from_slice(&out).expect(command));
    }
    checksum
}

/// The recordings of each program in `fixtures/sizes`, as `fit` takes them.
fn fits() -> Vec<String> {
    let mut files = BTreeMap::<String, Vec<String>>::new();
    for name in fixtures::all_names().iter().filter(|name| name.starts_with("sizes/")) {
        let (program, size) = name.rsplit_once('-').unwrap();
        files.entry(program.to_owned()).or_default().push(format!("{size}=fixtures/{name}.pickle.gz"));
    }
    let of = |files: &Vec<String>| {
        let plan = (files.len() > 1).then(|| format!("plan --gpus t4,h100 {}", files.join(" ")));
        let fit = |capacity| Some(format!("fit {} --sizes 2,6,10,16,40 --capacity {capacity}", files.join(" ")));
        [fit("2GiB"), fit("t4"), plan]
    };
    files.values().flat_map(of).flatten().collect()
}

/// Each recording of some folders against the next.
fn comparisons() -> Vec<String> {
    let names = fixtures::all_names();
    let is_chosen = |pair: &&[String]| ["diff/", "changes/", "gate/"].iter().any(|folder| pair[0].starts_with(folder));
    let pairs = names.windows(2).filter(is_chosen);
    pairs.map(|pair| format!("diff fixtures/{}.pickle.gz fixtures/{}.pickle.gz", pair[0], pair[1])).collect()
}

fn commands() -> Vec<String> {
    let names = fixtures::all_names();
    let each = names.iter().flat_map(|name| {
        let folder = name.split_once('/').map_or("", |(folder, _)| folder);
        let chosen = COMMANDS.iter().filter(move |(_, folders)| folders.is_empty() || folders.contains(&folder));
        chosen.map(move |(command, _)| format!("{command} fixtures/{name}.pickle.gz"))
    });
    let logs = files_in(&fixtures::directory().join("logs"));
    let logs = logs.iter().map(|log| format!("explain fixtures/logs/{}", log.file_name().unwrap().to_str().unwrap()));
    let folders = ["changes", "dead_ends", "engines", "gate", "gpu", "recorded"];
    let ranks = folders.map(|folder| format!("analyze --full fixtures/{folder}"));
    each.chain(ranks).chain(comparisons()).chain(fits()).chain(logs).collect()
}

#[test]
fn figures_change_only_where_they_are_meant_to() {
    let commands = commands();
    let mut answers: Vec<String> =
        commands.par_iter().map(|command| format!("{:016x} {command}\n", checksum_of(command))).collect();
    for (from, answer) in explain_messages::answers() {
        let mut checksum = 0;
        add_figures(&mut checksum, &answer);
        answers.push(format!("{checksum:016x} explain {from}\n"));
    }
    let path = fixtures::directory().with_file_name("tests").join("golden/answers.txt");
    if std::env::var_os("UPDATE_ANSWERS").is_some() {
        std::fs::write(&path, answers.concat()).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let known: Vec<&str> = golden.split_inclusive('\n').collect();
    let changed: Vec<&String> = answers.iter().filter(|answer| !known.contains(&answer.as_str())).collect();
    assert!(changed.is_empty() && known.len() == answers.len(), "{} answers changed:\n{changed:?}", changed.len());
}
