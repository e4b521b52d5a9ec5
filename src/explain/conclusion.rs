//! The conclusion from a message: verdict, reason and advice.

use super::numbers::MessageNumbers;
use super::texts::texts;
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::Verdict;
use crate::explain::standard_advice::{Snippet, StandardAdvice};
use crate::explain::table::{Form, PrintedNumbers, conclusion_row};

/// Means the advice of the device's vendor.
const REFUSALS: &str = "{refusals}";

#[derive(Debug)]
pub(super) struct Conclusion {
    pub(super) verdict: Verdict,
    /// The row of the table with the words, for a message of PyTorch's allocator.
    pub(super) row: &'static str,
    pub(super) reason: String,
    pub(super) is_certain: bool,
    pub(super) within_rounding: bool,
    pub(super) settled_by: Option<String>,
    pub(super) settings_can_help: Option<bool>,
    pub(super) advice: Vec<String>,
}

impl Conclusion {
    pub(super) fn new(row: &'static str, verdict: Verdict, is_certain: bool) -> Self {
        Self {
            verdict,
            row,
            reason: String::new(),
            is_certain,
            within_rounding: false,
            settled_by: None,
            settings_can_help: None,
            advice: Vec::new(),
        }
    }

    /// From a message of a system other than PyTorch's allocator, with the numbers in `text`. The verdict is unknown:
    /// verdicts are about requests of that allocator.
    pub(super) fn from_form(form: &Form, numbers: &PrintedNumbers) -> Self {
        Self {
            reason: numbers.fill_first(&form.why).unwrap_or_default(),
            settled_by: form.settled_by.clone().filter(|evidence| !evidence.is_empty()),
            advice: form.advice.iter().filter_map(|line| numbers.fill(line)).collect(),
            ..Self::new("", Verdict::Unknown, form.settled_by.is_none())
        }
    }

    /// Fills in the words of its row, in the terms of the vendor.
    pub(super) fn in_words(self, numbers: &MessageNumbers) -> Self {
        let row = conclusion_row(self.row);
        let mut texts = texts(numbers, self.verdict, self.settings_can_help);
        let expandable = texts.fill_first(&conclusion_row("expandable").advice);
        texts.add("expandable", expandable.unwrap_or_default());
        let vendor = numbers.vendor;
        let mut advice = Vec::new();
        for line in &row.advice {
            if line == REFUSALS {
                advice.extend(vendor.refusals(numbers.request.map_or(0, |request| request.bytes)));
            } else {
                advice.extend(texts.fill(line).map(|line| vendor.translate(line)));
            }
        }
        Self {
            reason: vendor.translate(texts.fill_first(&row.why).unwrap_or_default()),
            settled_by: row.settled_by.clone().filter(|_| !self.is_certain).map(|by| vendor.translate(by)),
            advice,
            ..self
        }
    }

    /// A command or setting to copy, if the first advice is the standard one. `None` means that the source line is the
    /// thing to copy.
    pub(super) fn snippet(&self, numbers: &MessageNumbers) -> Option<String> {
        let row = StandardAdvice::for_verdict(self.verdict);
        let standard = numbers.vendor.translate(row.text.to_owned());
        let is_standard = self.advice.first().is_some_and(|first| first.starts_with(&standard));
        let words = match row.snippet {
            // The command lists the processes on the device, so it helps with any advice on outside memory.
            Snippet::Command(words) if is_standard || self.verdict == Verdict::NonPytorch => words.to_owned(),
            Snippet::AllocConf(option) if is_standard => shell_assignment(option, None),
            _ => return None,
        };
        Some(numbers.vendor.translate(words))
    }
}
