//! `oomscope live`: against a stub driver (`tests/live/libcuda.c`, built here with cc), and against a real
//! GPU where there is one.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::pedantic, clippy::unwrap_used)]

#[path = "support/json_schema.rs"]
mod json_schema;
#[path = "support/program.rs"]
mod program;
#[path = "support/schema.rs"]
mod schema;

/// Without the feature the message says what is missing.
#[cfg(not(feature = "cuda"))]
#[test]
fn a_build_without_the_feature_refuses() {
    for args in [&["live"][..], &["live", "--gpu", "1", "--touch", "snapshot.pickle"]] {
        let said = program::refusal(args);
        assert!(said.contains("this build has no GPU support"), "{said}");
        assert!(said.contains("--features cuda"), "{said}");
    }
}

#[cfg(feature = "cuda")]
#[path = "live/driver.rs"]
mod driver;
#[cfg(feature = "cuda")]
#[path = "live/failures.rs"]
mod failures;
#[cfg(feature = "cuda")]
#[path = "support/fixtures.rs"]
mod fixtures;
#[cfg(feature = "cuda")]
#[path = "live/gpu_script.rs"]
mod gpu_script;
#[cfg(feature = "cuda")]
#[path = "support/late.rs"]
mod late;
#[cfg(feature = "cuda")]
#[path = "live/on_a_gpu.rs"]
mod on_a_gpu;
#[cfg(feature = "cuda")]
#[path = "support/pickle_tree.rs"]
mod pickle_tree;
#[cfg(feature = "cuda")]
#[path = "support/plain_json.rs"]
mod plain_json;
#[cfg(feature = "cuda")]
#[path = "live/replays.rs"]
mod replays;
