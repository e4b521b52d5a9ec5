//! `oomscope fit`

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;

use super::args::{Format, forms, parse_capacity, parse_release};
use super::exit::Done;
use super::inputs;
use super::output::Output;
use crate::output::page;
use crate::output::report;
use crate::study::{Scope, Study};
use crate::whatif::fit::{FitInput, FitOptions, Size, fit};

/// Predict the peak at other sizes, and the largest that fits, from recordings at two sizes or more
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope run --at exit -o b4 -- python train.py --batch 4        a recording, then another at 8
  oomscope fit 4=b4 8=b8                                           the largest batch that fits
  oomscope fit 4=b4.pickle 8=b8.pickle --capacity 80GiB            on another device
  oomscope fit 512=s512.pickle 1024=s1024.pickle --at 2048,4096    peaks at other lengths
  oomscope fit 4=b4.pickle 8=b8.pickle 16=b16.pickle               learned from two, checked by the third
  oomscope fit 4=b4 8=b8 --format html -o fit.html                 the curve of peaks, in a browser
  oomscope fit 2x512=a 4x512=b 2x1024=c 4x1024=d --at x2048        the largest batch at another length

Record the same program, unchanged but for its size, for two or three steps each, from before the model is built. A size \
is any whole number: a batch, a length, layers; or two, of four recordings or more: the first is searched, for each \
second that was recorded or that --at names. Each request of one recording is found in the others by its stack; how \
its bytes grow tells what it needs at another size; the allocator model replays that. What could not be paired is said.

Exit codes: 0 done, whether or not a size fits; 2 wrong usage, an unreadable file, or recordings of different programs.")]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
pub(super) struct Fit {
    /// Recordings, each with the size that the program was given: 8=snapshot.pickle, or a directory with one snapshot,
    /// as `run` writes; of two numbers 8x512=snapshot.pickle
    #[arg(value_name = "SIZE=SNAPSHOT", required = true, value_parser = parse_sized)]
    recordings: Vec<(Size, PathBuf)>,

    /// Sizes to predict, instead of those recorded, beside those around the largest that fits. x2048 is every size with
    /// this second number: the largest first is looked for
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = parse_asked)]
    at: Vec<Asked>,

    /// Device memory, e.g. 80GiB; default: what a failed request in a recording shows to be within reach
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    capacity: Option<u64>,

    /// Settings to replay under, as in PYTORCH_CUDA_ALLOC_CONF; default: as recorded, then a grid
    #[arg(long, value_name = "KEY:VALUE[,..]")]
    set: Option<String>,

    /// Look only for multiples of N, of the first number
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    multiple_of: u64,

    /// Only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Lines of code to list
    #[arg(long, value_name = "N", default_value = "10")]
    top: usize,

    /// PyTorch release that recorded the snapshots; default: inferred from the files
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    /// Output format
    #[arg(long, value_parser = forms(&[Format::Html]), default_value = "human")]
    format: Format,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A size and a file in `8=snapshot.pickle`.
fn parse_sized(text: &str) -> Result<(Size, PathBuf), String> {
    let Some((size, path)) = text.split_once('=') else {
        return Err(format!("give the size that the program had, such as 8={text}"));
    };
    match size.parse() {
        Ok(size) if !path.is_empty() => Ok((size, path.into())),
        _ => Err("a size is a whole number from 1 on, such as 8=snapshot.pickle, or two, such as \
                  8x512=snapshot.pickle"
            .to_owned()),
    }
}

/// What `--at` names: a size, or every size with a second number.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Size(Size),
    Second(u64),
}

fn parse_asked(text: &str) -> Result<Asked, String> {
    match text.strip_prefix(['x', 'X']) {
        Some(second) => match second.parse() {
            Ok(second @ 1..) => Ok(Asked::Second(second)),
            _ => Err("give the second number after the x, as in x2048".to_owned()),
        },
        None => text.parse().map(Asked::Size),
    }
}

/// Reads, learns and writes.
pub(super) fn run(args: &Fit) -> anyhow::Result<Done> {
    let output_path = args.output.as_deref();
    let recordings =
        args.recordings.iter().map(|(size, path)| Ok((*size, inputs::only_one(path)?)));
    let recordings: Vec<(Size, PathBuf)> = recordings.collect::<anyhow::Result<_>>()?;
    for (_, path) in &recordings {
        output_path.map_or(Ok(()), |output| inputs::spare_one(path, output))?;
    }
    for (index, (size, path)) in recordings.iter().enumerate() {
        let is_same =
            |other: &&(Size, PathBuf)| other.0 != *size && inputs::are_one(&other.1, path);
        if let Some((other, _)) = recordings[..index].iter().find(is_same) {
            bail!("{}: is given for size {other} and for {size}: record each size", path.display());
        }
    }
    let output = Output::open(output_path)?;
    let read = |(size, path): &(Size, PathBuf)| {
        Ok((*size, path.display().to_string(), inputs::read_one(path)?))
    };
    let read: Vec<_> = recordings.iter().map(read).collect::<anyhow::Result<_>>()?;
    let scope = Scope { device: args.device, minor: args.torch_version, ..Scope::default() };
    let studies: Vec<Study<'_>> =
        read.iter().map(|(.., snapshot)| Study::new(snapshot, scope)).collect();
    for ((_, path, _), study) in read.iter().zip(&studies) {
        inputs::first_traced(study, path)?;
    }
    let sized = read.iter().zip(&studies);
    let sized: Vec<FitInput<'_, '_>> =
        sized.map(|((size, path, _), study)| FitInput { size: *size, path, study }).collect();
    if args.at.len() > MOST_SIZES {
        bail!("--at takes at most {MOST_SIZES} sizes");
    }
    let at = args.at.iter().filter_map(|asked| match asked {
        Asked::Size(size) => Some(*size),
        Asked::Second(_) => None,
    });
    let at_second = args.at.iter().filter_map(|asked| match asked {
        Asked::Second(second) => Some(*second),
        Asked::Size(_) => None,
    });
    let options = FitOptions {
        device: args.device,
        at: &at.collect::<Vec<_>>(),
        at_second: &at_second.collect::<Vec<_>>(),
        capacity: args.capacity,
        settings: args.set.as_deref(),
        multiple: args.multiple_of,
        top: args.top,
        curve: if args.format == Format::Html { CURVE } else { 0 },
    };
    let report = fit(&sized, &options).map_err(|error| anyhow!(error))?;
    match args.format {
        Format::Html => {
            output.write_by(|out| page::write_fit(&report, env!("CARGO_PKG_VERSION"), out))?;
        }
        format => output.write_answer(format, &report, report::fit)?,
    }
    Ok(Done::Well)
}

/// Each is a replay.
const MOST_SIZES: usize = 256;
/// Sizes of a curve.
const CURVE: u64 = 32;
