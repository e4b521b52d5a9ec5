//! The limits as flags.

use clap::Args;

use crate::gate::{Amount, Limits, Threshold};
use crate::units::{parse_ratio, parse_size};

/// A flag for every [`Threshold`]; each wins over the file's limit that fails.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits (a RATIO is 0.3 or 30%)")]
#[expect(clippy::struct_field_names, clippy::doc_markdown, reason = "as typed and shown")]
pub(super) struct LimitArgs {
    /// Reserved memory that the program does not hold, at the snapshot
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_gap_ratio: Option<f64>,

    /// Reserved memory that is free in segments that are partly in use
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_inactive_split_ratio: Option<f64>,

    /// Reserved memory that is free and that empty_cache() would not give back
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_stranded_ratio: Option<f64>,

    /// Free memory outside the largest free block
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_external_ratio: Option<f64>,

    /// Blocks in use: more than the program asked for
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, allow_negative_numbers = true)]
    max_rounding_ratio: Option<f64>,

    /// Reserved memory at the snapshot
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    max_reserved: Option<u64>,

    /// Reserved memory at its highest
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    max_peak_reserved: Option<u64>,

    /// Allocated memory at its highest
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
    max_peak_allocated: Option<u64>,

    /// Requests that failed
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_ooms: Option<u64>,

    /// Requests for which everything cached was given back first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_retries: Option<u64>,

    /// Growth of peak allocated and of peak reserved memory over the baseline
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        allow_negative_numbers = true,
        help_heading = "Growth"
    )]
    max_growth: Option<u64>,

    /// The same as a part of the baseline's peak
    #[arg(
        long,
        value_name = "RATIO",
        value_parser = parse_ratio,
        allow_negative_numbers = true,
        help_heading = "Growth"
    )]
    max_growth_ratio: Option<f64>,
}

impl LimitArgs {
    /// Those that were given.
    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        let ratio = |ratio: Option<f64>| ratio.map(Amount::Ratio);
        let bytes = |bytes: Option<u64>| bytes.map(Amount::bytes);
        let count = |count: Option<u64>| count.map(Amount::Count);
        for (threshold, most) in [
            (Threshold::GapRatio, ratio(self.max_gap_ratio)),
            (Threshold::InactiveSplitRatio, ratio(self.max_inactive_split_ratio)),
            (Threshold::StrandedRatio, ratio(self.max_stranded_ratio)),
            (Threshold::ExternalRatio, ratio(self.max_external_ratio)),
            (Threshold::RoundingRatio, ratio(self.max_rounding_ratio)),
            (Threshold::Reserved, bytes(self.max_reserved)),
            (Threshold::PeakReserved, bytes(self.max_peak_reserved)),
            (Threshold::PeakAllocated, bytes(self.max_peak_allocated)),
            (Threshold::Ooms, count(self.max_ooms)),
            (Threshold::Retries, count(self.max_retries)),
            (Threshold::Growth, bytes(self.max_growth)),
            (Threshold::GrowthRatio, ratio(self.max_growth_ratio)),
        ] {
            if let Some(most) = most {
                limits.set(threshold, most);
            }
        }
        limits
    }
}
