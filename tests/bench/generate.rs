//! Writes a large snapshot to try the analyzer on:
//! `cargo run --release --example generate -- OUT [--seed N] [--size 300MB] [--depth 40]
//! [--distinct-stacks 2000|all] [--batch 8] [--devices 1]`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[path = "../support/generator/mod.rs"]
mod generator;

use generator::{Options, write_snapshot};

const USAGE: &str =
    "generate OUT [--seed N] [--size 300MB] [--depth 40] [--distinct-stacks 2000|all] [--batch 8] [--devices 1]";
/// In decimal, as file sizes mostly are; the first unit that matches counts, so `B` comes last.
const UNITS: [(&str, u64); 4] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000), ("B", 1)];

fn main() -> Result<(), Box<dyn Error>> {
    let (path, options) = parse(std::env::args().skip(1))?;
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let summary = write_snapshot(&mut BufWriter::new(file), &options)?;
    println!(
        "{}: {} bytes, {} events, {} different stacks, {} frames",
        path.display(),
        summary.bytes,
        summary.events,
        summary.stacks,
        summary.frames
    );
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(PathBuf, Options), Box<dyn Error>> {
    let mut path = None;
    let mut options = Options { target_bytes: 300_000_000, ..Options::default() };
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") {
            path = Some(PathBuf::from(argument));
            continue;
        }
        let value = arguments.next().ok_or(USAGE)?;
        match argument.as_str() {
            "--seed" => options.seed = value.parse()?,
            "--size" => options.target_bytes = parse_size(&value)?,
            "--depth" => options.depth = value.parse()?,
            "--distinct-stacks" if value == "all" => options.distinct_stacks = None,
            "--distinct-stacks" => options.distinct_stacks = Some(value.parse()?),
            "--batch" => options.batch = value.parse()?,
            "--devices" => options.devices = value.parse::<NonZeroUsize>()?.get(),
            _ => return Err(USAGE.into()),
        }
    }
    Ok((path.ok_or(USAGE)?, options))
}

fn parse_size(text: &str) -> Result<u64, Box<dyn Error>> {
    for (unit, bytes) in UNITS {
        if let Some(number) = text.strip_suffix(unit) {
            return Ok(number.parse::<u64>()? * bytes);
        }
    }
    Ok(text.parse()?)
}
