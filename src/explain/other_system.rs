//! Conclusions from messages of other systems: the row of [`crate::explain::systems`] and the amounts in the message.

use super::conclusion::Conclusion;
use super::figures::PrintedFigure;
use crate::base::units::{MIB, size};
use crate::explain::message::PrintedAmount;
use crate::explain::systems::{KnownMessage, MessageAmount};

/// The verdict is always unknown: verdicts are about requests of PyTorch's allocator.
pub(super) fn conclude(system: &KnownMessage) -> Conclusion {
    Conclusion {
        is_certain: system.settled_by.is_none(),
        settled_by: system.settled_by.clone(),
        advice: system.advice.clone(),
        ..Conclusion::unknown(&system.meaning, &[])
    }
}

/// The amounts of the message `text`.
pub(super) fn figures(system: &'static KnownMessage, text: &str) -> Vec<PrintedFigure> {
    let figure = |amount: &'static MessageAmount| {
        let found = match (&amount.after, &amount.before) {
            (Some(words), _) => PrintedAmount::at_start_lenient(text.split_once(words)?.1),
            (None, Some(words)) => PrintedAmount::at_end(text.split_once(words)?.0),
            (None, None) => None,
        }?;
        let figure = PrintedFigure::from_printed(&amount.name, &found, &amount.meaning);
        let has_small_unit = found.text.ends_with(" bytes") || found.text.ends_with(" kB");
        let has_many_digits = has_small_unit && found.bytes >= MIB;
        Some(if has_many_digits {
            PrintedFigure { printed: format!("{} ({})", found.text, size(found.bytes)), ..figure }
        } else {
            figure
        })
    };
    system.amounts.iter().filter_map(figure).collect()
}
