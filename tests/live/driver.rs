//! The stub driver, and runs of the program against it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Ran, run_with, text};

pub(crate) const MIB: u64 = 1 << 20;

/// The directory of the stub; `old` leaves out a call.
pub(crate) fn built(old: bool) -> &'static Path {
    static NEW: OnceLock<TempDir> = OnceLock::new();
    static OLD: OnceLock<TempDir> = OnceLock::new();
    let build = || {
        let directory = TempDir::new().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/libcuda.c");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(&compiler);
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        command.arg(directory.path().join("libcuda.so.1")).arg(source);
        if old {
            command.arg("-DcuMemMap=renamed");
        }
        let ran = command.status();
        assert!(
            ran.as_ref().is_ok_and(std::process::ExitStatus::success),
            "these tests need a C compiler for a stub driver: '{compiler}' gave {ran:?}"
        );
        directory
    };
    (if old { &OLD } else { &NEW }).get_or_init(build).path()
}

/// What the driver says at the end.
pub(crate) type Ledger = BTreeMap<String, u64>;

/// The program run against the stub, with what the stub's ledger says.
pub(crate) fn live(args: &[&str], stub: &[(&str, &str)]) -> (Ran, Ledger) {
    against(built(false), args, stub)
}

/// The same with a driver that is too old.
pub(crate) fn live_on_old(args: &[&str]) -> Ran {
    against(built(true), args, &[]).0
}

fn against(library: &Path, args: &[&str], stub: &[(&str, &str)]) -> (Ran, Ledger) {
    let directory = TempDir::new().unwrap();
    let ledger = text(&directory.path().join("ledger.json"));
    let library = text(library);
    let mut variables = vec![("LD_LIBRARY_PATH", library.as_str()), ("STUB_LEDGER", &ledger)];
    variables.extend(stub);
    let args: Vec<&str> = ["live"].iter().chain(args).copied().collect();
    let ran = run_with(&args, &variables);
    let written = std::fs::read(&ledger).expect("the stub was loaded");
    (ran, serde_json::from_slice(&written).unwrap())
}

/// The JSON of a run that must go well, and the ledger, which must say that nothing is left.
pub(crate) fn report(args: &[&str], stub: &[(&str, &str)]) -> (Value, Ledger) {
    let args: Vec<&str> = ["--format", "json"].iter().chain(args).copied().collect();
    let (ran, ledger) = live(&args, stub);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    assert_nothing_left(&ledger);
    (serde_json::from_str(&ran.out).unwrap(), ledger)
}

pub(crate) fn assert_nothing_left(ledger: &Ledger) {
    for what in ["taken", "segments", "reservations", "mappings", "handles", "contexts"] {
        assert_eq!(ledger[what], 0, "{what} left: {ledger:?}");
    }
}

pub(crate) fn fixture(name: &str) -> String {
    text(&crate::fixtures::path(name))
}

/// A snapshot of calls on one device that holds nothing at the beginning: requests of sizes, by address,
/// and frees (0 bytes). `gap_us` passes between two.
pub(crate) fn program_of(directory: &TempDir, calls: &[(u64, u64)], gap_us: u64) -> String {
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    let mut trace = Vec::new();
    let (mut next, mut now) = (0x7000_0000_0000_u64, 1_000_000);
    let mut places = BTreeMap::new();
    for &(name, size) in calls {
        now += gap_us;
        let mut entry = |action: &str, addr: u64, size: u64| {
            trace.push(json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": now}));
        };
        if size == 0 {
            let size = held.remove(&name).unwrap();
            entry("free_requested", places[&name], size);
            entry("free_completed", places[&name], size);
            entry("segment_free", places[&name], size);
        } else {
            held.insert(name, size);
            places.insert(name, next);
            entry("segment_alloc", next, size);
            entry("alloc", next, size);
            next += size;
        }
    }
    let segments: Vec<Value> = held
        .iter()
        .map(|(name, size)| {
            json!({"device": 0, "address": places[name], "total_size": size, "stream": 0,
                "segment_type": "large", "blocks": [
                    {"address": places[name], "size": size, "requested_size": size,
                     "state": "active_allocated"}]})
        })
        .collect();
    let snapshot = json!({"segments": segments, "device_traces": [trace]});
    let path: PathBuf = directory.path().join("program.json");
    std::fs::write(&path, snapshot.to_string()).unwrap();
    text(&path)
}

/// A dozen calls that keep some memory, give some back and need all kinds of device calls when segments
/// are expandable.
pub(crate) fn small_program(directory: &TempDir) -> String {
    let calls = [
        (1, 20 * MIB),
        (2, 40 * MIB),
        (3, 2 * MIB),
        (1, 0),
        (4, 64 * MIB),
        (2, 0),
        (5, 200 * MIB),
        (4, 0),
        (6, 30 * MIB),
    ];
    program_of(directory, &calls, 10_000)
}
