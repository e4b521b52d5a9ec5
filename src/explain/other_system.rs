//! Conclusions from messages of other systems: the row of [`crate::explain::systems`] and the amounts in the message.

use super::conclusion::Conclusion;
use super::figures::PrintedFigure;
use super::template::PrintedNumbers;
use crate::base::units::{MIB, size};
use crate::explain::systems::{KnownMessage, MessageAmount};

/// The verdict is always unknown: verdicts are about requests of PyTorch's allocator.
pub(super) fn conclude(system: &KnownMessage, text: &str) -> Conclusion {
    let numbers = PrintedNumbers::find(system, text);
    let answer = system.answers.iter().find_map(|answer| numbers.fill(answer));
    Conclusion {
        is_certain: system.settled_by.is_none(),
        settled_by: system.settled_by.clone(),
        advice: system.advice.iter().filter_map(|advice| numbers.fill(advice)).collect(),
        ..Conclusion::unknown(answer.as_ref().unwrap_or(&system.meaning), &[])
    }
}

/// A setting to copy, with the numbers of the message `text`.
pub(super) fn snippet(system: &KnownMessage, text: &str) -> Option<String> {
    let numbers = PrintedNumbers::find(system, text);
    system.copies.iter().find_map(|copy| numbers.fill(copy))
}

/// The amounts of the message `text`.
pub(super) fn figures(system: &'static KnownMessage, text: &str) -> Vec<PrintedFigure> {
    let numbers = PrintedNumbers::find(system, text);
    let figure = |amount: &'static MessageAmount| {
        let found = numbers.amounts.get(amount.name.as_str())?;
        let figure = PrintedFigure::from_printed(&amount.name, found, &amount.meaning);
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
