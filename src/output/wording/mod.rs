//! Sentences about the facts of the rooms below, one file per topic.
//!
//! In: a finished report or a fact of it. Out: text. A report that begins with a [`Summary`] is serialized here, because
//! its JSON contains that text.

mod advice;
mod analyze;
mod brief;
mod cause;
mod cure;
mod dry_run;
mod dry_verdict;
mod outcome;
mod peers;
mod place;
mod summary;
mod variables;

pub(crate) use analyze::{describe_request, failure_headline, summarize_device, usage_headline};
pub use brief::{Brief, BriefLine, BriefMoment};
pub(crate) use cause::describe_cause;
pub(crate) use dry_verdict::{describe_budget, describe_engine, describe_options, describe_verdict, format_requests};
pub(crate) use outcome::{
    ESTIMATE, POSTPONES, STILL_GROWS, describe_outcome, growth_clause, outcome_clause, settings_action, settings_label,
};
pub(crate) use peers::{describe_difference, describe_jobs, describe_state, even_out};
pub(crate) use place::{
    category_label, describe_position, describe_position_on, frame_label, guessed_label, location_label,
};
pub use summary::Summary;
pub(crate) use summary::command_line;
pub(crate) use variables::{container_label, keeper_details, keeper_name, shape_label, type_label};
