//! oomscope reads PyTorch CUDA memory snapshots and says where the memory is and why a request failed.
//!
//! Floors, lowest first; a room uses only rooms below its own floor (`tests/suite/layers.rs` checks it):
//!
//! 0. [`units`], [`ids`], [`intern`], [`input`], [`pickle`], [`conf`], [`terms`], [`device`], [`notice`], [`releases`],
//!    [`systems`], [`summary`]: bytes, numbers, settings, words, where memory comes from, codes of warnings, what each
//!    release changed, what other systems print when memory runs out, the lines that every answer begins with
//! 1. [`snapshot`]: what a file says; [`message`]: what a log says; [`allocator`]: PyTorch's rules; [`figures`]: what
//!    is measured; [`verdict`]: why a request failed
//! 2. [`facts`]: the trace applied literally; [`calls`]: its entries as the calls of the program; [`model`]: these
//!    calls made to the allocator; [`frames`]: whose code a stack is of; [`counterparts`]: which stack of
//!    one snapshot is which of another; [`phases`]: what the program was doing at each entry
//! 3. [`memory`]: what one moment's memory amounts to; [`study`]: what questions share, worked out once; [`explain`]:
//!    what a message in a log means
//! 4. [`held`]: where the memory was; [`timeline`]: the memory over time; [`whatif`]: the recording replayed;
//!    [`program`]: the program changed, and replayed; [`failure`]: why requests failed; [`analysis`]: the report of one snapshot
//! 5. [`gate`], [`diff`]: answers held against limits and against each other; [`fit`]: what recordings of several sizes
//!    say of others
//! 6. [`document`]: blocks, and how they are shown; [`report`]: answers laid out in blocks; [`formats`]: answers in the
//!    forms that programs read; [`page`]: an answer with its data as a page to look at
//! 7. [`cli`]: what was typed and what it means
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
//! use oomscope::input::Source;
//! use oomscope::snapshot::Snapshot;
//! use oomscope::study::{Scope, Study};
//! use oomscope::whatif::{Asked, whatif};
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
//! let asked = Asked { options: &settings, ..Asked::default() };
//! let tried = whatif(&study, path, asked, &|_, _| ())?;
//! let [recorded, expandable] = &tried.rows[..] else { panic!("a row as recorded, and one more") };
//! assert_eq!((recorded.ooms, expandable.ooms), (1, 0));
//! assert!(expandable.smallest_capacity_bytes < recorded.smallest_capacity_bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod allocator;
pub mod analysis;
pub mod calls;
#[cfg(feature = "cli")]
pub mod cli;
pub mod conf;
pub mod counterparts;
pub mod device;
pub mod diff;
pub mod document;
pub mod explain;
pub mod facts;
pub mod failure;
pub mod figures;
pub mod fit;
pub mod formats;
pub mod frames;
pub mod gate;
pub mod held;
pub mod ids;
pub mod input;
pub mod intern;
pub mod memory;
pub mod message;
pub mod model;
pub mod notice;
pub mod page;
pub mod phases;
pub mod pickle;
pub mod program;
pub mod releases;
pub mod report;
pub mod snapshot;
pub mod study;
pub mod summary;
pub mod systems;
pub mod terms;
pub mod timeline;
pub mod units;
pub mod verdict;
pub mod whatif;
