//! What a message comes to, and what there is to say of every message.

use super::reckoning::Reckoning;
use crate::allocator::verdict::{Cause, Verdict};
use crate::explain::message::PrintedAmount;
use crate::explain::systems::{SNAPSHOT, Vendor};

/// What a message comes to.
#[derive(Debug)]
pub(super) struct Conclusion {
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    pub(super) is_certain: bool,
    pub(super) within_rounding: bool,
    pub(super) settled_by: Option<String>,
    pub(super) settings_can_help: Option<bool>,
    pub(super) advice: Vec<String>,
    pub(super) causes: Vec<Cause>,
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

    /// The same in the words of `vendor`.
    pub(super) fn in_words_of(self, vendor: &Vendor) -> Self {
        let own = |text: String| vendor.own_words(text);
        let cause = |cause: Cause| Cause { note: own(cause.note), ..cause };
        Self {
            reason: own(self.reason),
            settled_by: self.settled_by.map(own),
            advice: self.advice.into_iter().map(own).collect(),
            causes: self.causes.into_iter().map(cause).collect(),
            ..self
        }
    }

    pub(super) fn settled_by_snapshot(self) -> Self {
        Self { settled_by: Some(SNAPSHOT.to_owned()), ..self }
    }
}

/// The parts of a message that are missing.
pub(super) fn cut_short(r: &Reckoning) -> Conclusion {
    let reason = match (&r.said.requested, r.said.releases) {
        (Some(requested), Some(releases)) if releases.to_string() == "2.3" => format!(
            "{} was requested; PyTorch 2.3 cuts off the rest of its message on device 0",
            requested.text
        ),
        (Some(requested), _) => {
            format!("{} was requested; the rest of the message is not in this text", requested.text)
        }
        (None, _) => "the message has no numbers".to_owned(),
    };
    Conclusion::unknown(&reason, &[]).settled_by_snapshot()
}

/// A number as it was printed.
pub(super) fn text(amount: Option<&PrintedAmount>) -> &str {
    amount.map_or("an unknown amount", |amount| &amount.text)
}
