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
        for path in wanted.iter().filter_map(|(_, path)| *path) {
            inputs::refuse_output_over_inputs(inputs, path)?;
            for protected in others.into_iter().flatten().filter(|path| path.is_file()) {
                inputs::refuse_output_over_input(protected, path)?;
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
    let text = match format {
        CheckFormat::Github => formats::github(report),
        CheckFormat::Junit => formats::junit(report),
        CheckFormat::Sarif => formats::json(&formats::sarif(report, env!("CARGO_PKG_VERSION")))?,
        CheckFormat::Human => return output.write_answer(Format::Human, report, report::check),
        CheckFormat::Json => return output.write_answer(Format::Json, report, report::check),
        CheckFormat::Jsonl => return output.write_answer(Format::Jsonl, report, report::check),
        CheckFormat::Markdown => return output.write_answer(Format::Markdown, report, report::check),
    };
    output.write(&text)
}
