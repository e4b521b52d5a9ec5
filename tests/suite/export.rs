//! `oomscope export`: tables, traces and folded stacks have the figures of the replay.
//! Slow: every recording is exported.

use oomscope::output::export::{
    Cell, FoldedWriter, Kind, ParquetTable, PerfettoWriter, Recording, TABLES, Table, TableSet, TableSink, write_window,
};
use oomscope::snapshot::Snapshot;
use oomscope::study::annotations::by_annotation;
use oomscope::study::{PositionSelector, Scope, Study, TracePosition, Window};
use proptest::prelude::*;
use serde_json::json;

use crate::support::cases::random;
use crate::support::program::{self, refusal, result_of};
use crate::support::reference::{Reference, program as random_program, snapshot_bytes};
use crate::support::{fixtures, garbage, window};

const FAILED: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";

/// A table in memory.
#[derive(Default)]
struct Rows {
    names: Vec<&'static str>,
    rows: Vec<Vec<Option<i64>>>,
}

impl Rows {
    fn new(table: Table) -> Self {
        Self { names: table.columns.iter().map(|column| column.name).collect(), rows: Vec::new() }
    }

    fn column(&self, name: &str) -> usize {
        self.names.iter().position(|other| *other == name).unwrap_or_else(|| panic!("no column {name}"))
    }

    /// The cells of column `name`, and the lengths of texts, in the rows of `device`.
    fn of_device(&self, device: u64, name: &str) -> Vec<Option<i64>> {
        let (of, column) = (self.column("device"), self.column(name));
        let own = self.rows.iter().filter(|row| row[of] == Some(device as i64));
        own.map(|row| row[column]).collect()
    }
}

impl TableSink for Rows {
    fn row<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) -> std::io::Result<()> {
        let number = |cell: Cell<'_>| match cell {
            Cell::Integer(number) => Some(number),
            Cell::Flag(flag) => Some(i64::from(flag)),
            Cell::Text(text) => Some(text.len() as i64),
            Cell::Null | Cell::Frames(_) => None,
        };
        let row: Vec<Option<i64>> = cells.into_iter().map(number).collect();
        assert_eq!(row.len(), self.names.len());
        self.rows.push(row);
        Ok(())
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Allocations, events and run of `study`.
fn tables(study: &Study<'_>) -> [Rows; 3] {
    let mut sinks = TABLES.map(Rows::new);
    let recording = Recording::new(study, "a");
    let [allocations, events, stacks, segments, run] = &mut sinks;
    let mut tables = TableSet([allocations, events, stacks, segments, run].map(|rows| Shared { rows }));
    tables.add(&recording).unwrap();
    tables.finish().unwrap();
    let [allocations, events, _, _, run] = sinks;
    [allocations, events, run]
}

struct Shared<'r> {
    rows: &'r mut Rows,
}

impl TableSink for Shared<'_> {
    fn row<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) -> std::io::Result<()> {
        self.rows.row(cells)
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.rows.finish()
    }
}

/// The sum of `bytes` over the rows that are live after `entry`, as a query would compute it.
fn live_bytes(table: &Rows, device: u64, entry: i64) -> i64 {
    let columns = ["start_event", "end_event", "bytes"].map(|name| table.of_device(device, name));
    let [start, end, bytes] = columns;
    let rows = start.iter().zip(&end).zip(&bytes);
    let is_live =
        |start: &Option<i64>, end: &Option<i64>| start.unwrap_or(-1) <= entry && end.is_none_or(|end| end > entry);
    rows.filter(|((start, end), _)| is_live(start, end)).map(|(_, bytes)| bytes.unwrap()).sum()
}

/// The sum of `bytes` over the rows that have `at_peak`.
fn bytes_at_peak(table: &Rows, device: u64) -> i64 {
    let [at_peak, bytes] = ["at_peak", "bytes"].map(|name| table.of_device(device, name));
    at_peak.iter().zip(&bytes).map(|(live, bytes)| live.unwrap() * bytes.unwrap()).sum()
}

/// The tables add up to what `study` says of `entries`.
fn assert_sums(study: &Study<'_>, entries: &[usize]) {
    let [allocations, events, run] = tables(study);
    for (row, device) in study.devices().enumerate() {
        let id = device.id();
        let after = events.of_device(id, "allocated_bytes");
        for entry in entries.iter().map(|entry| entry % device.device().len().max(1)) {
            if device.device().is_empty() {
                assert_eq!(live_bytes(&allocations, id, -1), device.memory().allocated_bytes as i64);
                continue;
            }
            let figures = device.memory_at(TracePosition::Entry { event: entry as u64 }).figures;
            assert_eq!(live_bytes(&allocations, id, entry as i64), figures.allocated_bytes as i64, "{id} {entry}");
            assert_eq!(after[entry], Some(figures.allocated_bytes as i64));
            assert_eq!(events.of_device(id, "reserved_bytes")[entry], Some(figures.reserved_bytes as i64));
        }
        let steps = events.of_device(id, "step");
        for entry in entries.iter().map(|entry| entry % device.device().len().max(1)) {
            let step = device.phases().steps.step_at(entry).map(i64::from);
            assert_eq!(
                steps.get(entry).copied().flatten(),
                step.filter(|_| !device.device().is_empty()),
                "{id} {entry}"
            );
        }
        let of_run = |name: &str| run.rows[row][run.column(name)];
        assert_eq!(Some(bytes_at_peak(&allocations, id)), of_run("peak_allocated_bytes"), "{id}");
        if let Some(peak) = of_run("peak_event") {
            let history = device.history().unwrap();
            assert_eq!(live_bytes(&allocations, id, peak), history.peak.allocated_bytes as i64);
        }
    }
}

#[test]
fn tables_of_every_recording_add_up_to_the_figures_of_the_replay() {
    for (index, name) in fixtures::names().iter().enumerate() {
        let spread = (0..5).map(|n| (n * 104_729 + index * 7919) % 60_000);
        assert_sums(fixtures::study(name), &spread.collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(random(100))]

    #[test]
    fn tables_of_random_programs_add_up(steps in random_program(150), entries in any::<[u16; 4]>()) {
        let reference = Reference::run(&steps);
        let bytes = snapshot_bytes(&[(&reference, 0)]);
        let snapshot = Snapshot::read(&bytes, &|_| {}).unwrap();
        let study = Study::new(&snapshot, Scope::default());
        let entries = entries.map(usize::from);
        assert_sums(&study, &entries);
        let [_, events, _] = tables(&study);
        let after: Vec<Option<i64>> = reference.after.iter().map(|totals| Some(totals.allocated as i64)).collect();
        prop_assert_eq!(events.of_device(0, "allocated_bytes"), after);
    }

    /// Whatever a file says, it is exported.
    #[test]
    fn no_entries_whatever_keep_a_recording_from_being_exported(file in garbage::snapshot(), last in 0..60_u64) {
        let snapshot = Snapshot::read(&serde_json::to_vec(&file).unwrap(), &|_| {}).unwrap();
        for window in [Window::default(), window::last(last)] {
            let study = Study::new(&snapshot, Scope { window, ..Scope::default() });
            tables(&study);
            let recording = Recording::new(&study, "a");
            let mut folded = FoldedWriter::new(PositionSelector::End, false);
            folded.add(&recording);
            folded.finish(&mut Vec::new()).unwrap();
            let mut perfetto = PerfettoWriter::new(Vec::new());
            perfetto.add(&recording).unwrap();
            perfetto.finish().unwrap();
            let mut parquet = TableSet(TABLES.map(|table| ParquetTable::new(table, Vec::new()).unwrap()));
            parquet.add(&recording).unwrap();
            parquet.finish().unwrap();
            let mut window = Vec::new();
            write_window(&recording, &mut window).unwrap();
            Snapshot::read(&window, &|_| {}).unwrap();
        }
    }
}

#[test]
fn a_window_has_the_memory_that_lives_in_it() {
    let snapshot = fixtures::snapshot("2.15.0-oom_varlen-at-oom");
    let study = Study::new(&snapshot, Scope { window: window::between(Some(1000), Some(2000)), ..Scope::default() });
    let [allocations, events, run] = tables(&study);
    assert_eq!(events.of_device(0, "event").len(), 1000);
    for entry in [1000, 1500, 1999] {
        let figures = study.devices().next().unwrap().memory_at(TracePosition::Entry { event: entry }).figures;
        assert_eq!(live_bytes(&allocations, 0, entry as i64), figures.allocated_bytes as i64);
    }
    let peak = run.of_device(0, "peak_event")[0].unwrap();
    assert!((999..2000).contains(&peak), "{peak}");
    assert_eq!(Some(bytes_at_peak(&allocations, 0)), run.of_device(0, "peak_allocated_bytes")[0]);
    assert!(allocations.of_device(0, "end_event").iter().all(|end| end.is_none_or(|end| end >= 1000)));
}

#[test]
fn a_window_as_a_snapshot_has_the_figures_of_the_recording() {
    for name in ["2.15.0-oom_varlen-at-oom", "2.15.0-two_devices", "2.15.0-conv_train-expandable", "2.1.2-holes-at-oom"]
    {
        let snapshot = fixtures::snapshot(name);
        for (from, to) in [(0, 700), (500, 1500), (300, u64::MAX)] {
            let window = window::between(Some(from), Some(to));
            let study = Study::new(&snapshot, Scope { window, ..Scope::default() });
            let mut written = Vec::new();
            write_window(&Recording::new(&study, "a"), &mut written).unwrap();
            let part = Snapshot::read(&written, &|_| {}).unwrap_or_else(|error| panic!("{name} {error}"));
            let part = Study::new(&part, Scope::default());
            for device in study.devices().filter(|device| !device.window().is_empty()) {
                let other = part.device(device.id()).unwrap();
                assert_eq!(other.device().len(), device.window().len(), "{name} {from}");
                let last = device.window().end as u64 - 1;
                let end = device.memory_at(TracePosition::Entry { event: last }).figures;
                assert_eq!(other.memory().allocated_bytes, end.allocated_bytes, "{name} {from}");
                assert_eq!(other.memory().reserved_bytes, end.reserved_bytes, "{name} {from}");
                let [peak, original] = [other, device].map(|device| device.history().unwrap().peak);
                assert_eq!(peak.allocated_bytes, original.allocated_bytes, "{name} {from}");
                assert_eq!(peak.reserved_bytes, original.reserved_bytes, "{name} {from}");
            }
        }
    }
}

#[test]
fn folded_stacks_add_up_at_each_position() {
    let total = |at: &str| -> u64 {
        let folded = result_of(&["export", FAILED, "--format", "folded", "--at", at]);
        folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    let snapshot = fixtures::snapshot("2.15.0-oom_varlen-at-oom");
    let study = Study::new(&snapshot, Scope::default());
    let device = study.devices().next().unwrap();
    assert_eq!(total("peak"), device.peak().allocated_bytes);
    assert_eq!(total("end"), device.memory().allocated_bytes);
    let failed = device.failed_requests().next_back().unwrap() as u64;
    let figures = |event| device.memory_at(TracePosition::Entry { event }).figures.allocated_bytes;
    assert_eq!(total("failure"), figures(failed));
    assert_eq!(total("1234"), figures(1234));
    let folded = result_of(&["export", FAILED, "--format", "folded"]);
    assert!(folded.lines().all(|line| line.starts_with("device_0;")), "{folded}");
    assert!(folded.contains(";workloads.py:50:train_step;"), "{folded}");
}

/// The fields of a message of Protocol Buffers: numbers, or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = varint(&mut bytes);
        let content = if tag & 7 == 2 {
            let (content, rest) = bytes.split_at(number as usize);
            bytes = rest;
            content
        } else {
            &[]
        };
        found.push((tag >> 3, number, content));
    }
    found
}

fn field<'f>(fields: &[(u64, u64, &'f [u8])], number: u64) -> Option<(u64, &'f [u8])> {
    fields.iter().find(|field| field.0 == number).map(|field| (field.1, field.2))
}

/// The slices of a trace: name, start and end in nanoseconds, and the number that is shown with it.
fn slices(trace: &[u8]) -> Vec<(&str, u64, u64, Option<u64>)> {
    let packets: Vec<_> = fields(trace).into_iter().map(|packet| fields(packet.2)).collect();
    let events: Vec<_> = packets
        .iter()
        .filter_map(|packet| Some((field(packet, 8)?.0, fields(field(packet, 11)?.1))))
        .filter_map(|(time, event)| Some((field(&event, 9)?.0, time, event)))
        .collect();
    // The end of a slice follows its beginning.
    events
        .windows(2)
        .filter(|pair| (pair[0].0, pair[1].0) == (1, 2))
        .map(|pair| {
            let name = std::str::from_utf8(field(&pair[0].2, 23).unwrap().1).unwrap();
            let number = field(&pair[0].2, 4).and_then(|shown| Some(field(&fields(shown.1), 3)?.0));
            (name, pair[0].1, pair[1].1, number)
        })
        .collect()
}

#[test]
fn csv_tables_have_the_columns_of_the_documentation() {
    let directory = tempfile::tempdir().unwrap();
    let path = program::text(&directory.path().join("tables"));
    assert_eq!(
        result_of(&["export", FAILED, "fixtures/2.15.0-two_devices.pickle.gz", "--format", "csv", "-o", &path]),
        ""
    );
    let documented = std::fs::read_to_string("docs/export.md").unwrap();
    for table in TABLES {
        let text =
            std::fs::read_to_string(directory.path().join("tables").join(format!("{}.csv", table.name))).unwrap();
        let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        assert_eq!(text.lines().next().unwrap(), names.join(","));
        assert!(text.lines().nth(1).is_some(), "{} has no row", table.name);
        for name in names {
            assert!(documented.contains(&format!("`{name}`")), "docs/export.md lacks {}.{name}", table.name);
        }
        assert!(documented.contains(&format!("`{}`", table.name)));
    }
    assert!(TABLES.iter().any(|table| table.columns.iter().any(|column| column.kind == Kind::Frames)));
    let same = program::text(&directory.path().join("same"));
    result_of(&["export", FAILED, "fixtures/2.15.0-two_devices.pickle.gz", "--format", "csv", "-o", &same]);
    for table in TABLES {
        let read = |of: &str| std::fs::read(directory.path().join(of).join(format!("{}.csv", table.name))).unwrap();
        assert!(read("same") == read("tables"), "{} differs from run to run", table.name);
    }
}

#[test]
fn snapshots_without_the_position_are_named_in_one_line() {
    let others =
        ["2.15.0-two_devices", "2.15.0-graphs", "2.15.0-holes"].map(|name| format!("fixtures/{name}.pickle.gz"));
    let files = [&[FAILED.to_owned()], &others[..]].concat();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let ran = program::run(&[&["export", "--format", "folded", "--at", "failure", "-o", "-"], &files[..]].concat());
    assert_eq!((ran.code, ran.err.lines().count()), (0, 1), "{}", ran.err);
    assert!(
        ran.err.contains("two_devices.pickle.gz and 2 other snapshots: no request failed; left out"),
        "{}",
        ran.err
    );
    assert!(ran.out.lines().all(|line| line.contains("oom_varlen")), "the others are left out");
}

#[test]
fn texts_of_the_program_are_slices() {
    let entry = |action: &str, addr: u64, text: &str, time: u64| {
        json!({"action": action, "addr": addr, "size": 1024,
        "stream": 0, "time_us": time, "frames": [], "user_metadata": text})
    };
    let entries = [
        entry("alloc", 1 << 20, "prefill", 100),
        entry("alloc", 2 << 20, "prefill", 101),
        entry("annotate", 2 << 20, "kv cache", 105),
        entry("alloc", 3 << 20, "decode", 110),
        entry("free_requested", 1 << 20, "", 115),
        entry("free_completed", 1 << 20, "", 116),
    ];
    let file = json!({"segments": [], "device_traces": [entries]});
    let snapshot = Snapshot::read(&serde_json::to_vec(&file).unwrap(), &|_| {}).unwrap();
    let study = Study::new(&snapshot, Scope::default());
    let mut trace = Vec::new();
    let mut perfetto = PerfettoWriter::new(&mut trace);
    perfetto.add(&Recording::new(&study, "a")).unwrap();
    perfetto.finish().unwrap();
    let slices = slices(&trace);
    for slice in [("prefill", 100_000, 105_000, None), ("decode", 110_000, 115_000, None)] {
        assert_eq!(slices.iter().filter(|found| **found == slice).count(), 1, "{slice:?} {slices:?}");
    }
    assert!(slices.contains(&("kv cache", 105_000, 105_000, Some(1024))), "{slices:?}");
    let lengths = ["prefill", "kv cache", "decode"].map(|text| Some(text.len() as i64));
    assert_eq!(tables(&study)[0].of_device(0, "user_metadata"), lengths, "the text of `annotate` comes first");
}

#[test]
fn an_impossible_export_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let out = program::text(&directory.path().join("out"));
    let untraced = "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz";
    for output in [&[][..], &["-o", "-"]] {
        let refused = refusal(&[&["export", FAILED, "--format", "csv"], output].concat());
        assert!(refused.contains("name a directory for the tables"), "{refused}");
    }
    let refused = refusal(&["export", FAILED, "--format", "csv", "-o", "Cargo.toml"]);
    assert!(refused.contains("Cargo.toml: is no directory"), "{refused}");
    assert!(
        refusal(&["export", FAILED, "--format", "csv", "-o", &out, "--at", "peak"]).contains("is for --format folded")
    );
    for format in ["folded", "pickle", "csv"] {
        let refused = refusal(&["export", FAILED, "--format", format, "-o", &out, "--from", "99999999"]);
        assert!(refused.contains("no trace entry in the selected part"), "{format} {refused}");
    }
    assert!(
        refusal(&["export", untraced, "--format", "folded", "--at", "failure"]).contains("no request failed; give")
    );
    assert!(refusal(&["export", FAILED, "--format", "folded", "--at", "99999999"]).contains("no trace has an entry"));
    let missing = refusal(&["export", FAILED, "--format", "csv", "-o", &out, "--device", "7"]);
    assert!(missing.contains("no memory and no trace of GPU 7"), "{missing}");
    assert!(!directory.path().join("out").exists(), "nothing is left behind");
    assert!(refusal(&["export", FAILED, "--format", "folded", "-o", FAILED]).contains("is an input file"));
    assert!(refusal(&["export", FAILED, "--format", "folded", "--from", "9", "--to", "3"]).contains("leaves no entry"));
    assert_eq!(program::run(&["export", FAILED, "--format", "2000"]).code, 2);
    assert!(refusal(&["export", FAILED, FAILED, "--format", "pickle", "-o", &out]).contains("takes one snapshot"));
    let broken = program::text(&directory.path().join("broken.pickle"));
    std::fs::write(&broken, "\u{80}").unwrap();
    assert!(program::run(&["export", &broken, "--format", "csv", "-o", &out]).err.contains("broken.pickle: "));
    assert!(!directory.path().join("out").exists(), "nothing is left behind");
}

#[test]
fn the_last_eight_texts_of_a_live_allocation_count() {
    let entry = |action: &str, addr: u64, text: &str| json!({"action": action, "addr": addr, "size": 1024, "stream": 0, "frames": [], "user_metadata": text});
    for texts in [7, 8, 9, 12] {
        let names: Vec<String> = (0..texts).map(|index| format!("text {index}")).collect();
        let mut trace = vec![entry("alloc", 1 << 20, ""), entry("alloc", 2 << 20, "")];
        // One that comes twice counts once, as late as it comes last.
        let texts = names.iter().skip(1).chain([&names[2], &names[0]]);
        trace.extend(texts.map(|text| entry("annotate", 1 << 20, text)));
        trace.extend([entry("annotate", 2 << 20, "freed"), entry("free_requested", 2 << 20, "")]);
        let snapshot = serde_json::to_vec(&json!({"segments": [], "device_traces": [trace]})).unwrap();
        let snapshot = Snapshot::read(&snapshot, &|_| {}).unwrap();
        let found = by_annotation(Study::new(&snapshot, Scope::default()).device(0).unwrap(), 20).unwrap();
        let mut found: Vec<String> = found.rows.into_iter().filter_map(|row| row.name).collect();
        let mut expected: Vec<String> = [&names[1..2], &names[3..], &names[2..3], &names[..1]].concat();
        expected.drain(..expected.len().saturating_sub(8));
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}
