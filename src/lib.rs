//! oomscope reads PyTorch CUDA memory snapshots and says where the memory is and why a request failed.
//!
//! Its modules are rooms on floors; a room uses only rooms on lower floors (`tests/suite/layers.rs` checks it):
//!
//! 0. [`base`]: amounts, ids, interning, reading files, warnings
//! 1. [`allocator`]: PyTorch's caching allocator as a pure machine
//! 2. [`snapshot`]: the contents of a snapshot file, in columns
//! 3. [`python`]: which statement keeps a value; [`stacks`]: what a stack means; [`replay`]: a device's trace replayed
//! 4. [`study`]: one snapshot, with the facts that several questions need computed once
//! 5. [`whatif`]: the recording replayed under other settings, as another program, or at another size
//! 6. [`analysis`]: the report of one snapshot, and why its requests failed
//! 7. [`compare`]: snapshots compared, with each other or with limits; [`explain`]: the meaning of a message in a log
//! 8. [`output`]: answers rendered for people and programs
//! 9. [`viewer`]: the analyzer as a module of WebAssembly, for a page in a browser; [`explore`]: a recording in a terminal
//! 10. [`cli`]: the command line
//!
//! The library never prints, exits or reads the environment, except `cli`, which does nothing else.
//!
//! # As a library
//!
//! Without its default feature `cli` the crate has no command line and none of the crates that one needs. The public
//! modules are below, each with an example. The others are hidden: they are public for the tests of this repository and
//! change without notice.
//!
//! ## `allocator`
//!
//! Serve requests as PyTorch would:
//!
//! ```
//! use oomscope::allocator::conf::Settings;
//! use oomscope::allocator::device::SimulatedDevice;
//! use oomscope::allocator::{Behaviour, CachingAllocator, Request};
//!
//! let release = 15; // PyTorch 2.15
//! let settings = Settings::defaults_for_release(release);
//! let mut allocator = CachingAllocator::new(Behaviour::for_release(release), settings, None);
//! let mut device = SimulatedDevice::new(0, 1 << 30);
//! let block = allocator.malloc(&Request::in_default_pool(300 << 20, 0), &mut device);
//! assert!(block.is_some());
//! let too_large = allocator.malloc(&Request::in_default_pool(800 << 20, 0), &mut device);
//! assert!(too_large.is_none());
//! ```
//!
//! ## `analysis`
//!
//! Analyze a snapshot:
//!
//! ```
//! use oomscope::analysis::{Options, analyze};
//! use oomscope::snapshot::{Snapshot, Source};
//!
//! let path = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
//! let bytes = Source::open(path.as_ref())?;
//! let snapshot = Snapshot::read(&bytes, &|_| ())?;
//! let report = analyze(&snapshot, path, bytes.len() as u64, Options { top: 5, ..Options::default() });
//! let failure = &report.devices[0].ooms[0];
//! println!("{}: {}", failure.verdict, failure.verdict_reason);
//! assert!(failure.requested_bytes > failure.largest_free_block_bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## `compare`
//!
//! Compare two snapshots:
//!
//! ```
//! use oomscope::compare::diff::{DiffOptions, File, diff};
//! use oomscope::snapshot::{Snapshot, Source};
//!
//! let [base, later] = ["fixtures/diff/base.pickle.gz", "fixtures/diff/later.pickle.gz"];
//! let before = Snapshot::read(&Source::open(base.as_ref())?, &|_| ())?;
//! let after = Snapshot::read(&Source::open(later.as_ref())?, &|_| ())?;
//! let before = File { path: base, snapshot: &before };
//! let after = File { path: later, snapshot: &after };
//! let report = diff(before, after, DiffOptions::default());
//! println!("{}", report.summary().answer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## `explain`
//!
//! Explain an out-of-memory message in a log:
//!
//! ```
//! use oomscope::explain::{explain, message};
//!
//! let text = std::fs::read("fixtures/logs/2.15.0-fragmentation.log")?;
//! let log = message::read(&text[..])?;
//! let report = explain(&log, "job.log").expect("a message about memory");
//! assert_eq!(report.failures.len(), 1);
//! println!("{}", report.summary().answer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## `output`
//!
//! Render a report as Markdown or JSON:
//!
//! ```
//! use oomscope::analysis::{AnalyzeReport, Options, analyze};
//! use oomscope::output::{document, formats, report};
//! use oomscope::snapshot::{Snapshot, Source};
//!
//! let path = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
//! let bytes = Source::open(path.as_ref())?;
//! let snapshot = Snapshot::read(&bytes, &|_| ())?;
//! let snapshot = analyze(&snapshot, path, bytes.len() as u64, Options { top: 5, ..Options::default() });
//! let answer = AnalyzeReport::new(vec![snapshot], Vec::new(), 5);
//! let markdown = document::markdown(&report::analyze(&answer));
//! assert!(markdown.contains("**out of memory** on GPU 0"));
//! let json = formats::json(&answer)?;
//! assert!(json.contains("oomscope/analyze/1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## `snapshot`
//!
//! Read a snapshot: a pickle or JSON, plain or compressed.
//!
//! ```
//! use oomscope::snapshot::{Snapshot, Source};
//!
//! let bytes = Source::open("fixtures/2.15.0-two_devices.pickle.gz".as_ref())?;
//! let snapshot = Snapshot::read(&bytes, &|_| ())?;
//! for device in snapshot.devices() {
//!     let allocated = device.blocks().count();
//!     println!("device {}: {} trace entries, {allocated} blocks", device.id(), device.len());
//! }
//! assert_eq!(snapshot.devices().count(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## `study`
//!
//! Ask a snapshot several questions, each fact computed once:
//!
//! ```
//! use oomscope::snapshot::{Snapshot, Source};
//! use oomscope::study::{Scope, Study};
//!
//! let bytes = Source::open("fixtures/2.15.0-two_devices.pickle.gz".as_ref())?;
//! let snapshot = Snapshot::read(&bytes, &|_| ())?;
//! let study = Study::new(&snapshot, Scope::default());
//! for device in study.devices() {
//!     let peak = device.peak();
//!     assert!(peak.allocated_bytes <= peak.reserved_bytes);
//!     assert!(device.inferred().verification.is_exact());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## `whatif`
//!
//! Replay a recording under another setting:
//!
//! ```
//! use oomscope::snapshot::{Snapshot, Source};
//! use oomscope::study::{Scope, Study};
//! use oomscope::whatif::{WhatIfOptions, compare_settings};
//!
//! let path = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
//! let snapshot = Snapshot::read(&Source::open(path.as_ref())?, &|_| ())?;
//! let study = Study::new(&snapshot, Scope::default());
//! let settings = ["expandable_segments:True".to_owned()];
//! let options = WhatIfOptions { options: &settings, ..WhatIfOptions::default() };
//! let report = compare_settings(&study, path, options, &|_, _| ())?;
//! let [recorded, expandable] = &report.rows[..] else { panic!("a row as recorded, and one more") };
//! assert_eq!((recorded.ooms, expandable.ooms), (1, 0));
//! assert!(expandable.smallest_capacity_bytes < recorded.smallest_capacity_bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

/// The example of `docs/library.md`, which is tested as part of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
pub struct LibraryPage;

pub mod analysis;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod compare;
pub mod explain;
#[cfg(feature = "explore")]
#[doc(hidden)]
pub mod explore;
pub mod output;
#[doc(hidden)]
pub mod viewer;
pub mod whatif;
#[doc(inline)]
pub use oomscope_engine::{allocator, snapshot, study};
#[doc(hidden)]
pub use oomscope_engine::{base, python, replay, stacks};
