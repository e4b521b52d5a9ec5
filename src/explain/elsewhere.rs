//! Memory that somebody else than PyTorch's allocator of device memory could not have: what the table of
//! [`crate::explain::systems`] says of it, and the numbers in the message.

use super::conclusion::Conclusion;
use super::figures::PrintedFigure;
use crate::base::units::{MIB, size};
use crate::explain::message::PrintedAmount;
use crate::explain::systems::{Amount, At, System};

/// What such a message means. The verdict stays open: it is a word for requests of PyTorch's allocator.
pub(super) fn conclude(system: &System) -> Conclusion {
    Conclusion {
        is_certain: system.settled_by.is_none(),
        settled_by: system.settled_by.map(str::to_owned),
        ..Conclusion::unknown(system.means, system.advice)
    }
}

/// The numbers of the message `text`.
pub(super) fn figures(system: &System, text: &str) -> Vec<PrintedFigure> {
    let figure = |amount: &Amount| {
        let found = match amount.at {
            At::Behind(words) => PrintedAmount::loosely_at_start(text.split_once(words)?.1),
            At::Before(words) => PrintedAmount::at_end(text.split_once(words)?.0),
        }?;
        let figure = PrintedFigure::said(amount.name, &found, amount.meaning);
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
