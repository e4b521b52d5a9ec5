//! Prints every block that the program held after some entries of device 0's trace, with what it was for:
//! `held_blocks FILE ENTRY..`. `tests/oracle/score_categories.py` holds that against what the program knew.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;

use oomscope::base::input::Source;
use oomscope::snapshot::Snapshot;
use oomscope::study::attribution::categorized_blocks;
use oomscope::study::{Scope, Study};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().ok_or("held_blocks FILE ENTRY..")?);
    let snapshot = Snapshot::read(&Source::open(&path)?, &|_| ())?;
    let study = Study::new(&snapshot, Scope::default());
    let device = study.device(0).ok_or("no device 0")?;
    for entry in args {
        for (block, (category, confidence)) in categorized_blocks(device, entry.parse()?) {
            println!("{entry} {} {} {category} {confidence}", block.address, block.bytes);
        }
    }
    Ok(())
}
