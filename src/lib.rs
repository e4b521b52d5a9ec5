//! oomscope reads PyTorch CUDA memory snapshots and says where the memory is and why a request failed.
//!
//! Twelve rooms on ten floors; a room uses only rooms on lower floors (`tests/suite/layers.rs` checks it):
//!
//! 0. [`base`]: amounts, ids, interning, reading files, warnings
//! 1. [`allocator`]: PyTorch's caching allocator as a pure machine
//! 2. [`snapshot`]: the contents of a snapshot file, in columns
//! 3. [`stacks`]: what a stack means; [`replay`]: a device's trace replayed
//! 4. [`study`]: one snapshot, with everything that several questions need worked out once
//! 5. [`whatif`]: the recording replayed under other settings, as another program, or at another size
//! 6. [`analysis`]: the report of one snapshot, and why its requests failed
//! 7. [`compare`]: snapshots compared, with each other or with limits; [`explain`]: what a message in a log means
//! 8. [`output`]: answers rendered for people and programs
//! 9. [`cli`]: the command line
//!
//! The library never prints, exits or reads the environment, save `cli`, which does nothing else.
//!
//! # As a library
//!
//! Without its default feature `cli` the crate has no command line, nor the crates that one needs. Reading, analysis
//! and replay serve any other program; each answer is a struct with what its JSON holds.
//!
//! ```
//! use std::path::Path;
//!
//! use oomscope::analysis::{Options, analyze_study};
//! use oomscope::base::input::Source;
//! use oomscope::snapshot::Snapshot;
//! use oomscope::study::{Scope, Study};
//! use oomscope::whatif::{WhatIfOptions, compare_settings};
//!
//! // Read it: a pickle or JSON, plain or compressed.
//! let path = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
//! let bytes = Source::open(Path::new(path))?;
//! let snapshot = Snapshot::read(&bytes, &|_| ())?;
//! // What several questions need is worked out once.
//! let study = Study::new(&snapshot, Scope::default());
//!
//! // Analyze it: what failed, and why?
//! let options = Options { top: 5, ..Options::default() };
//! let report = analyze_study(&study, path, bytes.len() as u64, options);
//! let failure = &report.devices[0].ooms[0];
//! println!("{}: {}", failure.verdict, failure.verdict_reason);
//! assert!(failure.requested_bytes > failure.largest_free_block_bytes);
//!
//! // Replay it under another setting: would the request succeed, and how much memory does the program need?
//! let settings = ["expandable_segments:True".to_owned()];
//! let options = WhatIfOptions { options: &settings, ..WhatIfOptions::default() };
//! let tried = compare_settings(&study, path, options, &|_, _| ())?;
//! let [recorded, expandable] = &tried.rows[..] else { panic!("a row as recorded, and one more") };
//! assert_eq!((recorded.ooms, expandable.ooms), (1, 0));
//! assert!(expandable.smallest_capacity_bytes < recorded.smallest_capacity_bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod allocator;
pub mod analysis;
pub mod base;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod explain;
pub mod output;
pub mod replay;
pub mod snapshot;
pub mod stacks;
pub mod study;
pub mod whatif;
