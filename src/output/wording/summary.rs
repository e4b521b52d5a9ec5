//! The first lines of every report: what happened, who holds most, what to do, what to copy; and the JSON of each command,
//! which begins with them.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::analysis::failure::{Assumption, CauseNote, VerdictReason};
use crate::analysis::timeline::TimelineReport;
use crate::analysis::{Advice, AnalyzeReport, DryRunReason, ServingPlanReport, SizeSearchReport, TrialsReport};
use crate::base::details::keys_in;
use crate::base::units::quote_shell_word;
use crate::base::warning::RECORD_HISTORY_CALL;
use crate::compare::diff::DiffReport;
use crate::compare::gate::CheckReport;
use crate::explain::ExplainReport;
use crate::whatif::fit::{FitRefusal, FitReport};
use crate::whatif::plan::PlanReport;
use crate::whatif::{ReplayReport, WhatIfReport};

/// The first lines of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// One sentence: what failed, where and why, or that nothing failed.
    pub answer: String,
    /// The code that holds the most memory; null if none does, or if the command does not look at holders.
    pub who: Option<String>,
    /// The variable that keeps the most memory alive; absent if the recording does not name variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The recommended action; null if nothing needs to be done.
    pub action: Option<String>,
    /// Text to copy for `action`: a setting, a source line, a command or a call; null if there is none.
    pub copy: Option<String>,
}

impl Summary {
    /// A summary with nothing to do.
    pub fn from_answer(answer: impl Into<String>) -> Self {
        Self { answer: answer.into(), ..Self::default() }
    }

    /// For a trace of one entry, which the legacy recording API keeps.
    pub(crate) fn from_ring_of_one(device: u64) -> Self {
        Self {
            action: Some("record more than one entry".to_owned()),
            copy: Some(RECORD_HISTORY_CALL.to_owned()),
            ..Self::from_answer(format!("nothing to replay on GPU {device}: its trace has one entry"))
        }
    }
}

/// `oomscope ARGUMENTS PATH`; `None` for standard input, which cannot be read again.
pub(crate) fn command_line(arguments: &str, path: &str) -> Option<String> {
    (path != "-").then(|| format!("oomscope {arguments} {}", quote_shell_word(path)))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(command_line("whatif", "a/b-1.pickle.gz").unwrap(), "oomscope whatif a/b-1.pickle.gz");
        assert_eq!(command_line("whatif", "a b'c").unwrap(), r"oomscope whatif 'a b'\''c'");
        assert_eq!(command_line("whatif", "-"), None);
    }
}
