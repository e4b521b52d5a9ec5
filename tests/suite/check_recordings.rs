//! `oomscope check` passes only what the recording shows: no lost history, no late start, no contradiction.
//! Slow: many runs of the program.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::check::{NO_TRACE, OOM, check, finding};
use crate::support::made;
use crate::support::program::{file, run};

#[test]
fn a_figure_that_the_file_lacks_does_not_pass() {
    for flag in ["--max-ooms", "--max-step-growth", "--max-peak-reserved", "--max-peak-allocated"] {
        let (code, finding) = finding(&[flag, "1000000000", NO_TRACE]);
        assert_eq!((code, &finding["actual"]), (1, &Value::Null), "{flag}");
        assert!(finding["message"].as_str().unwrap().contains("_record_memory_history"), "{finding}");
    }
    assert_eq!(finding(&["--max-gap-ratio", "100%", NO_TRACE]).0, 0);
}

/// What a ring has lost, and what contradicts itself, may have been anything. What is left of it may be too much.
#[test]
fn a_recording_with_lost_entries_does_not_pass() {
    let directory = TempDir::new().unwrap();
    let wrapped = "fixtures/2.15.0-gpt_varlen-wrapped.pickle.gz";
    let one = recording(&directory, "one.json", 0, &[("free_completed", 0)]);
    // The block at 4096 was allocated with a stack, which is recorded, and no entry allocates it.
    let lost = recording(&directory, "lost.json", 1, &[("alloc", 0), ("free_requested", 0), ("free_completed", 0)]);
    let late = recording(&directory, "late.json", 0, &[("alloc", 0), ("free_requested", 0), ("free_completed", 0)]);
    let twice = recording(&directory, "twice.json", 0, &[("alloc", 0), ("alloc", 0)]);
    // As PyTorch would write a failed request, if it were spelled so.
    let unknown = recording(&directory, "unknown.json", 0, &[("alloc", 0), ("free_requested", 0), ("OOM", 0)]);
    let pages = ["replay", "analyze", "whatif"].map(|command| run(&["--full", command, &one]).out);
    let program = run(&["--full", "whatif", "--program", &one]).out;
    let program = program.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(program.contains("GPU 0: the trace has one entry"), "{program}");
    assert!(pages[0].contains("nothing to replay on GPU 0: its trace has one entry"), "{}", pages[0]);
    assert!(!pages[0].contains("1 of 1"), "{}", pages[0]);
    assert!(pages[1].contains(" at least 1 MiB allocated"), "{}", pages[1]);
    assert!(pages[2].contains("the trace has one entry"), "{}", pages[2]);
    for (file, missing) in [
        (wrapped, json!("history-lost")),
        (&one, json!("history-lost")),
        (&lost, json!("history-lost")),
        (&twice, json!("trace-inconsistent")),
        (&late, json!("truncated")),
        (&unknown, json!("unknown-action")),
    ] {
        for flag in ["--max-ooms", "--max-step-growth", "--max-peak-reserved", "--max-peak-allocated"] {
            let (code, fields) = finding(&[flag, "9000000000", file]);
            let passes = missing.is_null();
            assert_eq!((code, &fields["missing"]), (i32::from(!passes), &missing), "{flag} {fields}");
            assert_eq!(fields["actual"].is_null(), !passes, "{flag} {fields}");
            let word = flag.trim_start_matches("--max-");
            for allowed in [word, missing.as_str().unwrap_or(word)] {
                let (code, fields) = finding(&[flag, "9000000000", "--allow-missing", allowed, file]);
                // A late start that is accepted is taken as whole.
                let is_known = passes || allowed == "truncated";
                assert_eq!((code, fields["actual"].is_null()), (0, !is_known), "{allowed}");
            }
        }
    }
    for (file, missing) in [(wrapped, "history-lost"), (&late, "truncated")] {
        let (code, fields) = finding(&["--max-peak-reserved", "1B", file]);
        assert_eq!((code, &fields["missing"]), (1, &json!(missing)));
        assert!(fields["actual"].as_u64() > Some(1), "{fields}");
    }
    let refused = run(&["check", "--max-ooms", "0", "--allow-missing", "oms", OOM]);
    assert!(refused.code == 2 && refused.err.contains("ooms"), "{}", refused.err);
}

/// The last entries of a ring of any size look like a recording that started late.
#[test]
fn a_late_start_passes_only_where_the_file_shows_that_it_is_whole() {
    const MIB: u64 = 1 << 20;
    let directory = TempDir::new().unwrap();
    let device = |addr: u64, entries: usize| {
        let actions = ["alloc", "free_requested", "free_completed"].iter().cycle().take(entries);
        let trace: Vec<Value> = actions
            .map(|action| json!({"action": action, "addr": addr, "size": MIB, "stream": 0, "frames": []}))
            .collect();
        trace
    };
    let snapshot = |entries: [usize; 2], recorder: Value| {
        let segments = [0, 1].map(|device| {
            let addr = 0x7f00_0000_0000_u64 + (device << 40);
            made::segment(device, &[made::free(addr, 2 * MIB)])
        });
        let traces = [0, 1].map(|at: usize| device(0x7f00_0000_0000 + ((at as u64) << 40), entries[at]));
        json!({"segments": segments, "device_traces": traces, "oomscope": recorder}).to_string()
    };
    let missing = |entries, recorder| {
        let path = file(&directory, "late.json", snapshot(entries, recorder).as_bytes());
        let (_, report) = check(&["--max-ooms", "0", &path]);
        [0, 1].map(|device: usize| report["findings"][device]["missing"].as_str().map(str::to_owned))
    };
    let late = || Some("truncated".to_owned());
    for ring in [1233, 12_501] {
        assert_eq!(missing([ring, ring], Value::Null), [late(), late()], "{ring}");
        assert_eq!(missing([ring, ring], json!({"max_entries": ring + 1})), [None, None], "{ring}");
        // Both rings have the same size, and that of device 1 is not full.
        assert_eq!(missing([ring, ring - 3], Value::Null), [late(), None], "{ring}");
    }
    assert_eq!(missing([1233, 1233], json!({"max_entries": 1233})), [1, 1].map(|_| Some("history-lost".to_owned())));
}

/// A segment of two blocks, the second free, and a trace of so many entries, each of the block at the start or at an
/// offset; the first block has a stack of `frames` frames.
fn recording(directory: &TempDir, name: &str, frames: usize, trace: &[(&str, u64)]) -> String {
    const MIB: u64 = 1 << 20;
    let start = 0x7f00_0000_0000_u64;
    let entry = |(action, offset): &(&str, u64)| json!({"action": action, "addr": start + MIB + offset, "size": 512, "stream": 0, "frames": []});
    let frames = made::frames(&vec![("train.py", 1, "f"); frames]);
    let segment = made::segment(0, &[made::live(start, MIB, &frames), made::free(start + MIB, MIB)]);
    let snapshot = made::snapshot(&[segment], &[trace.iter().map(entry).collect()]);
    file(directory, name, snapshot.to_string().as_bytes())
}
