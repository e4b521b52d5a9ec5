#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code)] // each target needs one
mod bodies;
#[path = "../../support/peak_heap.rs"]
#[allow(dead_code)]
mod peak_heap;

#[global_allocator]
static ALLOCATOR: peak_heap::Counting = peak_heap::Counting;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (_, heap) = peak_heap::peak_of(|| bodies::snapshot(bytes));
    bodies::assert_in_proportion(bytes.len(), heap);
});
