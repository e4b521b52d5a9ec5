//! The evidence with which the rows of the table are compared.

use crate::base::units::ratio;
use crate::stacks::frames::FrameReport;
use crate::study::variables::{KeptByVariable, KeptReport};

/// From this share on, a variable keeps its memory through graphs.
pub(super) const GRAPH_SHARE: f64 = 0.5;

/// The request that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) frames: &'a [FrameReport],
    pub(super) shortfall_bytes: u64,
    pub(super) allocated_bytes: u64,
}

/// Evidence that a row is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) request: Request<'a>,
    pub(super) kept: &'a KeptReport,
    pub(super) keeper: &'a KeptByVariable,
}

impl<'a> Case<'a> {
    /// The variable that nothing reads any more, if it leads to this memory.
    pub(super) fn unread_variable(self) -> Option<&'a str> {
        let name = self.keeper.name.as_deref()?.split(['.', '[']).next()?;
        self.kept.unread.iter().map(String::as_str).find(|unread| *unread == name)
    }

    /// All of them, that of the largest memory first.
    pub(super) fn unread_variables(self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for keeper in &self.kept.keepers {
            if let Some(name) = (Case { keeper, ..self }).unread_variable()
                && !names.iter().any(|known| known == name)
            {
                names.push(name.to_owned());
            }
        }
        names
    }
}

pub(super) fn keeps_graphs(keeper: &KeptByVariable) -> bool {
    ratio(keeper.graph_bytes, keeper.bytes) >= GRAPH_SHARE
}
