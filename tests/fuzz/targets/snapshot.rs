//! Any bytes are a snapshot or one clean sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oomscope::snapshot::Snapshot;

fuzz_target!(|bytes: &[u8]| {
    match Snapshot::read(bytes, &|_| ()) {
        Ok(snapshot) => {
            // Every row that is named exists.
            for (segment, rows) in snapshot.segments.iter().map(|s| (s, s.blocks.clone())) {
                assert!(snapshot.blocks.get(rows).is_some());
                assert!(snapshot.stacks.frames(segment.stack).len() < bytes.len());
            }
            for row in snapshot.traces.iter().cloned().flatten() {
                assert!(snapshot.entries.get(row).is_some());
            }
            for warning in snapshot.warnings.to_vec() {
                assert!(!warning.message.chars().any(char::is_control), "{:?}", warning.message);
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
        }
    }
});
