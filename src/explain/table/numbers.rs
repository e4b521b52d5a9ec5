//! The numbers of a message, and sentences and commands with these numbers in them.
//!
//! `{tokens}` is a number of the message, `{=tokens}` its digits as printed, `{requested-free}` a positive difference,
//! `{free/capacity}` a share of at least [`MIN_SHARE`], rounded down to two decimals. `{?tokens}` and `{!tokens}` are
//! empty, and need a message with or without that number. A template that needs a number which the message lacks yields nothing.

use std::collections::BTreeMap;

use super::{Form, Pattern, PrintedAmount, Side};
use crate::base::units::{GIB, MIB, count, ratio, size};

/// A smaller share of a device has no room for the weights of a model, so it is no advice.
const MIN_SHARE: f64 = 0.3;

impl Form {
    /// The amounts of this form's figures in `text`, with their positions.
    pub fn find_figures(&self, text: &str) -> BTreeMap<&str, (usize, PrintedAmount)> {
        let figures = self.figures().filter_map(|(name, patterns, _)| {
            Some((name, patterns.iter().find_map(|pattern| self.find_amount(pattern, text))?))
        });
        figures.collect()
    }

    fn find_amount(&self, pattern: &str, text: &str) -> Option<(usize, PrintedAmount)> {
        match Pattern(pattern.to_owned()).find_number(text)? {
            Side::Before(rest) => Some((rest.len(), PrintedAmount::at_end(rest)?)),
            // PyTorch prints a unit with every amount; where words follow instead, there is no number.
            Side::Behind(rest) if self.is_allocator() => {
                Some((text.len() - rest.len(), PrintedAmount::at_start(rest)?))
            }
            Side::Behind(rest) => Some((text.len() - rest.len(), PrintedAmount::at_start_lenient(rest)?)),
        }
    }
}

/// The numbers that a message prints.
pub struct PrintedNumbers<'a> {
    pub amounts: BTreeMap<&'a str, (usize, PrintedAmount)>,
    /// Digits, with a decimal point at most.
    numbers: BTreeMap<&'a str, String>,
    /// Names that stand for any text.
    texts: BTreeMap<&'a str, String>,
}

impl<'a> PrintedNumbers<'a> {
    /// Finds the numbers of `form` in its message `text`.
    pub fn find(form: &'a Form, text: &str) -> Self {
        let numbers = form.numbers.iter().filter_map(|(name, patterns)| {
            Some((name.as_str(), patterns.iter().find_map(|pattern| find_number(pattern, text))?))
        });
        Self { amounts: form.find_figures(text), numbers: numbers.collect(), texts: BTreeMap::new() }
    }

    pub fn from_texts(texts: BTreeMap<&'a str, String>) -> Self {
        Self { amounts: BTreeMap::new(), numbers: BTreeMap::new(), texts }
    }

    pub fn add(&mut self, name: &'a str, text: String) {
        self.texts.insert(name, text);
    }

    /// The first of `templates` whose numbers are all known, with them.
    pub fn fill_first(&self, templates: &[String]) -> Option<String> {
        templates.iter().find_map(|template| self.fill(template))
    }

    /// `template` with its numbers.
    pub fn fill(&self, template: &str) -> Option<String> {
        fill(template, |name| self.value(name))
    }

    fn value(&self, name: &str) -> Option<String> {
        if let Some(name) = name.strip_prefix('!') {
            return self.value(name).is_none().then(String::new);
        }
        if let Some(name) = name.strip_prefix('?') {
            return self.value(name).map(|_| String::new());
        }
        if let Some(text) = self.texts.get(name) {
            return Some(text.clone());
        }
        if let Some((part, all)) = name.split_once('/') {
            return self.share(part, all);
        }
        if let Some((more, less)) = name.split_once('-') {
            return self.difference(more, less);
        }
        if let Some(name) = name.strip_prefix('=') {
            return self.numbers.get(name).cloned();
        }
        if let Some(amount) = self.amount(name) {
            return Some(amount_text(amount));
        }
        self.numbers.get(name).map(|number| number.parse().map_or_else(|_| number.clone(), count))
    }

    fn amount(&self, name: &str) -> Option<&PrintedAmount> {
        self.amounts.get(name).map(|(_, amount)| amount)
    }

    fn difference(&self, more: &str, less: &str) -> Option<String> {
        if let Some((more, less)) = self.amount(more).zip(self.amount(less)) {
            return more.bytes.checked_sub(less.bytes).filter(|bytes| *bytes > 0).map(size);
        }
        let [more, less] = [more, less].map(|name| self.numbers.get(name)?.parse::<u64>().ok());
        more?.checked_sub(less?).filter(|difference| *difference > 0).map(count)
    }

    fn share(&self, part: &str, all: &str) -> Option<String> {
        let (part, all) = (self.amount(part)?, self.amount(all)?);
        let share = ratio(part.bytes.saturating_sub(part.error_bytes), all.bytes.saturating_add(all.error_bytes));
        let share = (share * 100.0).floor() / 100.0;
        (MIN_SHARE..1.0).contains(&share).then(|| format!("{share:.2}"))
    }
}

/// `template` with the `value` of each `{name}`; `None` if one is not known.
pub fn fill(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut pieces = template.split('{');
    let mut out = pieces.next()?.to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once('}')?;
        out.push_str(&value(name)?);
        out.push_str(rest);
    }
    Some(out)
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

fn find_number(pattern: &Pattern, text: &str) -> Option<String> {
    let Side::Behind(rest) = pattern.find_number(text)? else { return None }; // only amounts may be before
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let number = rest.get(..end)?.trim_end_matches('.');
    number.parse::<f64>().ok().map(|_| number.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::table::FORMS;

    fn numbers(text: &str) -> PrintedNumbers<'static> {
        let system = FORMS.iter().find(|system| system.find(text).is_some()).unwrap();
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
        assert_eq!(vllm.fill("{free-free}").or(vllm.fill("{fits-fits}")), None);
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
