//! Any bytes are a pickle or an error with a place: no panic, no endless expansion.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oomscope::pickle::tree::Tree;

fuzz_target!(|bytes: &[u8]| {
    match Tree::read(bytes) {
        Ok(tree) => drop(tree.to_json(1 << 16)),
        Err(error) => {
            assert!(error.offset <= bytes.len() as u64);
            let message = error.to_string();
            assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
        }
    }
});
