//! The conclusion from a message: verdict, reason and advice.

use super::numbers::MessageNumbers;
use crate::allocator::verdict::{Cause, Verdict};
use crate::base::units::size;
use crate::explain::message::PrintedAmount;
use crate::explain::systems::{SNAPSHOT, Vendor};

#[derive(Debug)]
pub(super) struct Conclusion {
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    pub(super) is_certain: bool,
    pub(super) within_rounding: bool,
    pub(super) settled_by: Option<String>,
    pub(super) settings_can_help: Option<bool>,
    pub(super) advice: Vec<String>,
    pub(super) causes: Vec<Cause<String>>,
}

impl Conclusion {
    pub(super) fn unknown(reason: &str, advice: &[&str]) -> Self {
        Self {
            verdict: Verdict::Unknown,
            reason: reason.to_owned(),
            is_certain: false,
            within_rounding: false,
            settled_by: None,
            settings_can_help: None,
            advice: advice.iter().map(|line| (*line).to_owned()).collect(),
            causes: Vec::new(),
        }
    }

    /// Replaces CUDA's terms by those of `vendor`.
    pub(super) fn for_vendor(self, vendor: &Vendor) -> Self {
        let translate = |text: String| vendor.translate(text);
        let cause = |cause: Cause<String>| Cause { note: translate(cause.note), ..cause };
        Self {
            reason: translate(self.reason),
            settled_by: self.settled_by.map(translate),
            advice: self.advice.into_iter().map(translate).collect(),
            causes: self.causes.into_iter().map(cause).collect(),
            ..self
        }
    }

    pub(super) fn settled_by_snapshot(self) -> Self {
        Self { settled_by: Some(SNAPSHOT.to_owned()), ..self }
    }
}

/// For a message without the numbers that a verdict needs.
pub(super) fn incomplete(numbers: &MessageNumbers) -> Conclusion {
    let reason = match (&numbers.printed.requested, numbers.printed.releases) {
        (Some(requested), Some(releases)) if releases.to_string() == "2.3" => {
            format!("{} was requested; PyTorch 2.3 cuts off the rest of its message on device 0", size(requested.bytes))
        }
        (Some(requested), _) => {
            format!("{} was requested; the rest of the message is not in this text", size(requested.bytes))
        }
        (None, _) => "the message has no numbers".to_owned(),
    };
    Conclusion::unknown(&reason, &[]).settled_by_snapshot()
}

/// `amount` with the digits of other sizes.
pub(super) fn amount_text(amount: Option<&PrintedAmount>) -> String {
    amount.map_or_else(|| "an unknown amount".to_owned(), |amount| size(amount.bytes))
}
