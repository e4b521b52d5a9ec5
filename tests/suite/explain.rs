//! `oomscope explain`: what PyTorch printed is found wherever it stands, and no more is concluded than the
//! numbers allow.

use crate::support::program::analyze;
use crate::support::recorded;

use oomscope::explain::message;
use oomscope::explain::{ExplainReport, ExplainedFailure, explain};

pub(super) fn report(text: &[u8]) -> Option<ExplainReport> {
    explain(&message::read(text).unwrap(), "log")
}

fn only(text: &str) -> ExplainedFailure {
    let failures = report(text.as_bytes()).unwrap().failures;
    let [failure] = &failures[..] else { panic!("{text}: {failures:?}") };
    failure.clone()
}

/// A message of today's wording. Sizes as printed.
pub(super) fn worded(requested: &str, total: &str, free: &str, middle: &str, held: &str, left: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total \
         capacity of {total} of which {free} is free. {middle}Of the allocated memory {held} is allocated by \
         PyTorch, and {left} is reserved by PyTorch but unallocated. If reserved but unallocated memory is \
         large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See \
         documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html)"
    )
}

/// The message of a recorded failure comes to what its snapshot comes to, and its numbers are those of the
/// allocator's statistics at that moment.
#[test]
fn messages_of_every_release_agree_with_their_snapshots() {
    let mut releases = 0;
    for recording in recorded::all() {
        let Some(error) = &recording.error else { continue };
        let found = only(error);
        let minor: u32 = recording.name.split('.').nth(1).unwrap().parse().unwrap();
        let version = found.torch_version.as_ref().unwrap();
        let (first, last) = version.split_once('-').unwrap_or((version, version));
        let bound = |text: &str| text.trim_start_matches("2.").trim_end_matches('+').parse::<u32>();
        assert!(bound(first).unwrap() <= minor, "{}: {version}", recording.name);
        assert!(version.ends_with('+') || minor <= bound(last).unwrap(), "{}", recording.name);
        if minor == 3 {
            // The text ends where the number of device 0 should stand.
            assert_eq!((found.verdict.word(), found.device, version.as_str()), ("unknown", Some(0), "2.3"));
            continue;
        }
        releases += 1;
        let snapshot = analyze(&[&format!("fixtures/{}.pickle.gz", recording.name)]);
        let ooms = snapshot["snapshots"][0]["devices"][0]["ooms"].as_array().unwrap();
        let last = ooms.last().unwrap();
        // A message shows nothing of the requests that follow: with these, pieces of memory were not the cause.
        let is_dead_end = last["verdict_reason"].as_str().unwrap().contains("those after it need");
        let verdict = if is_dead_end { "fragmentation".into() } else { last["verdict"].clone() };
        assert_eq!(found.verdict.word(), verdict, "{}", recording.name);
        for (name, key) in [
            ("requested", "segment_bytes"),
            ("free", "device_free_bytes"),
            ("reserved", "reserved_bytes"),
            ("allocated", "allocated_bytes"),
        ] {
            let figure = found.figures.iter().find(|f| f.name == name).unwrap();
            let exact = last[key].as_u64().unwrap();
            let off = figure.bytes.abs_diff(exact);
            assert!(off <= figure.error_bytes, "{} {name}: {exact} {figure:?}", recording.name);
        }
    }
    assert!(releases >= 15, "{releases}");
}

#[test]
fn a_lack_of_host_memory_needs_no_snapshot() {
    assert_eq!(report(b"DefaultCPUAllocator: not enough memory").unwrap().next_command, None);
}
