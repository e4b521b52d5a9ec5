//! `oomscope whatif`

use anyhow::{anyhow, bail};

use super::args::{PlainFormat, Whatif};
use super::exit::Done;
use super::inputs;
use super::output::Output;
use crate::analysis::{inferred, whatif};
use crate::replay::Known;
use crate::report;

/// Reads, replays and writes.
pub(super) fn run(args: &Whatif) -> anyhow::Result<Done> {
    let path = args.model.snapshot.display().to_string();
    if let Some(written) = &args.model.output.output {
        inputs::spare_one(&args.model.snapshot, written)?;
    }
    let output = Output::open(args.model.output.output.as_deref())?;
    let snapshot = inputs::read_one(&args.model.snapshot)?;
    let known = Known { minor: args.torch_version, capacity: None };
    let inference = inferred(&snapshot, args.model.device, known);
    if inference.devices.iter().all(|one| one.verification.recorded == 0) {
        let of =
            args.model.device.map_or_else(String::new, |device| format!(" of device {device}"));
        bail!("{path}: no trace{of} to replay");
    }
    let report = whatif(&snapshot, &path, &inference, &args.set, args.model.capacity)
        .map_err(|error| anyhow!("--set {error}"))?;
    let text = match args.model.output.format {
        PlainFormat::Human => report::whatif_page(&report, output.style()),
        PlainFormat::Json => report::json(&report)?,
    };
    output.write(&text)?;
    Ok(Done::Well)
}
