//! Sentences and commands with the numbers of a message in them.
//!
//! `{tokens}` is a number of the message, `{=tokens}` its digits as printed, `{requested-free}` a positive difference, `{free/capacity}` a share of at
//! least [`MIN_SHARE`], rounded down to two decimals. A template that needs a number which the message lacks yields
//! nothing.

use std::collections::BTreeMap;

use crate::allocator::verdict::ApproxBytes;
use crate::base::units::{GIB, MIB, count, size};
use crate::explain::message::PrintedAmount;
use crate::explain::systems::KnownMessage;

/// A smaller share of a device has no room for the weights of a model, so it is no advice.
const MIN_SHARE: f64 = 0.3;

/// The numbers that a message prints.
pub(super) struct PrintedNumbers<'a> {
    pub(super) amounts: BTreeMap<&'a str, PrintedAmount>,
    /// Digits, with a decimal point at most.
    numbers: BTreeMap<&'a str, String>,
}

impl<'a> PrintedNumbers<'a> {
    /// Finds the numbers of `system` in its message `text`.
    pub(super) fn find(system: &'a KnownMessage, text: &str) -> Self {
        let amounts = system.amounts.iter();
        let numbers = system.numbers.iter();
        Self {
            amounts: amounts
                .filter_map(|amount| Some((amount.name.as_str(), find_amount(amount.after_and_before(), text)?)))
                .collect(),
            numbers: numbers
                .filter_map(|(name, words)| {
                    let number = words.iter().find_map(|words| number_at_start(skip_words(text, words)?));
                    Some((name.as_str(), number?))
                })
                .collect(),
        }
    }

    /// `template` with its numbers.
    pub(super) fn fill(&self, template: &str) -> Option<String> {
        let mut pieces = template.split('{');
        let mut out = pieces.next()?.to_owned();
        for piece in pieces {
            let (name, rest) = piece.split_once('}')?;
            out.push_str(&self.value(name)?);
            out.push_str(rest);
        }
        Some(out)
    }

    fn value(&self, name: &str) -> Option<String> {
        if let Some((part, all)) = name.split_once('/') {
            return self.share(part, all);
        }
        if let Some((more, less)) = name.split_once('-') {
            return self.difference(more, less);
        }
        if let Some(name) = name.strip_prefix('=') {
            return self.numbers.get(name).cloned();
        }
        if let Some(amount) = self.amounts.get(name) {
            return Some(amount_text(amount));
        }
        self.numbers.get(name).map(|number| number.parse().map_or_else(|_| number.clone(), count))
    }

    fn difference(&self, more: &str, less: &str) -> Option<String> {
        if let Some((more, less)) = self.amounts.get(more).zip(self.amounts.get(less)) {
            let difference = more.bytes.checked_sub(less.bytes).filter(|bytes| *bytes > 0);
            return difference.map(size);
        }
        let number = |name: &str| self.numbers.get(name)?.parse::<u64>().ok();
        number(more)?.checked_sub(number(less)?).filter(|difference| *difference > 0).map(count)
    }

    fn share(&self, part: &str, all: &str) -> Option<String> {
        let (part, all) = (ApproxBytes::from(self.amounts.get(part)?), ApproxBytes::from(self.amounts.get(all)?));
        let (part, all) = (part.bytes.saturating_sub(part.error), all.bytes.saturating_add(all.error));
        let share = (part as f64 / all.max(1) as f64 * 100.0).floor() / 100.0;
        (MIN_SHARE..1.0).contains(&share).then(|| format!("{share:.2}"))
    }
}

/// The amount as printed, or with a unit that is easier to read.
fn amount_text(amount: &PrintedAmount) -> String {
    let unit = amount.text.rsplit_once(' ').map_or(amount.text.as_str(), |(_, unit)| unit);
    match unit {
        "bytes" | "B" => size(amount.bytes),
        "kB" if amount.bytes >= MIB => size(amount.bytes),
        "MiB" | "MB" if amount.bytes >= GIB => size(amount.bytes),
        // XLA and the kubelet print `12.40G` and `61234Mi`, in powers of 1024.
        "K" | "M" | "G" => format!("{}iB", amount.text),
        "Ki" | "Mi" | "Gi" => format!("{}B", amount.text),
        _ => amount.text.clone(),
    }
}

fn find_amount(words: (Option<&str>, Option<&str>), text: &str) -> Option<PrintedAmount> {
    match words {
        (Some(after), _) => PrintedAmount::at_start_lenient(skip_words(text, after)?),
        (None, Some(before)) => PrintedAmount::at_end(text.split_once(before)?.0),
        (None, None) => None,
    }
}

/// The text behind `words`, whose parts, divided by `…`, follow each other.
fn skip_words<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    words.split('…').try_fold(text, |rest, words| Some(rest.split_once(words)?.1))
}

fn number_at_start(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text.get(..end)?.trim_end_matches('.');
    number.parse::<f64>().ok().map(|_| number.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::systems::known_messages;

    fn numbers(text: &str) -> PrintedNumbers<'static> {
        let system = known_messages().find(|system| system.find(text).is_some()).unwrap();
        PrintedNumbers::find(system, text)
    }

    const STARTUP: &str = "Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory \
                           utilization (0.9, 19.85 GiB). Decrease GPU memory utilization";

    #[test]
    fn numbers_are_filled_in() {
        let vllm = numbers(
            "To serve at least one request with the models's max seq len (131072), (4.11 GiB KV cache is needed, which \
             is larger than the available KV cache memory (4.00 GiB). Based on the available memory, the estimated \
             maximum model length is 127776. Try",
        );
        assert_eq!(vllm.fill("{tokens}: {requested}").as_deref(), Some("131,072: 4.11 GiB"));
        assert_eq!(vllm.fill("--max-model-len {=fits}").as_deref(), Some("--max-model-len 127776"));
        assert_eq!(vllm.fill("{requested-free}").as_deref(), Some("113 MiB"));
        assert_eq!(vllm.fill("{free-requested}"), None, "differences are positive");
        assert_eq!(vllm.fill("{tokens-fits} {unknown}"), None);
        assert_eq!(vllm.fill("{tokens-fits}").as_deref(), Some("3,296"));
        assert_eq!(vllm.fill("no numbers").as_deref(), Some("no numbers"));
    }

    #[test]
    fn shares_are_rounded_down_so_that_they_fit() {
        assert_eq!(numbers(STARTUP).fill("{free/capacity}").as_deref(), Some("0.89"));
        let little = STARTUP.replace("19.77", "2.60");
        assert_eq!(numbers(&little).fill("{free/capacity}"), None, "no room for a model");
    }

    #[test]
    fn units_of_other_systems_are_spelled_out() {
        let tpu = numbers(
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 21.95G \
             of 15.48G hbm. Exceeded hbm capacity by 6.47G.",
        );
        assert_eq!(tpu.fill("{requested} of {capacity}").as_deref(), Some("21.95 GiB of 15.48 GiB"));
        let arena = numbers(
            "onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 2830172160",
        );
        assert_eq!(arena.fill("{requested}").as_deref(), Some("2.64 GiB"));
        let cupy = numbers(
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 12,884,901,888 bytes).",
        );
        assert_eq!(cupy.fill("{requested} {allocated}").as_deref(), Some("8 GiB 12 GiB"));
    }
}
