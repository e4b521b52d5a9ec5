//! The limits as flags.

use clap::Args;

use crate::gate::{Amount, Limits, Threshold};

/// Reads a limit as [`Threshold::read`] does.
fn read(
    threshold: Threshold,
) -> impl Fn(&str) -> Result<Amount, String> + Clone + Send + Sync + 'static {
    move |text| threshold.read(text)
}

/// A flag for every [`Threshold`]; each wins over the file's limit that fails.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits (a RATIO is 0.3 or 30%)")]
#[expect(clippy::struct_field_names, clippy::doc_markdown, reason = "as typed and shown")]
pub(super) struct LimitArgs {
    /// Reserved memory that the program does not hold, at the snapshot
    #[arg(long, value_name = "RATIO", value_parser = read(Threshold::GapRatio), allow_hyphen_values = true)]
    max_gap_ratio: Option<Amount>,

    /// Reserved memory that is free in segments that are partly in use
    #[arg(long, value_name = "RATIO", value_parser = read(Threshold::InactiveSplitRatio), allow_hyphen_values = true)]
    max_inactive_split_ratio: Option<Amount>,

    /// Reserved memory that is free and that empty_cache() would not give back
    #[arg(long, value_name = "RATIO", value_parser = read(Threshold::StrandedRatio), allow_hyphen_values = true)]
    max_stranded_ratio: Option<Amount>,

    /// Free memory outside the largest free block
    #[arg(long, value_name = "RATIO", value_parser = read(Threshold::ExternalRatio), allow_hyphen_values = true)]
    max_external_ratio: Option<Amount>,

    /// Blocks in use: more than the program asked for
    #[arg(long, value_name = "RATIO", value_parser = read(Threshold::RoundingRatio), allow_hyphen_values = true)]
    max_rounding_ratio: Option<Amount>,

    /// Reserved memory at the snapshot
    #[arg(long, value_name = "SIZE", value_parser = read(Threshold::Reserved), allow_hyphen_values = true)]
    max_reserved: Option<Amount>,

    /// Reserved memory at its highest
    #[arg(long, value_name = "SIZE", value_parser = read(Threshold::PeakReserved), allow_hyphen_values = true)]
    max_peak_reserved: Option<Amount>,

    /// Allocated memory at its highest
    #[arg(long, value_name = "SIZE", value_parser = read(Threshold::PeakAllocated), allow_hyphen_values = true)]
    max_peak_allocated: Option<Amount>,

    /// Requests that failed
    #[arg(long, value_name = "N", value_parser = read(Threshold::Ooms), allow_hyphen_values = true)]
    max_ooms: Option<Amount>,

    /// Requests for which everything cached was given back first
    #[arg(long, value_name = "N", value_parser = read(Threshold::Retries), allow_hyphen_values = true)]
    max_retries: Option<Amount>,

    /// Growth of peak allocated and of peak reserved memory over the baseline
    #[arg(long, value_name = "SIZE", value_parser = read(Threshold::Growth), allow_hyphen_values = true, help_heading = "Growth")]
    max_growth: Option<Amount>,

    /// The same as a part of the baseline's peak
    #[arg(long, value_name = "RATIO", value_parser = read(Threshold::GrowthRatio), allow_hyphen_values = true, help_heading = "Growth")]
    max_growth_ratio: Option<Amount>,
}

impl LimitArgs {
    /// Those that were given.
    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for (threshold, most) in [
            (Threshold::GapRatio, self.max_gap_ratio),
            (Threshold::InactiveSplitRatio, self.max_inactive_split_ratio),
            (Threshold::StrandedRatio, self.max_stranded_ratio),
            (Threshold::ExternalRatio, self.max_external_ratio),
            (Threshold::RoundingRatio, self.max_rounding_ratio),
            (Threshold::Reserved, self.max_reserved),
            (Threshold::PeakReserved, self.max_peak_reserved),
            (Threshold::PeakAllocated, self.max_peak_allocated),
            (Threshold::Ooms, self.max_ooms),
            (Threshold::Retries, self.max_retries),
            (Threshold::Growth, self.max_growth),
            (Threshold::GrowthRatio, self.max_growth_ratio),
        ] {
            if let Some(most) = most {
                limits.set(threshold, most);
            }
        }
        limits
    }
}
