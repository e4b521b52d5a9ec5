//! The variables that keep memory by the text of a program alone: statements of many kinds, each in programs whose blocks
//! live in many ways, against `tests/golden/keepers.txt`. If a line there changes, read it, and write the file anew with
//! `UPDATE_KEEPERS=1`.

use std::io::Read as _;

use flate2::Compression;
use flate2::read::ZlibEncoder;
use oomscope::analysis::{Advice, Cure, CureHolder, Options, analyze};
use oomscope::snapshot::Snapshot;
use oomscope::study::variables::Written;
use rayon::prelude::*;
use serde_json::json;

use super::cures::{Program, in_model, main_at};
use crate::support::fixtures;

/// The statements of line 12, separated by lines.
const STATEMENTS: &str = "\
y = model(x)
kept.append(model(x))
kept.extend(model(x))
kept += [model(x)]
kept = [model(part) for part in x]
kept = list(model(x))
total += model(x)
total = total + model(x)
total = torch.cat([total, model(x)])
total = model(x, total)
cache[i] = model(x)
last.append(model(x))
log.output = model(x)
log.outputs.append(model(x))
requests.put(model(x))
model(x)";

/// The program of a statement, in a loop or not. Lines 10 and 12 make requests, and what they call in the model.
fn text(statement: &str, is_loop: bool) -> String {
    let before =
        "import collections, queue, torch\nkept = []\ncache = {}\nlog = Log()\nrequests = queue.Queue()\ndef main():\n";
    let lines = [
        "    last = collections.deque(maxlen=4)",
        "    total = torch.zeros(1)",
        if is_loop { "    for i, x in enumerate(data):" } else { "    if data:" },
        "        x = read(i)",
        "        size = len(x)",
        &format!("        {statement}"),
        "        print(size)",
    ];
    format!("{before}{}{}main()\n", lines.join("\n"), "\n".repeat(86))
}

/// How the blocks of the program live: each makes 12 passes.
const LIVES: [&str; 6] = ["all", "last", "replaced", "last four", "graph", "trained"];

fn program(life: &str) -> Program {
    let mut program = Program::default();
    program.alloc(&main_at(8, &[]), 3);
    let mut kept = Vec::new();
    for pass in 0..12 {
        let input = program.alloc(&main_at(10, &[]), 2);
        let hidden = program.alloc(&in_model(12, 19), 3 + pass % 5);
        program.free(hidden);
        match life {
            "replaced" => kept.push(program.alloc(&main_at(12, &[]), 20 + pass)),
            "graph" => {
                for layer in 20..24 {
                    program.alloc(&in_model(12, layer), 10);
                }
            }
            _ => kept.push(program.alloc(&main_at(12, &[]), 20)),
        }
        let len = [("last", 1), ("replaced", 1), ("last four", 4)].iter().find(|(name, _)| *name == life);
        if len.is_some_and(|(_, len)| kept.len() > *len) {
            program.free(kept.remove(0));
        }
        if life == "trained" {
            let backward =
                json!({ "filename": "/venv/lib/torch/autograd/graph.py", "line": 800, "name": "_engine_run_backward" });
            let gradient = program.alloc(&main_at(13, &[backward]), 20);
            program.free(gradient);
        }
        program.free(input);
    }
    program.fail(&in_model(12, 20), 64);
    program
}

/// The kind of advice; of a cure the holder, its bytes, and what the statement that writes to it is known to do.
fn describe(advice: &Advice) -> String {
    let Advice::Cure(Cure { row, holder: CureHolder::Variable(keeper), .. }) = advice else {
        return format!("{advice:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned();
    };
    let name = keeper.name.as_deref().unwrap_or("no variable");
    let written = keeper.written.as_ref().map_or("not written".to_owned(), |written| {
        let Written { at, kind, in_loop, has_grad, is_read, backward, .. } = written;
        format!("{kind:?} at {}, {in_loop} {has_grad} {is_read} {backward:?}", at.line)
    });
    let [bytes, of_graphs] = [keeper.bytes >> 20, keeper.graph_bytes >> 20];
    format!("{:?} of {name}: {bytes} MiB, {of_graphs} of graphs; {written}", row.kind)
}

#[test]
fn statements_keep_what_they_kept() {
    let cases: Vec<(&str, bool, &str)> = STATEMENTS
        .lines()
        .flat_map(|statement| [true, false].map(|is_loop| (statement, is_loop)))
        .flat_map(|(statement, is_loop)| LIVES.map(|life| (statement, is_loop, life)))
        .collect();
    let answer = |(statement, is_loop, life): &(&str, bool, &str)| {
        let mut compressed = Vec::new();
        let text = text(statement, *is_loop);
        ZlibEncoder::new(text.as_bytes(), Compression::default()).read_to_end(&mut compressed).unwrap();
        let text: String = compressed.into_iter().map(char::from).collect();
        let mut made = program(life).snapshot();
        made["oomscope"] =
            json!({ "recorder": 1, "program": { "files": { "/app/train.py": text }, "complete": true } });
        let made = made.to_string();
        let snapshot = Snapshot::read(made.as_bytes(), &|_| {}).unwrap();
        let report = analyze(&snapshot, "made", made.len() as u64, Options { top: 5, ..Options::default() });
        let device = &report.devices[0];
        let word = device.conclusion.map_or("", |verdict| verdict.word());
        let advice = describe(device.advice.first().unwrap());
        format!("{statement} | {} | {life} | {word} | {advice}\n", if *is_loop { "loop" } else { "once" })
    };
    let answers: String = cases.par_iter().map(answer).collect();
    let path = fixtures::directory().with_file_name("tests").join("golden/keepers.txt");
    if std::env::var_os("UPDATE_KEEPERS").is_some() {
        std::fs::write(&path, &answers).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<&str> = answers.lines().filter(|line| !golden.lines().any(|known| known == *line)).collect();
    assert!(changed.is_empty() && golden.len() == answers.len(), "{changed:#?}");
}
