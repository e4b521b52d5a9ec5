//! The JSON of each command: its schema, its summary, and the keys of its report.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::analysis::failure::{Assumption, CauseNote, VerdictReason};
use crate::analysis::timeline::TimelineReport;
use crate::analysis::{Advice, AnalyzeReport, DryRunReason, ServingPlanReport, SizeSearchReport, TrialsReport};
use crate::base::details::keys_in;
use crate::compare::diff::DiffReport;
use crate::compare::gate::CheckReport;
use crate::explain::ExplainReport;
use crate::whatif::fit::{FitRefusal, FitReport};
use crate::whatif::plan::PlanReport;
use crate::whatif::{ReplayReport, WhatIfReport};

/// Serializes each report with its schema and summary before its own keys.
macro_rules! reports {
    ($($Report:ident = $schema:literal),* $(,)?) => {$(
        impl Serialize for $Report {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut object = serializer.serialize_map(None)?;
                object.serialize_entry("schema", $schema)?;
                object.serialize_entry("summary", &self.summary())?;
                $Report::serialize(self, keys_in(&mut object))?;
                object.end()
            }
        }
    )*};
}

reports! {
    AnalyzeReport = "oomscope/analyze/1",
    CheckReport = "oomscope/check/1",
    DiffReport = "oomscope/diff/1",
    ExplainReport = "oomscope/explain/1",
    FitRefusal = "oomscope/fit-refused/1",
    FitReport = "oomscope/fit/1",
    PlanReport = "oomscope/plan/1",
    ReplayReport = "oomscope/replay/1",
    ServingPlanReport = "oomscope/plan-serving/1",
    SizeSearchReport = "oomscope/dry-run-fit/1",
    TimelineReport = "oomscope/timeline/1",
    TrialsReport = "oomscope/dry-run-try/1",
    WhatIfReport = "oomscope/whatif/1",
}

/// Serializes each type as its sentence.
macro_rules! sentences {
    ($($Fact:ident),* $(,)?) => {$(
        impl Serialize for $Fact {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

sentences! { Advice, Assumption, CauseNote, DryRunReason, VerdictReason }
