//! What goes wrong on the way: every call in turn, the driver's own idea of what is free, Ctrl-C, no GPU.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::driver::{MIB, assert_nothing_left, built, fixture, live, live_on_old, program_of, report, small_program};
use crate::program::{Ran, run_with, text};

const UNKNOWN: &str = "999";
const OUT_OF_MEMORY: &str = "2";

/// Whatever call fails, nothing stays allocated, and one sentence names the call.
#[test]
fn every_call_may_fail() {
    let directory = TempDir::new().unwrap();
    let path = small_program(&directory);
    for settings in ["expandable_segments:True", "expandable_segments:False"] {
        let args = ["--touch", "--reserve", "0", "--set", settings, &path];
        // Less than everything at once, so that memory is given back on the way.
        let roomy = [("STUB_TOTAL_MIB", "300")];
        let (_, ledger) = report(&args, &roomy);
        let calls = ledger["calls"];
        assert!(calls > 25, "{ledger:?}");
        let mut told = 0;
        for (at, code) in (1..=calls).flat_map(|at| [(at, UNKNOWN), (at, OUT_OF_MEMORY)]) {
            let at = at.to_string();
            let fails = [("STUB_FAIL_AT", at.as_str()), ("STUB_FAIL_WITH", code)];
            let (ran, ledger) = live(&args, &[&roomy[..], &fails].concat());
            let Ran { code: exit, out, err } = ran;
            let what = format!("{settings}, call {at} gives {code}: exit {exit}, {err}");
            if at == calls.to_string() {
                // The last gives the context back: nobody is left to tell.
                assert_eq!((exit, ledger["taken"]), (0, 0), "{what}");
                continue;
            }
            assert_nothing_left(&ledger);
            assert!([0, 1, 2].contains(&exit), "{what}");
            if exit == 2 {
                told += 1;
                assert_eq!(err.lines().count(), 1, "{what}");
                assert!(err.contains("cu") && err.contains(" failed: CUDA_ERROR_"), "{what}");
                assert_eq!(out, "", "{what}");
            } else {
                // Memory ran out where a device may run out of it: that is an answer, not a failure.
                assert_eq!((code, err.as_str()), (OUT_OF_MEMORY, ""), "{what}");
                assert_eq!(exit == 1, out.contains(" by the driver, with "), "{out}");
            }
        }
        assert!(told > calls, "{told} of {calls} calls, each failing twice, were told of");
    }
}

/// What was refused once is not held against the GPU: where there is room, the allocator's second try is
/// served, and all else as well.
#[test]
fn a_refusal_that_passes_is_survived() {
    let directory = TempDir::new().unwrap();
    let path = small_program(&directory);
    // 320 MiB are needed: not enough for the largest request, of 200 MiB, to be counted twice.
    let room = [("STUB_TOTAL_MIB", "424")];
    for settings in ["expandable_segments:True", "expandable_segments:False"] {
        let args = ["--reserve", "0", "--set", settings, &path];
        let (undisturbed, ledger) = report(&args, &room);
        let device = &undisturbed["devices"][0];
        assert_eq!((&device["retries"], &device["ooms"]), (&json!(0), &json!([])));
        let mut refused = 0;
        for at in 1..ledger["calls"] {
            let at = at.to_string();
            let fails = [("STUB_FAIL_AT", at.as_str()), ("STUB_FAIL_WITH", OUT_OF_MEMORY)];
            let (ran, _) = live(&args, &[&room[..], &fails].concat());
            if ran.code == 1 {
                refused += 1;
                assert!(ran.out.contains(": every request was served"), "{}", ran.out);
            }
        }
        assert!(refused >= 4, "{refused}");
    }
}

/// The driver runs out before its count of free memory says so: the replay goes on, and the first decision
/// that came out otherwise is named.
#[test]
fn memory_that_only_seems_free_is_a_difference() {
    let path = fixture("2.15.0-fuzz_streams-oom-lag");
    for settings in ["expandable_segments:True", "expandable_segments:False"] {
        let args = ["--reserve", "0", "--set", settings, "--format", "json", &path];
        let stub = [("STUB_TOTAL_MIB", "4096"), ("STUB_HIDDEN_MIB", "1024")];
        let (ran, ledger) = live(&args, &stub);
        assert_eq!((ran.code, ran.err.as_str()), (1, ""));
        assert_nothing_left(&ledger);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let device = &report["devices"][0];
        assert_eq!(device["as_predicted"], false);
        let difference = &device["first_difference"];
        assert!(difference["event"].as_u64().unwrap() > 0, "{difference}");
        let [refused, free] = ["refused_bytes", "driver_free_bytes"].map(|key| difference[key].as_u64().unwrap());
        assert!(refused > 0 && free >= 1 << 30, "{difference}");
        assert!(ledger["peak"] <= 3072 << 20, "{ledger:?}");
        let predicted = difference["predicted"]["action"].as_str().unwrap();
        assert!(predicted.starts_with("segment_"), "{difference}");
    }
}

#[test]
fn ctrl_c_ends_it_in_order() {
    let directory = TempDir::new().unwrap();
    let calls: Vec<(u64, u64)> = (1..=120).map(|number| (number, 12 * MIB)).collect();
    let path = program_of(&directory, &calls, 10_000);
    for settings in ["expandable_segments:True", "expandable_segments:False"] {
        let args = ["--set", settings, &path];
        for at in ["20", "60", "100"] {
            let (ran, ledger) = live(&args, &[("STUB_INTERRUPT_AT", at)]);
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
            assert!(ran.err.contains("stopped at entry"), "{}", ran.err);
            assert_nothing_left(&ledger);
            assert!(ledger["calls"] < 300, "it went on: {ledger:?}");
        }
    }
}

fn refused(ran: &Ran) -> &str {
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    &ran.err
}

#[test]
fn a_machine_without_a_driver_gets_its_name() {
    let path = fixture("2.15.0-holes");
    let said = |stub: &[(&str, &str)], args: &[&str]| {
        let (ran, ledger) = live(&[args, &[&path]].concat(), stub);
        assert_nothing_left(&ledger);
        refused(&ran).to_owned()
    };
    let no_gpu = said(&[("STUB_GPUS", "0")], &[]);
    assert!(no_gpu.contains("finds no GPU"), "{no_gpu}");
    let none = said(&[("STUB_INIT", "100")], &[]);
    assert!(none.contains("finds no GPU"), "{none}");
    let other = said(&[("STUB_GPUS", "2")], &["--gpu", "2"]);
    assert!(other.contains("there is no GPU 2: the driver finds 2, counted from 0"), "{other}");
    let broken = said(&[("STUB_INIT", "803")], &[]);
    assert!(broken.contains("cuInit failed: error 803"), "{broken}");
    let toolkit = said(&[("STUB_INIT", "34")], &[]);
    assert!(toolkit.contains("libcuda.so.1 that was found is the CUDA toolkit's stub"), "{toolkit}");
    let full = said(&[("STUB_RETAIN", OUT_OF_MEMORY), ("STUB_GPUS", "2")], &["--gpu", "1"]);
    assert!(full.contains("GPU 1 is full"), "{full}");
    let busy = said(&[("STUB_RETAIN", "46")], &[]);
    assert!(busy.contains("cuDevicePrimaryCtxRetain failed: error 46"), "{busy}");
    let old = live_on_old(&[&path]);
    assert!(refused(&old).contains("too old: it has no cuMemMap"), "{}", old.err);
}

/// What only expandable segments need is missed by them alone.
#[test]
fn expandable_segments_need_more_of_the_driver() {
    let path = fixture("2.15.0-holes");
    for (lacks, words) in [
        ("STUB_NO_VMM", "GPU 0: it has no virtual memory management, which expandable segments need"),
        ("STUB_NO_ADDRESSES", "is left for an expandable segment"),
    ] {
        report(&["--set", "expandable_segments:False", &path], &[(lacks, "1")]);
        let (ran, ledger) = live(&["--set", "expandable_segments:True", &path], &[(lacks, "1")]);
        assert_nothing_left(&ledger);
        assert!(refused(&ran).contains(words), "{}", ran.err);
    }
}

/// The CUDA toolkit installs a `libcuda.so` for linking, which is no driver: it is not looked at.
#[test]
fn only_what_a_driver_installs_is_loaded() {
    let directory = TempDir::new().unwrap();
    std::fs::copy(built(false).join("libcuda.so.1"), directory.path().join("libcuda.so")).unwrap();
    let ledger = directory.path().join("ledger.json");
    let variables = [("LD_LIBRARY_PATH", text(directory.path())), ("STUB_LEDGER", text(&ledger))];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    run_with(&["live", &fixture("2.15.0-holes")], &variables);
    assert!(!ledger.exists(), "it was loaded");
}

/// Whatever the machine: where the library is installed without a GPU, it is the driver that says so.
#[test]
fn no_driver_is_one_sentence() {
    if crate::on_a_gpu::has_gpu() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let ran = run_with(&["live", &fixture("2.15.0-holes")], &[("LD_LIBRARY_PATH", "/nowhere")]);
    let said = refused(&ran);
    let reasons = ["no CUDA driver was found", "finds no GPU", "cuInit failed"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
}

#[test]
fn wrong_usage_comes_before_the_gpu() {
    let path = fixture("2.15.0-holes");
    for (args, words) in [
        (&["--set", "max_split_size:64"][..], "did you mean max_split_size_mb?"),
        (&["--device", "7"], "no trace of GPU 7"),
        (&["--reserve", "much"], "is not a size"),
    ] {
        let args: Vec<&str> = ["live"].iter().chain(args).copied().chain([path.as_str()]).collect();
        let ran = run_with(&args, &[]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}
