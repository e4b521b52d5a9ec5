//! The tests of what the project promises, one file a promise, in one program: linked once, and run side by
//! side. `Slow:` in the description of a file says why it takes more than a second of processor time.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::pedantic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    unsafe_code
)]

#[path = "../support/mod.rs"]
mod support;

#[cfg(unix)]
mod action;
mod agreement;
mod analyze_at;
mod answers;
mod category_truth;
mod check;
mod check_ci;
#[cfg(unix)]
mod check_command;
mod check_comparable;
mod check_formats;
mod check_recordings;
mod circles;
mod cli;
mod cli_replay;
mod cli_selecting;
mod cli_start;
mod commands_mutations;
mod conf_vs_torch;
mod confirm;
mod cures;
mod diff;
mod diff_properties;
mod docs;
mod dry_run;
mod dry_run_estimates;
#[cfg(unix)]
mod dry_run_processes;
mod dry_run_remedies;
mod dry_run_stub;
mod edges;
mod emit;
mod engines;
mod explain;
mod explain_command;
mod explain_messages;
#[cfg(feature = "explore")]
mod explore;
#[cfg(all(unix, feature = "explore"))]
mod explore_terminal;
mod export;
mod failures;
mod fit;
mod fit_command;
mod fleet;
mod forecasts;
mod fuzz_targets;
mod generator;
mod golden;
mod gpu_recordings;
mod keepers;
mod language;
mod layers;
mod layout;
#[cfg(debug_assertions)]
mod linear;
mod linear_allocator;
mod lines;
mod no_failure;
mod outcomes;
mod packaging;
mod page;
mod page_colours;
mod pages;
mod phases;
mod pickle_writer;
mod plain_text;
mod plan;
mod program;
mod proportion;
mod python_package;
mod ranks;
mod reader_bad_input;
mod reader_compressed;
mod reader_formats;
mod reader_hostile_input;
mod reader_refuses_code;
mod reader_releases;
mod reader_sharing;
mod reader_vs_cpython;
mod readme;
mod recorded;
mod releases;
mod replay_bad_traces;
mod replay_damaged;
mod replay_exact;
mod replay_properties;
mod replay_what_if;
mod report_page;
mod report_page_answers;
mod report_page_entries;
mod report_page_keys;
mod report_page_layout;
mod report_page_search;
mod request;
mod run;
#[cfg(unix)]
mod schedulers;
mod schema_types;
mod schemas;
mod serving;
mod skill;
mod source_lines;
mod statistics;
mod summary;
mod timeline;
mod timeline_command;
mod variables;
#[cfg(unix)]
mod viewer;
mod whatif;
mod where_memory_was;
mod words;
mod writers;

/// Counts the heap that each thread takes.
#[global_allocator]
static ALLOCATOR: support::peak_heap::Counting = support::peak_heap::Counting;
