//! The destinations of the result: `--format` with `--output`, and each `--also`.

use std::path::Path;

use super::args::{Check, CheckFormat};
use crate::cli::args::Format;
use crate::cli::inputs::{self, Input};
use crate::cli::output::Output;
use crate::compare::gate::CheckReport;
use crate::output::{formats, report};

pub(super) struct Outputs(Vec<(CheckFormat, Output)>);

impl Outputs {
    /// Opens all files, so that a bad path fails before the work starts. Fails if one of them is among `inputs`
    /// or `others`.
    pub(super) fn open(args: &Check, others: [Option<&Path>; 2], inputs: &mut Vec<Input>) -> anyhow::Result<Self> {
        let main = (args.format, args.output.as_deref());
        let also = args.also.iter().map(|(format, path)| (*format, Some(path.as_path())));
        let wanted: Vec<(CheckFormat, Option<&Path>)> = std::iter::once(main).chain(also).collect();
        for (_, path) in &wanted {
            inputs::refuse_output_over_inputs(inputs, *path)?;
            for protected in others.into_iter().flatten().filter(|path| path.is_file()) {
                inputs::refuse_output_over_input(protected, *path)?;
            }
        }
        let open = |(format, path)| Ok((format, Output::open(path)?.with_view(args.view)));
        wanted.into_iter().map(open).collect::<anyhow::Result<_>>().map(Self)
    }

    pub(super) fn write(self, report: &CheckReport) -> anyhow::Result<()> {
        self.0.into_iter().try_for_each(|(format, output)| write(report, format, output))
    }
}

fn write(report: &CheckReport, format: CheckFormat, output: Output) -> anyhow::Result<()> {
    let format = match format {
        CheckFormat::Github => return output.write(&formats::github(report)),
        CheckFormat::Junit => return output.write(&formats::junit(report)),
        CheckFormat::Sarif => return output.write(&formats::json(&formats::sarif(report, env!("CARGO_PKG_VERSION")))?),
        CheckFormat::Human => Format::Human,
        CheckFormat::Json => Format::Json,
        CheckFormat::Jsonl => Format::Jsonl,
        CheckFormat::Markdown => Format::Markdown,
    };
    output.write_answer(format, report, report::check)
}
