#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code)] // each target needs one
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bodies::config(bytes);
});
