//! oomscope reads PyTorch CUDA memory snapshots and says where the memory is and why a request failed.
//!
//! Floors, lowest first; a room uses only rooms below its own floor (`tests/layers.rs` checks it):
//!
//! 0. [`units`], [`ids`], [`intern`], [`input`], [`pickle`], [`conf`], [`terms`], [`device`], [`message`], [`notice`]:
//!    bytes, numbers, settings, words, where memory comes from, what PyTorch prints about it, codes of warnings
//! 1. [`snapshot`]: what a file says; [`allocator`]: PyTorch's rules; [`figures`]: what is measured; [`verdict`]:
//!    why a request failed
//! 2. [`facts`]: the trace applied literally; [`calls`]: its entries as the calls of the program; [`model`]: these
//!    calls made to the allocator; [`frames`]: whose code a stack is of; [`phases`]: what the program was doing at
//!    each entry
//! 3. [`memory`]: what one moment's memory amounts to; [`study`]: what questions share, worked out once; [`explain`]:
//!    what a message in a log means
//! 4. [`held`]: where the memory was; [`timeline`]: the memory over time; [`whatif`]: the recording replayed;
//!    [`failure`]: why requests failed; [`analysis`]: the report of one snapshot
//! 5. [`gate`], [`diff`]: answers held against limits and against each other
//! 6. [`document`]: blocks, and how they are shown; [`report`]: answers laid out in blocks
//! 7. [`cli`]: what was typed and what it means
//!
//! The library never prints, exits or reads the environment, save `cli`, which does nothing else.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod allocator;
pub mod analysis;
pub mod calls;
pub mod cli;
pub mod conf;
pub mod device;
pub mod diff;
pub mod document;
pub mod explain;
pub mod facts;
pub mod failure;
pub mod figures;
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
pub mod phases;
pub mod pickle;
pub mod report;
pub mod snapshot;
pub mod study;
pub mod terms;
pub mod timeline;
pub mod units;
pub mod verdict;
pub mod whatif;
