//! The conclusion from a message: verdict, reason and advice.

use super::numbers::MessageNumbers;
use crate::allocator::verdict::{Cause, Verdict};
use crate::explain::table::{Form, PrintedNumbers, SNAPSHOT, Vendor};

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
    pub(super) fn unknown(reason: String, advice: Vec<String>) -> Self {
        Self {
            verdict: Verdict::Unknown,
            reason,
            is_certain: false,
            within_rounding: false,
            settled_by: None,
            settings_can_help: None,
            advice,
            causes: Vec::new(),
        }
    }

    /// From a message of a system other than PyTorch's allocator, with the numbers in `text`. The verdict is unknown:
    /// verdicts are about requests of that allocator.
    pub(super) fn from_form(form: &Form, text: &str) -> Self {
        let numbers = PrintedNumbers::find(form, text);
        Self {
            is_certain: form.settled_by.is_none(),
            settled_by: form.settled_by.clone().filter(|words| !words.is_empty()),
            ..Self::unknown(
                numbers.fill_first(&form.why).unwrap_or_default(),
                form.advice.iter().filter_map(|advice| numbers.fill(advice)).collect(),
            )
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

    pub(super) fn settled_by(self, evidence: &str) -> Self {
        Self { settled_by: Some(evidence.to_owned()), ..self }
    }

    pub(super) fn settled_by_snapshot(self) -> Self {
        self.settled_by(SNAPSHOT)
    }
}

/// For a message without the numbers that a verdict needs: what it has.
pub(super) fn incomplete(numbers: &MessageNumbers) -> Conclusion {
    let known = [
        ("requested", "was requested"),
        ("free", "was free"),
        ("allocated", "was allocated by PyTorch"),
        ("reserved", "was reserved by PyTorch"),
    ]
    .into_iter()
    .filter(|(name, _)| numbers.printed.figure(name).is_some())
    .map(|(name, verb)| format!("{} {verb}", numbers.text(name)));
    let known = known.collect::<Vec<_>>().join(", ");
    let device =
        numbers.capacity.map_or_else(String::new, |_| format!(", on a device of {}", numbers.text("capacity")));
    let is_2_3 = numbers.printed.releases.is_some_and(|releases| releases.to_string() == "2.3");
    let reason = match known.as_str() {
        "" => "the message has no numbers".to_owned(),
        _ if is_2_3 && numbers.capacity.is_none() => {
            format!("{known}; PyTorch 2.3 cuts off the rest of its message on device 0")
        }
        _ => format!("{known}{device}; the rest of the message is not in this text"),
    };
    Conclusion::unknown(reason, Vec::new()).settled_by_snapshot()
}
