//! Reads a snapshot and does nothing with it, to time the reader alone as a whole process:
//! `cargo run --release --example read -- SNAPSHOT`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;

use oomscope::base::input::Source;
use oomscope::snapshot::Snapshot;

fn main() -> Result<(), Box<dyn Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("read SNAPSHOT")?);
    let source = Source::open(&path)?;
    let snapshot = Snapshot::read(&source, &|_| ())?;
    println!("{} events, {} segments", snapshot.entries.len(), snapshot.segments.len());
    Ok(())
}
